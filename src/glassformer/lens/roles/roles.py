"""The roles that a head may have: for each, the keys that it predicts for a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP, SPECIALS, UNK
from glassformer.lens.ablate import Head, Map
from glassformer.train.objective import Targets

ABSENT = -1

"""The step of a query that predicts no token of the answer; the rank of a key that is no token of the source."""


class View(NamedTuple):
    """What one kind of attention reads, for N sequences."""

    queries: Int[Tensor, "N T"]
    """Ids of the tokens at the queries."""
    keys: Int[Tensor, "N S"]
    """Ids of the tokens at the keys."""
    step: Int[Tensor, "N T"]
    """Which token of the answer a query predicts, from 0."""
    rank: Int[Tensor, "N S"]
    """Which token of the source a key is, from 0."""
    outputs: Int[Tensor, "N T"] | None
    """Ids of the tokens that the queries predict."""
    counted: Bool[Tensor, "N T"]
    """Queries that are scored: those at an ordinary token, or that predict one."""
    real: Bool[Tensor, "N S"]
    """Keys at an ordinary token: neither padding nor special."""
    crossing: bool
    """Whether queries and keys are two sequences."""

    @property
    def length(self) -> Int[Tensor, " N"]:
        """The number of source tokens or, if no key has a rank, of all ordinary tokens."""
        ranked = (self.rank != ABSENT).sum(1)
        return torch.where(ranked > 0, ranked, self.real.sum(1))

    @property
    def sinks(self) -> Bool[Tensor, "N S"]:
        """The keys <bos>, <sep> and <eos> or, in a row without any of them, the first key."""
        special = is_one_of(self.keys, BOS, SEP, EOS)
        first = torch.zeros_like(special)
        first[:, 0] = True
        return torch.where(special.any(1, keepdim=True), special, first)

    def drop(self, rows: Bool[Tensor, " N"]) -> View:
        """Return the view without some of the sequences."""
        kept = {name: each[~rows] for name, each in self._asdict().items() if isinstance(each, Tensor)}
        return self._replace(**kept)


Predict = Callable[[View], Bool[Tensor, "N T S"] | None]
"""Returns P(i) as a mask, or None if this kind of attention cannot have the role."""


@dataclass(frozen=True)
class Role:
    """A role that a head may have."""

    name: str
    """The name in tables."""
    what: str
    """What a query reads, in words."""
    predict: Predict
    needs_repeats: bool = False
    """Whether it can be recognised only in sequences with repeated tokens."""
    shift: int = 0
    """How many keys to the right of the unshifted role's keys it reads."""

    @property
    def title(self) -> str:
        """The role's name before the word "head"."""
        return TITLES.get(self.family, self.family)

    @property
    def family(self) -> str:
        """The name without its shift."""
        return self.name.split(" ")[0] if self.shift else self.name


def offset(by: int) -> Predict:
    """Predict {i + by}; `by` is key minus query, so -1 is the previous token (Clark et al. 2019, section 3.1)."""

    def predict(view: View) -> Tensor | None:
        if view.crossing:
            return None
        T = view.queries.shape[1]
        places = torch.arange(T, device=view.queries.device)
        return (places == places[:, None] + by).expand(len(view.queries), T, T)

    return predict


def sink(view: View) -> Bool[Tensor, "N T S"]:
    """Predict special tokens or the first key: where idle heads attend (Clark et al. 2019, section 3.2)."""
    return everywhere(view, view.sinks)


def end(view: View) -> Bool[Tensor, "N T S"]:
    """Predict <eos>, whose position tells the length of the sequence."""
    return everywhere(view, view.keys == EOS)


def everywhere(view: View, keys: Bool[Tensor, "N S"]) -> Bool[Tensor, "N T S"]:
    """Predict the same keys for every query."""
    return keys[:, None, :].expand(*view.queries.shape, keys.shape[1])


