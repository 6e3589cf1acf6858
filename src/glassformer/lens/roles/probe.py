"""Probes, the data for a diagnosis: sequences without repeated tokens, a control with them, and data to score."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.batch import Batch, pad
from glassformer.data.config import DataConfig
from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.synthetic import TASKS, Sources
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.lens.ablate import Head, Map, all_heads, maps
from glassformer.lens.roles.roles import (
    ROLES,
    Figures,
    Score,
    View,
    confidence,
    distance,
    entropy,
    largest_key,
    mean_over,
    several,
    sink,
    tallies,
    tally,
    value_weighted,
    views,
)
from glassformer.nn.embedding import Embedding
from glassformer.nn.heads import Head as TokenHead
from glassformer.nn.norm import LayerNorm
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import Objective, Targets, next_token
from glassformer.train.recipe import Recipe
from glassformer.train.tasks.text import SCORED_WITH, TextSplit
from glassformer.train.text_score import reader_of

TRIES = 400
"""How many draws to try for one source before giving up on its length; a twentieth is held out for testing."""
MOST_LENGTHS = 5
MOST_WEIGHTS = 100_000_000
"""The most attention weights in memory at once, 4 bytes each."""
BATCH = 32
"""Windows per batch."""
MOST_TOKENS = 8192
"""The most tokens of running text on which a model is scored without each head."""


def held_out(
    data: DataConfig, tokenizers: Tokenizers, n: int, seed: int, *, repeats: bool
) -> list[tuple[list[int], list[int]]]:
    """Draw up to `n` different pairs, as ids, from the test split of a task with targets as long as their sources.

    With `repeats`, each source repeats a symbol and is no palindrome; without, no symbol repeats. A few lengths, evenly
    spread. Returns an empty list if there are no such pairs, as for sources longer than the number of symbols.
    """
    task, draw = TASKS[data.task], Random(seed)
    few = task.pairs(data.task, Sources(data.symbols, data.min_length, data.max_length), "train", 200, seed)
    symbols = sorted({word for pair in few for word in pair.source.split()})
    longest = data.max_length if repeats else min(data.max_length, len(symbols))
    lengths = spread(max(2, data.min_length), longest)
    found: dict[str, tuple[list[int], list[int]]] = {}
    while lengths and len(found) < n:
        length = lengths[len(found) % len(lengths)]
        for _ in range(TRIES):
            words = draw.choices(symbols, k=length) if repeats else draw.sample(symbols, length)
            source = " ".join(words)
            wanted = not repeats or (len({*words}) < length and words != words[::-1])
            if wanted and source not in found and task.split_of(source) == "test":
                found[source] = (tokenizers.source.encode(source), tokenizers.target.encode(task.target(source)))
                break
        else:
            lengths.remove(length)
    return list(found.values())


def spread(first: int, last: int) -> list[int]:
    """Return at most `MOST_LENGTHS` integers, evenly spread from first to last; none if last is below first."""
    if last < first:
        return []
    count = min(MOST_LENGTHS, last - first + 1)
    return sorted({round(float(each)) for each in np.linspace(first, last, count)})


def real_pairs(encoded: Encoded, n: int, model: Transformer | None = None) -> list[tuple[list[int], list[int]]]:
    """Return the first `n` pairs; with `model`, fewer if its attention weights for them exceed `MOST_WEIGHTS`."""
    pairs = [(encoded.source[row], encoded.target[row]) for row in range(min(n, len(encoded)))]
    if model is None:
        return pairs
    while len(pairs) > 1 and len(pairs) * len(all_heads(model)) * longest(pairs) ** 2 > MOST_WEIGHTS:
        pairs = pairs[: len(pairs) // 2]
    return pairs


def longest(pairs: Pairs) -> int:
    """Return the number of tokens of the longest side, plus two special ones."""
    return 2 + max(max(len(source), len(target)) for source, target in pairs)


def windows(recipe: Recipe, split: TextSplit, tokenizers: Tokenizers, n: int, model: Transformer) -> list[Batch]:
    """Return up to `n` evenly spread windows of a text as batches for the run's objective.

    `MOST_WEIGHTS` and `MOST_TOKENS` limit their number.
    """
    width = recipe.data.window
    most = max(1, min(MOST_WEIGHTS // (len(all_heads(model)) * (width + 2) ** 2), MOST_TOKENS // width))
    last = max(len(split.tokens) - width - 1, 0)
    starts = np.unique(np.linspace(0, last, min(n, most, last // width + 1)).astype(np.int64))
    reader = reader_of(recipe.data, tokenizers.target, SCORED_WITH)
    length = min(width, len(split.tokens) - 1)
    return [
        reader.batch(split.tokens, starts[first : first + BATCH], length, step=first)
        for first in range(0, len(starts), BATCH)
    ]


Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
"""(source, target) as ids, without special tokens."""


@dataclass(frozen=True)
class Probe:
    """Data to diagnose the heads of a model with."""

    name: str
    """For example "reverse/test/distinct"."""
    own: Batch
    """The sequences on which roles are scored; except in texts, no token repeats within a sequence."""
    control: Batch | None
    """Sequences with repeated tokens; None if those in `own` have them."""
    scored: Sequence[Batch]
    """What the model answers with all heads and without some."""
    objective: Objective
    """The targets of a batch."""
    metric: str = "exact_match"
    """The metric of the answers: exact_match, accuracy (of labels) or token_accuracy."""
    ids: range = range(0)
    """The ids of ordinary tokens, for figures computed from weights."""

    @property
    def n_sequences(self) -> int:
        """The number of sequences on which roles are scored."""
        return len(self.own.tokens)

    @property
    def text(self) -> str:
        """A description: how many sequences of how many tokens, special ones included, and their origin."""
        read = (self.own.tokens, self.own.keep) if self.own.source is None else (self.own.source, self.own.source_keep)
        tokens = torch.full((self.n_sequences,), read[0].shape[1]) if read[1] is None else read[1].sum(1)
        first, last = int(tokens.min()), int(tokens.max())
        long = f"{first}" if first == last else f"{first} to {last}"
        return f"{self.n_sequences} sequences of {long} tokens ({self.name})"


def pairs_probe(
    name: str,
    own: Pairs,
    control: Pairs | None,
    scored: Pairs,
    collate: Callable[[Pairs], Batch],
    objective: Objective,
    ids: range,
    *,
    metric: str = "exact_match",
    batch_size: int = 128,
) -> Probe:
    """Make the probe of a model that answers sources; `collate` makes a batch of pairs in the model's layout."""
    if not own or not scored:
        raise ConfigError(f"A probe needs at least one sequence; {name} has none. Give pairs to diagnose with.")
    rows = sorted(scored, key=lambda pair: len(pair[0]))  # by length, so that batches have little padding
    batches = [collate(rows[first : first + batch_size]) for first in range(0, len(rows), batch_size)]
    return Probe(name, collate(own), collate(control) if control else None, batches, objective, metric, ids)