def duplicate(view: View) -> Bool[Tensor, "N T S"] | None:
    """Predict {j != i: x_j = x_i}: the same token elsewhere (for a causal head, earlier)."""
    if view.crossing:
        return None
    same = view.queries[:, :, None] == view.keys[:, None, :]
    elsewhere = ~torch.eye(same.shape[-1], dtype=torch.bool, device=same.device)
    return same & elsewhere & view.real[:, None, :]


def induction(view: View) -> Bool[Tensor, "N T S"] | None:
    """Predict {j <= i: x_(j-1) = x_i}: what followed the same token earlier (Olsson et al. 2022, prefix matching)."""
    if view.crossing:
        return None
    S = view.keys.shape[1]
    follows = torch.zeros(*view.queries.shape, S, dtype=torch.bool, device=view.keys.device)
    follows[:, :, 1:] = (view.queries[:, :, None] == view.keys[:, None, :-1]) & view.real[:, None, :-1]
    before = torch.ones(S, S, dtype=torch.bool, device=view.keys.device).tril()
    return follows & before & view.real[:, None, :]


def diagonal(shift: int = 0) -> Predict:
    """Predict {s + t + shift}: step t of the answer reads token t of the source, which s special tokens precede."""

    def predict(view: View) -> Tensor | None:
        return None if view.outputs is None else at_rank(view, view.step + shift)

    return predict


def reversal(shift: int = 0) -> Predict:
    """Predict {s + n-1-t + shift}: step t reads the t-th token from the end of the n source tokens.

    In a stack that answers in place, the query at position i has step i - s and reads position 2s + n-1-i.
    """

    def predict(view: View) -> Tensor:
        return at_rank(view, view.length[:, None] - 1 - view.step + shift)

    return predict


def at_rank(view: View, ranks: Int[Tensor, "N T"]) -> Bool[Tensor, "N T S"]:
    """Predict, for each query that has a step, the source token at a rank."""
    return in_source(view, view.rank[:, None, :] == ranks[:, :, None])


def in_source(view: View, found: Bool[Tensor, "N T S"]) -> Bool[Tensor, "N T S"]:
    """Leave out queries that have no step, and keys that are no token of the source."""
    return found & (view.rank != ABSENT)[:, None, :] & (view.step != ABSENT)[:, :, None]


def lookup(view: View) -> Bool[Tensor, "N T S"] | None:
    """Predict {j: x_j = the token to be written}: found by identity, as in sorting, not by position."""
    if view.outputs is None:
        return None
    return in_source(view, view.outputs[:, :, None] == view.keys[:, None, :])


TITLES = {
    **{name: f"{name}-token" for name in ("previous", "current", "next", "duplicate")},
    "eos": "end-of-sequence",
}
OFFSETS = {-1: "previous", 0: "current", 1: "next"}
SHIFTS = (0, -1, 1)
EVERY: tuple[Role, ...] = (
    *(
        Role(OFFSETS.get(by, f"offset {by:+d}"), f"the token at {by:+d}" if by else "its own token", offset(by))
        for by in (-1, 0, 1, -2, 2, -3, 3)
    ),
    Role("eos", "the end of the sequence", end),
    Role("sink", "special tokens, or the first", sink),
    Role("duplicate", "the same token elsewhere", duplicate, needs_repeats=True),
    Role("induction", "what came after the same token before", induction, needs_repeats=True),
    *(
        Role(f"{name} {c:+d}" if c else name, what + (f", {c:+d} keys" if c else ""), make(c), shift=c)
        for name, what, make in (
            ("reversal", "the source from its end", reversal),
            ("diagonal", "the source in step", diagonal),
        )
        for c in SHIFTS
    ),
    Role("lookup", "the token that is to be written", lookup),
)
"""All roles. Their order decides ties: of roles that predict the same keys, the first wins."""
ROLES: dict[str, Role] = {role.name: role for role in EVERY}


def tallies(
    view: View, weights: Float[Tensor, "N H T S"], allowed: Bool[Tensor, "N T S"], *, repeats: bool
) -> dict[str, Tally]:
    """Return the tally of every role that these maps can show, by name; `repeats`: whether tokens repeat in them."""
    found: dict[str, Tally] = {}
    largest = largest_key(weights, allowed)
    for name, role in ROLES.items():
        if role.needs_repeats and not repeats:
            continue
        predicted = role.predict(view)
        if predicted is not None and bool((predicted & allowed).any()):
            found[name] = tally(weights, predicted, allowed, view.counted, largest)
    return found


def views(batch: Batch, targets: Targets) -> dict[str, View]:
    """Return the view for each kind of attention ("encoder", "decoder", "cross") on the batch.

    `targets` are the batch's: what the last stack reads and what it should predict.
    """
    inputs, outputs = targets.inputs, targets.ids
    if inputs.is_floating_point() or (batch.source is not None and batch.source.is_floating_point()):
        raise ConfigError("A role says which tokens a head reads; this model reads features. Use observe(model).")
    keep = torch.ones_like(inputs, dtype=torch.bool) if targets.inputs_keep is None else targets.inputs_keep
    real = ordinary(inputs) & keep
    wanted = torch.zeros_like(keep)
    if outputs.shape == inputs.shape:  # the model answers at each position, not once for the whole sequence
        wanted = ordinary(outputs) & (keep if targets.keep is None else targets.keep)
    if batch.source is not None:
        return two_stacks(batch, inputs, outputs, wanted, real)
    behind = is_one_of(inputs, SEP).cumsum(1) > 0  # <sep> itself predicts the first token of a decoder's answer
    step, rank = counted_up(wanted & behind), counted_up(real & ~behind)
    own = View(inputs, inputs, step, rank, outputs, real | (step != ABSENT), real, False)
    if bool(behind.any()):
        return {"encoder": own, "decoder": own}
    own = own._replace(outputs=None)  # each token stands for its own position
    return {"encoder": own._replace(step=rank), "decoder": own._replace(step=torch.full_like(rank, ABSENT))}


def two_stacks(batch: Batch, inputs: Tensor, outputs: Tensor, wanted: Tensor, real: Tensor) -> dict[str, View]:
    """Return the views for an encoder-decoder. The encoder's queries stand for their own position in the source."""
    source = batch.source
    assert source is not None
    kept = torch.ones_like(source, dtype=torch.bool) if batch.source_keep is None else batch.source_keep
    there = ordinary(source) & kept
    step, rank = counted_up(wanted), counted_up(there)
    nothing = torch.full_like(inputs, ABSENT)
    counted = real | (step != ABSENT)
    return {
        "encoder": View(source, source, rank, rank, None, there, there, False),
        "decoder": View(inputs, inputs, step, nothing, outputs, counted, real, False),
        "cross": View(inputs, source, step, rank, outputs, counted, there, True),
    }


def ordinary(ids: Int[Tensor, "N T"]) -> Bool[Tensor, "N T"]:
    """Return where the ordinary tokens are; <unk> counts as one."""
    return (ids >= len(SPECIALS)) | (ids == UNK)


def is_one_of(ids: Int[Tensor, "N T"], *which: int) -> Bool[Tensor, "N T"]:
    """Return where any of these ids is."""
    return torch.isin(ids, torch.tensor(which, device=ids.device))


def counted_up(where: Bool[Tensor, "N T"]) -> Int[Tensor, "N T"]:
    """Number the marked positions of each row 0, 1, 2, ...; `ABSENT` elsewhere."""
    return torch.where(where, where.long().cumsum(1) - 1, ABSENT)


# Attention metrics: above all, how much of a head's attention falls on a role's predicted keys, compared to chance.


class Score(NamedTuple):
    """A role's figures for each head, as means over queries."""

    mass: Float[Tensor, " H"]
    """S: weight on the predicted keys (Vig and Belinkov 2019, section 4.2)."""
    argmax: Float[Tensor, " H"]
    """V: share of queries whose largest weight is on a predicted key (Voita et al. 2019, section 5.1)."""
    chance: float
    """c: the weight that uniform attention puts there, |P(i)| / |a(i)| for the |a(i)| keys that a query may read."""
    corrected: Float[Tensor, " H"]
    """S' = (S - c) / (1 - c): 0 at chance, at most 1; 0 if c = 1."""
    n_queries: int