def induction_probe(
    ids: range, lengths: Sequence[int], n: int = 400, *, begin: int | None = BOS, seed: int = 0
) -> Probe:
    """Make the induction probe: n rows <bos> s s with random tokens s (Olsson et al. 2022), all lengths equally often.

    No token repeats within s if `ids` has enough. In the second half, an induction head reads what came after the same
    token in the first half; there the model must predict the next token. `begin` None: without <bos>.
    """
    draw = random.Random(seed)
    halves = [drawn(draw, ids, lengths[row % len(lengths)]) for row in range(n)]
    own = Batch(*pad([[*([] if begin is None else [begin]), *half, *half] for half in halves]))
    return Probe("induction", own, None, [own], next_of_repeated, "token_accuracy", ids)


def drawn(draw: random.Random, ids: range, length: int) -> list[int]:
    """Draw `length` different ids or, if there are too few, all of them and some again."""
    again = draw.choices(ids, k=max(length - len(ids), 0))
    return [*draw.sample(ids, length - len(again)), *again]


def next_of_repeated(batch: Batch) -> Targets:
    """Ask for the next token after each token that has occurred before in its row."""
    targets = next_token(batch)
    same = targets.inputs[:, :, None] == targets.inputs[:, None, :]
    return only(targets, (same & torch.ones_like(same).tril(-1)).any(-1))


def only(targets: Targets, where: Bool[Tensor, "N T"]) -> Targets:
    """Restrict targets to some positions."""
    return targets._replace(keep=where if targets.keep is None else where & targets.keep)


# Measuring all heads on a probe: the scores of roles, figures that need no role, and whether a head copies.

# Whether a head copies, that is raises the logits of tokens it attends to: from its weights and from its output.

ROWS = 2048
"""How many tokens have their logits computed at once."""