class Tally(NamedTuple):
    """Sums over the counted queries of each sequence, from which the score of any subset of sequences follows."""

    mass: Float[Tensor, "N H"]
    argmax: Float[Tensor, "N H"]
    chance: Float[Tensor, " N"]
    queries: Int[Tensor, " N"]

    def score(self, rows: Bool[Tensor, " N"] | None = None) -> Score | None:
        """Return the score of all or some sequences, pooled by the number of queries; None if no query counts."""
        mass, argmax, chance, queries = self if rows is None else (each[rows] for each in self)
        n = int(queries.sum())
        if not n:
            return None
        S, c = mass.sum(0) / n, float(chance.sum()) / n
        corrected = (S - c) / (1 - c) if c < 1 else torch.zeros_like(S)
        return Score(S, argmax.sum(0) / n, c, corrected, n)

    def by_length(self, lengths: Int[Tensor, " N"]) -> dict[int, Score]:
        """Return the score of the sequences of each length by themselves."""
        found = {int(n): self.score(lengths == n) for n in lengths.unique()}
        return {n: score for n, score in found.items() if score is not None}


def tally(
    weights: Float[Tensor, "N H T S"],
    predicted: Bool[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    largest: Int[Tensor, "N H T"] | None = None,
) -> Tally:
    """Sum, for each sequence, the weight that its queries put on the predicted keys.

    `largest`: the result of `largest_key`, if it is already known.
    """
    predicted = predicted & allowed
    queries = several(allowed, counted) & predicted.any(-1)
    target = (predicted & queries[..., None]).to(weights.dtype)
    largest = largest_key(weights, allowed) if largest is None else largest
    hits = target.gather(-1, largest.transpose(1, 2))  # [N, T, H]
    share = predicted.sum(-1) / allowed.sum(-1).clamp(min=1)
    return Tally(
        torch.einsum("nhts,nts->nh", weights, target),
        hits.sum(1),
        (share * queries).sum(-1),
        queries.sum(-1),
    )


def several(allowed: Bool[Tensor, "N T S"], counted: Bool[Tensor, "N T"]) -> Bool[Tensor, "N T"]:
    """Return the counted queries that may read at least two keys."""
    return counted & (allowed.sum(-1) > 1)


def largest_key(weights: Float[Tensor, "N H T S"], allowed: Bool[Tensor, "N T S"]) -> Int[Tensor, "N H T"]:
    """Return the allowed key with the largest weight."""
    return weights.masked_fill(~allowed[:, None], -math.inf).argmax(-1)


def mean_over(values: Float[Tensor, "N H T"], queries: Bool[Tensor, "N T"]) -> Float[Tensor, " H"]:
    """Return the mean of each head's values over these queries; NaN if there are none."""
    return (values * queries[:, None]).sum((0, 2)) / queries.sum()


def entropy(
    weights: Float[Tensor, "N H T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    *,
    normalised: bool = False,
) -> Float[Tensor, " H"]:
    """Return the mean of -sum A ln A in nats (Clark et al. 2019, section 3.3); normalised: divided by ln |a(i)|."""
    queries = several(allowed, counted)
    nats = -torch.special.xlogy(weights, weights).sum(-1)
    most = allowed.sum(-1).clamp(min=2).log()[:, None]
    return mean_over(nats / most if normalised else nats, queries)


def confidence(
    weights: Float[Tensor, "N H T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
    ends: Bool[Tensor, "N S"],
) -> Float[Tensor, " H"]:
    """Return the mean of the largest weight, ignoring <eos> keys (`ends`) (Voita et al. 2019, section 4)."""
    others = weights.masked_fill(ends[:, None, None], 0.0)
    return mean_over(others.amax(-1), several(allowed, counted))


def distance(
    weights: Float[Tensor, "N H T S"], counted: Bool[Tensor, "N T"], *, signed: bool = False
) -> Float[Tensor, " H"]:
    """Return the attention-weighted mean of |key - query| in positions (Vig and Belinkov 2019); signed: key - query.

    For self-attention only, where queries and keys are the same sequence.
    """
    T, S = weights.shape[-2:]
    apart = (torch.arange(S) - torch.arange(T)[:, None]).to(weights)
    inside = weights * counted[:, None, :, None]
    return (inside * (apart if signed else apart.abs())).sum((0, 2, 3)) / inside.sum((0, 2, 3))


def value_weighted(
    weights: Float[Tensor, "N H T S"], v: Float[Tensor, "N G S K"], output: Float[Tensor, "D H K"]
) -> Float[Tensor, "N H T S"]:
    """Weight attention by the norm of what it moves, ||A[i,j] v_j W_output||, rows normalised (Kobayashi et al. 2020).

    A weight on a key with a zero vector moves nothing.
    """
    sized = weights * value_sizes(v, output)[:, :, None, :]
    return sized / sized.sum(-1, keepdim=True).clamp(min=torch.finfo(sized.dtype).tiny)


def value_sizes(v: Float[Tensor, "N G S K"], output: Float[Tensor, "D H K"]) -> Float[Tensor, "N H S"]:
    """Return ||v_j W_output|| for each head: the norm of what a key contributes at weight 1.

    `v` are the values, bias included, of G heads, each shared by H/G; `output` is the output projection, by head.
    """
    values = v.repeat_interleave(output.shape[1] // v.shape[1], 1)
    squares = torch.einsum("dhk,dhl->hkl", output, output)  # |v W|^2 = v W W^T v^T: K numbers per key instead of D
    return (torch.einsum("nhsk,hkl->nhsl", values, squares) * values).sum(-1).clamp(min=0.0).sqrt()


def divergence(
    one: Float[Tensor, "N T S"],
    other: Float[Tensor, "N T S"],
    allowed: Bool[Tensor, "N T S"],
    counted: Bool[Tensor, "N T"],
) -> float:
    """Return the mean Jensen-Shannon divergence of two heads' rows, in bits, 0 to 1 (Clark et al. 2019)."""
    queries = several(allowed, counted)
    if not bool(queries.any()):
        return math.nan
    p, q = one[queries], other[queries]
    middle = (p + q) / 2
    nats = (torch.special.xlogy(p, p) + torch.special.xlogy(q, q)) / 2 - torch.special.xlogy(middle, middle)
    return float(nats.sum(-1).mean()) / math.log(2)


# Deciding which role a head has, from its scores and the thresholds in one table.


@dataclass(frozen=True)
class Thresholds:
    """Thresholds, all in [0, 1]. Two are published; the others were chosen on planted and on trained heads."""

    strong: float = 0.6
    """Least corrected score S' of a role that a head clearly has."""
    strong_argmax: float = 0.9
    """Least share of queries whose largest weight is on the role's keys (Voita et al. 2019: a positional head)."""
    spread: float = 0.15
    """How far S' of one length, or of the control, may differ from the overall S'."""
    partial: float = 0.3
    """Least S' of a role that a head has in part."""
    sink: float = 0.5
    """Weight on special tokens above which a head without a role is called a sink."""
    diffuse: float = 0.8
    """Normalised entropy above which a head without a role is called diffuse."""
    needed: float = 0.01
    """Least drop of a needed head: the lower end of the drop's interval must reach it."""
    solved: float = 0.1
    """Least base metric at which a model has something to lose."""
    alike: float = 0.05
    """Largest divergence, in bits, at which two heads are called similar."""


THRESHOLDS = Thresholds()


class Figures(NamedTuple):
    """A role's score for one head."""

    mass: float
    argmax: float
    chance: float
    corrected: float
    n_queries: int
    by_length: Mapping[int, float] = {}
    """The corrected score for each source length."""
    control: float | None = None
    """The corrected score on the control sequences, in which tokens repeat."""

    @property
    def spread(self) -> float:
        """The largest difference of the score of any length, or of the control, from this one."""
        others = [*self.by_length.values(), *([] if self.control is None else [self.control])]
        return max((abs(each - self.corrected) for each in others), default=0.0)


@dataclass(frozen=True)
class Label:
    """What a head does, as far as its attention weights show it."""

    label: str
    """A role, or "sink", "diffuse", "mixed", "none"."""
    strength: str
    """strong, partial, sink, diffuse, mixed or none (no query could be scored)."""
    score: float
    """Corrected score of the role or, if the head has none, of the best-scoring role."""
    runner_up: tuple[str, float] | None
    """The next role of another family."""
    shift: int = 0
    """How many keys to the right of the role's own keys the head reads."""
    n_queries: int = 0

    @property
    def role(self) -> str:
        """The role's name in `ROLES`, for a head that has one: the label with its shift."""
        return f"{self.label} {self.shift:+d}" if self.shift else self.label

    @property
    def has_role(self) -> bool:
        """Whether a role was recognised."""
        return self.strength in ("strong", "partial")


def label(scores: Mapping[str, Figures], sink: float, entropy: float, rules: Thresholds = THRESHOLDS) -> Label:
    """Return the role with the highest corrected score if that is high enough (see docs/heads.md).

    `sink`: weight on special tokens; `entropy`: normalised. Roles that predict the same keys have equal scores; then
    the first in `ROLES` wins.
    """
    ranked = sorted(scores, key=lambda name: (-round(scores[name].corrected, 6), list(ROLES).index(name)))
    if not ranked or math.isnan(entropy):
        return Label("none", "none", 0.0, None)
    best = ranked[0]
    family = ROLES[best].family
    next_best = next((name for name in ranked if ROLES[name].family != family and not same(scores, name, best)), None)
    runner_up = None if next_best is None else (next_best, scores[next_best].corrected)
    found = scores[best]
    label = Label(family, "partial", found.corrected, runner_up, ROLES[best].shift, found.n_queries)
    if found.corrected >= rules.partial:
        if family == "sink":
            return Label("sink", "sink", found.corrected, runner_up, 0, found.n_queries)
        clear = found.argmax >= rules.strong_argmax and found.spread <= rules.spread
        strong = found.corrected >= rules.strong and clear
        return replace(label, strength="strong") if strong else label
    what = "sink" if sink > rules.sink else "diffuse" if entropy > rules.diffuse else "mixed"
    return Label(what, what, found.corrected, runner_up, 0, found.n_queries)


def same(scores: Mapping[str, Figures], one: str, other: str) -> bool:
    """Whether two roles predicted the same keys (their figures are equal), as lookup and reversal do in "reverse"."""
    mine, theirs = scores[one], scores[other]
    return (mine.mass, mine.argmax, mine.chance, mine.n_queries) == (
        theirs.mass, theirs.argmax, theirs.chance, theirs.n_queries,
    )  # fmt: skip


# Finding similar heads: the divergence of the attention weights of each pair.


class Pair(NamedTuple):
    """Two heads of one kind of block, and their divergence."""

    one: Head
    other: Head
    divergence: float
    """Mean Jensen-Shannon divergence of their rows, in bits, 0 to 1 (Clark et al. 2019, section 6)."""


def similar(found: Sequence[Map], views: dict[str, View]) -> list[Pair]:
    """Return all pairs of heads within each kind of block, the most similar first."""
    pairs: list[Pair] = []
    for block, view in views.items():
        heads = [
            ((block, each.layer, head), each.weights[:, head], each.allowed)
            for each in found
            if each.block == block
            for head in range(each.weights.shape[1])
        ]
        for (one, p, allowed), (other, q, _) in combinations(heads, 2):
            pairs.append(Pair(one, other, divergence(p, q, allowed, view.counted)))
    return sorted(pairs, key=lambda each: each.divergence)