class Circuit(NamedTuple):
    """The OV circuit of one head, from a token it reads to logits: W_E W_V W_output W_U (Elhage et al. 2021)."""

    read: Float[Tensor, "V K"]
    """W_E W_V."""
    written: Float[Tensor, "K V"]
    """W_output W_U."""

    def eigenvalue_score(self) -> float:
        """Return sum(lambda) / sum |lambda| over the eigenvalues, -1 to 1: near 1, tokens raise their own logits.

        The V x V product has the same nonzero eigenvalues as the K x K product in the reverse order.
        """
        values = torch.linalg.eigvals((self.written @ self.read).cpu().double())
        return float(values.sum().real) / max(float(values.abs().sum()), 1e-300)

    def diagonal_share(self) -> float:
        """Return the share of tokens whose own logit is the largest in their row."""
        hits = 0
        for first in range(0, len(self.read), ROWS):
            own = torch.arange(first, min(first + ROWS, len(self.read)), device=self.read.device)
            hits += int(((self.read[own] @ self.written).argmax(-1) == own).sum())
        return hits / len(self.read)


def circuit(model: Transformer, found: Map, head: int, ids: range) -> Circuit | None:
    """Return the circuit of a head over the tokens `ids`, or None if it does not read or write such tokens.

    Norms, positions and all other layers are ignored, as in the papers. An encoder below a decoder has no circuit: the
    output head does not read its vectors.
    """
    if not answers(model, found) or not isinstance(model.head, TokenHead):
        return None
    crossing = found.block == "cross"
    stack = model.encoder if crossing or found.block == "encoder" else model.decoder
    if stack is None or not isinstance(stack.embedding, Embedding):
        return None
    if crossing and not model.config.one_vocabulary:
        return None
    attention, K = found.attention, found.attention.d_head
    group = head * found.v.shape[1] // found.weights.shape[1]
    values = attention.value.weight[group * K : (group + 1) * K]
    embedded, unembedded = stack.embedding.weight[ids.start : ids.stop], model.head.weight[ids.start : ids.stop]
    with torch.no_grad():
        return Circuit(embedded @ values.T, found.columns[:, head].T @ unembedded.T)


def answers(model: Transformer, found: Map) -> bool:
    """Whether a head is in the stack whose vectors the output head reads."""
    return model.decoder is None or found.block != "encoder"


def written_share(model: Transformer, found: Map, view: View) -> Float[Tensor, " H"] | None:
    """Return the share of queries for which the token with the largest weight is the one that the head raises most.

    The head's output is mapped directly to logits, through the gain of the final norm (direct logit attribution, after
    Olsson et al. 2022); the norm's divisor does not change which token is raised most.
    """
    if not answers(model, found) or not isinstance(model.head, TokenHead):
        return None
    if found.block == "cross" and not model.config.one_vocabulary:
        return None
    queries = several(found.allowed, view.counted)
    if not bool(queries.any()):
        return None
    largest = largest_key(found.weights, found.allowed)
    read = view.keys[:, None, :].expand(*largest.shape[:2], -1).gather(-1, largest)
    real = view.real[:, None, :].expand(*largest.shape[:2], -1).gather(-1, largest) & queries[:, None]
    return torch.stack([_share(model, found, head, read[:, head], real[:, head]) for head in range(read.shape[1])])


def _share(
    model: Transformer, found: Map, head: int, read: Int[Tensor, "N T"], queries: Bool[Tensor, "N T"]
) -> Float[Tensor, ""]:
    if not bool(queries.any()):
        return torch.tensor(float("nan"))
    with torch.no_grad():
        given = found.output[:, head][queries] @ found.columns[:, head].T
        given = gained(model, given)
        assert isinstance(model.head, TokenHead)
        likeliest = torch.cat([(rows @ model.head.weight.T).argmax(-1) for rows in given.split(ROWS)])
    return (likeliest == read[queries]).cpu().double().mean()


def gained(model: Transformer, vectors: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """Multiply stream vectors by the gain of the final norm; for a LayerNorm, subtract their mean first."""
    norm = model.reader.last_norm
    if isinstance(norm, LayerNorm):
        vectors = vectors - vectors.mean(-1, keepdim=True)
    gain = getattr(norm, "weight", None)
    return vectors if gain is None else vectors * gain


# Measuring all heads on a probe: the scores of roles, and figures that need no role.


@dataclass(frozen=True)
class Measured:
    """The figures of one head on a probe."""

    scores: Mapping[str, Figures]
    """By role."""
    more: Mapping[str, float]
    """entropy (nats), entropy_norm, confidence, sink; total, the sum of the rule's own weights of a query; for
    self-attention, distance and distance_signed."""
    by_value: Mapping[str, float]
    """Corrected score of each role, with weights multiplied by the norm of what they move."""


class Read(NamedTuple):
    """A batch as the heads of a model read it: attention maps and views."""

    maps: list[Map]
    views: dict[str, View]


def read(model: Transformer, batch: Batch, objective: Objective) -> Read:
    """Return the maps of a batch and what their rows and columns stand for, on the model's device."""
    batch = batch.to(next(model.parameters()).device)
    targets = objective(batch)
    return Read(maps(model, batch, targets), views(batch, targets))


def measure(own: Read, control: Read | None, between: Callable[[], None]) -> dict[Head, Measured]:
    """Measure every head.

    In `own`, no token repeats within a sequence, so that reading by position is not taken for reading by token; in
    `control`, tokens repeat. Roles that need repeats are scored on the control, all others on `own` and again on the
    control. `between` is called before each map.
    """
    found: dict[Head, Measured] = {}
    again = {(each.block, each.layer): each for each in control.maps} if control else {}
    for each in own.maps:
        between()
        view = own.views[each.block]
        scores = tallied(each, view, repeats=control is None)
        other: dict[str, Scored] = {}
        if control is not None:
            other = tallied(again[each.block, each.layer], control.views[each.block], repeats=True)
        sizes = value_weighted(each.weights, each.v, each.columns)
        moved = {name: t.score() for name, t in tallies(view, sizes, each.allowed, repeats=False).items()}
        general = generic(each, view)
        for head in range(each.weights.shape[1]):
            figures = {
                name: of_head(pooled, head, other.get(name) if name in scores and control else None)
                for name, pooled in {**{n: s for n, s in other.items() if ROLES[n].needs_repeats}, **scores}.items()
            }
            by_value = {name: float(score.corrected[head]) for name, score in moved.items() if score is not None}
            more = {name: float(values[head]) for name, values in general.items()}
            found[each.block, each.layer, head] = Measured(figures, more, by_value)
    return found


Scored = tuple[Score, dict[int, Score]]
"""A role's score for all heads of an attention, overall and for each length."""


def tallied(found: Map, view: View, *, repeats: bool) -> dict[str, Scored]:
    """Return the scores of every role that can be recognised, by name."""
    scores: dict[str, Scored] = {}
    for name, each in tallies(view, found.weights, found.allowed, repeats=repeats).items():
        if (pooled := each.score()) is not None:
            scores[name] = pooled, each.by_length(view.length)
    return scores


def of_head(scored: Scored, head: int, control: Scored | None) -> Figures:
    """Return the figures of one head."""
    pooled, lengths = scored
    return Figures(
        float(pooled.mass[head]),
        float(pooled.argmax[head]),
        pooled.chance,
        float(pooled.corrected[head]),
        pooled.n_queries,
        {n: float(score.corrected[head]) for n, score in lengths.items()},
        None if control is None else float(control[0].corrected[head]),
    )


def generic(found: Map, view: View) -> dict[str, Float[Tensor, " H"]]:
    """Return the figures that need no role; see `Measured.more`."""
    weights, allowed, counted = found.weights, found.allowed, view.counted
    nothing = weights.new_zeros(weights.shape[1])
    at_sinks = tally(weights, sink(view), allowed, counted).score()
    more = {
        "entropy": entropy(weights, allowed, counted),
        "entropy_norm": entropy(weights, allowed, counted, normalised=True),
        "confidence": confidence(weights, allowed, counted, view.keys == EOS),
        "sink": nothing if at_sinks is None else at_sinks.mass,
        "total": mean_over(found.total, several(allowed, counted)),
    }
    if not view.crossing:
        more["distance"] = distance(weights, counted)
        more["distance_signed"] = distance(weights, counted, signed=True)
    return more


def group_share(found: Sequence[Map], view: View, role: str, heads: Sequence[Head]) -> float | None:
    """Return the mean over queries of the largest weight that any of these heads puts on a role's keys.

    So two heads that each serve half of the queries fully have the role together. None if no query is scored.
    """
    predicted = ROLES[role].predict(view)
    own = [(each, head) for each in found for block, layer, head in heads if (block, layer) == (each.block, each.layer)]
    if predicted is None or not own:
        return None
    queries = own[0][0].allowed.sum(-1).gt(1) & view.counted & (predicted & own[0][0].allowed).any(-1)
    masses = [(each.weights[:, head] * predicted).sum(-1) for each, head in own]
    best = masses[0]
    for mass in masses[1:]:
        best = best.maximum(mass)
    return float(best[queries].mean()) if bool(queries.any()) else None
