"""Ablating (silencing) heads: for the length of a `with`, their outputs are replaced; and what a model loses by it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Queries, Tensor, Weights
from glassformer.base.typed import expect
from glassformer.data.batch import Batch
from glassformer.nn.attention import Attend, Attention
from glassformer.nn.heads import SequenceHead
from glassformer.nn.mask import Mask
from glassformer.nn.observe import Attended, Evaluation, attentions, watch_attention
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import hidden, likeliest, loss_of
from glassformer.train.objective import Objective, Targets

# The place of a head (the kind of its block, its layer, its number) and its short name.

LETTERS = {"encoder": "e", "decoder": "d", "cross": "x"}
"""The kinds of attention, and the letters with which their heads' short names begin."""
ORDER = tuple(LETTERS)


def place(name: str) -> tuple[str, int]:
    """Return kind ("encoder", "decoder" or "cross") and layer, from 0, of an attention by its name in `observe`.

    Errors: `ConfigError` for a name that no attention can have.

    >>> place("decoder.blocks.1.cross_attention")
    ('cross', 1)
    """
    match name.split("."):
        case [("encoder" | "decoder") as stack, "blocks", layer, "self_attention"] if layer.isdecimal():
            return stack, int(layer)
        case ["decoder", "blocks", layer, "cross_attention"] if layer.isdecimal():
            return "cross", int(layer)
        case _:
            raise ConfigError(
                f"An attention has the name that observe() gives it; got {name!r}. "
                "Try 'decoder.blocks.0.cross_attention'."
            )


def head_id(block: str, layer: int, head: int) -> str:
    """Return the short name of a head: e.L.H (encoder), d.L.H (decoder) or x.L.H (cross), all counted from 0.

    >>> head_id("cross", 1, 3)
    'x.1.3'
    """
    return f"{LETTERS[block]}.{layer}.{head}"


# Recording every attention of a model on a batch: its weights, its mask, its values and its output.


class Map(NamedTuple):
    """The recording of one attention."""

    block: str
    """"encoder", "decoder" or "cross"."""
    layer: int
    attention: Attention
    weights: Float[Tensor, "N H T S"]
    """Normalised weights: a row sums to 1, or to 0 if it reads nothing, whatever the attention rule."""
    total: Float[Tensor, "N H T"]
    """The sum of the rule's own weights for each query: 1 except for rules like sigmoid and softmax_plus_one."""
    allowed: Bool[Tensor, "N T S"]
    v: Float[Tensor, "N G S K"]
    output: Float[Tensor, "N H T K"]
    """The output of each head, before the output projection."""

    @property
    def columns(self) -> Float[Tensor, "D H K"]:
        """The output projection, split by heads."""
        return columns_of(self.attention)


def columns_of(attention: Attention) -> Float[Tensor, "D H K"]:
    """Return the output projection of an attention, split by heads."""
    return attention.output.weight.detach().unflatten(1, (-1, attention.d_head))


def maps(model: Transformer, batch: Batch, targets: Targets) -> list[Map]:
    """Run a forward pass on a batch's targets and return all attentions: encoder, decoder, cross, by layer."""
    found: dict[str, Map] = {}

    def note(call: Attended) -> None:
        weights = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)
        N, _, T, S = weights.shape
        total = weights.sum(-1)
        weights = weights / total.clamp(min=torch.finfo(total.dtype).tiny)[..., None]
        allowed = call.mask.allowed(T, S, weights.device)
        may = weights.new_ones(N, T, S, dtype=torch.bool) if allowed is None else allowed[:, 0].expand(N, T, S)
        found[call.name] = Map(*place(call.name), call.attention, weights, total, may, call.v, call.output)

    with torch.no_grad(), watch_attention(model, note):
        hidden(model, batch, targets)
    return sorted(found.values(), key=lambda each: (ORDER.index(each.block), each.layer))


Seen = dict[str, Weights]
"""Module name, as in "decoder.blocks.1.cross_attention", to the weights of the last forward."""


@contextmanager
def observe(model: Transformer) -> Generator[Seen]:
    """Collect every attention's weights [B, H, T, S] under its own rule, for the length of the `with`.

    Outputs are computed as usual, so logits are bit-equal; the weights are computed separately by the rule's equation,
    before dropout. Rows of softmax and linear attention sum to 1, or to 0 if all keys are masked. Afterwards the model
    is exactly as before.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer, observe
    >>> model = Transformer(ModelConfig(vocab_size=9, decoder=StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)))
    >>> with observe(model) as seen:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> {name: tuple(weights.shape) for name, weights in seen.items()}
    {'decoder.blocks.0.self_attention': (1, 2, 3, 3)}
    """
    expect(model, nn.Module, "The argument of observe()", "Give it the model: with observe(model) as seen.")
    seen: Seen = {}

    def note(call: Attended) -> None:
        seen[call.name] = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)

    with watch_attention(model, note):
        yield seen


# Ablating (silencing) heads: for the length of a `with`, their outputs are replaced; all else is computed as usual.

Head = tuple[str, int, int]
"""Kind of block ("encoder", "decoder", "cross"), layer and head number, both from 0."""
Means = Mapping[tuple[str, int], Float[Tensor, "H K"]]
"""The mean outputs of the heads of an attention, by kind of block and layer."""
KINDS = ("zero", "mean", "resample")
Replace = Callable[[Queries], Queries]


@contextmanager
def silence(
    model: nn.Module, heads: Iterable[Head], kind: str = "zero", *, means: Means | None = None, seed: int = 0
) -> Generator[None]:
    """Replace the outputs of these heads, for the length of the `with`, by "zero", their "mean" or a "resample".

    zero: no output (Michel et al. 2019, section 2.3: xi = 0). mean: their mean output (`mean_outputs`), so that later
    parts read numbers of the usual size. resample: their output for another sequence of the batch at the same position,
    drawn by `seed`; it needs rows of one length. Errors: `ConfigError` for a head that the model does not have.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer, silence
    >>> model = Transformer(ModelConfig(vocab_size=9, decoder=StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)))
    >>> before = model(torch.tensor([[1, 7, 8]]))
    >>> with silence(model, [("decoder", 0, 1)]):
    ...     bool(torch.equal(model(torch.tensor([[1, 7, 8]])), before))
    False
    """
    lookup(dict.fromkeys(KINDS), kind, "kind")
    chosen = by_attention(model, heads)
    with through({each: _replacement(kind, *where, means, seed) for each, where in chosen.items()}):
        yield


@contextmanager
def through(replace: Mapping[Attention, Replace]) -> Generator[None]:
    """Pass the heads' outputs of these attentions, before the output projection, through a function, in the `with`.

    Each attention's `attend` is swapped, and restored afterwards even after an exception.
    """
    before = {each: each.attend for each in replace}
    try:
        for attention, function in replace.items():
            attention.attend = _after(attention.attend, function)
        yield
    finally:
        for attention, attend in before.items():
            attention.attend = attend


def by_attention(model: nn.Module, heads: Iterable[Head]) -> dict[Attention, tuple[tuple[str, int], list[int]]]:
    """Return the attentions of these heads, each with its place and the head numbers. Errors: `ConfigError`."""
    there = by_place(model)
    found: dict[Attention, tuple[tuple[str, int], list[int]]] = {}
    for head in heads:
        match head:  # a text such as "x.0.1" is no sequence here
            case (block, layer, number) if (block, layer) in there and number in range(n_heads(there[block, layer])):
                found.setdefault(there[block, layer], ((block, layer), []))[1].append(number)
            case _:
                raise ConfigError(
                    f"A head is (block, layer, head), counted from 0, as in ('decoder', 0, 1); got {head!r}, which "
                    f"this model does not have. It has {known(there)}."
                )
    return found


def by_place(model: nn.Module) -> dict[tuple[str, int], Attention]:
    """Return every attention of a model by kind of block and layer."""
    return {place(name): attention for name, attention in attentions(model).items()}


def all_heads(model: nn.Module) -> list[Head]:
    """Return every head of a model: encoder, decoder, then cross-attention, layer by layer."""
    there = by_place(model)
    order = sorted(there, key=lambda each: (ORDER.index(each[0]), each[1]))
    return [(*each, number) for each in order for number in range(n_heads(there[each]))]


def n_heads(attention: Attention) -> int:
    """Return H, the number of heads of an attention."""
    return attention.query.out_features // attention.d_head


def known(there: Mapping[tuple[str, int], Attention]) -> str:
    """Return the heads of a model in short, like "e.0.0 to e.0.3, d.0.0 to d.1.3"."""
    found: list[str] = []
    for block in ORDER:
        layers = [layer for kind, layer in there if kind == block]
        if layers:
            last = n_heads(there[block, max(layers)]) - 1
            found.append(f"{head_id(block, min(layers), 0)} to {head_id(block, max(layers), last)}")
    return ", ".join(found)


def mean_outputs(outputs: Iterable[tuple[tuple[str, int], Float[Tensor, "N H T K"], Tensor]]) -> Means:
    """Return the mean output of each head over the counted queries [N, T] of all sequences.

    `outputs` has, for each attention, its place, its output by head before the output projection, and which queries
    count.
    """
    return {
        where: torch.einsum("nhtk,nt->hk", output, counted.to(output.dtype)) / counted.sum()
        for where, output, counted in outputs
    }


def _replacement(kind: str, where: tuple[str, int], numbers: list[int], means: Means | None, seed: int) -> Replace:
    if kind == "mean" and (means is None or where not in means):
        raise ConfigError("kind='mean' replaces heads by their mean; got means=None. Give means=mean_outputs(...).")

    def replace(output: Tensor) -> Tensor:
        other = output.clone()
        if kind == "zero":
            other[:, numbers] = 0.0
        elif kind == "mean":
            assert means is not None
            other[:, numbers] = means[where][numbers][None, :, None].to(output)
        else:
            draw = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(output), generator=draw).to(output.device)
            for number in numbers:
                other[rows, number] = output[rows.roll(1), number]
        return other

    return replace


def _after(own: Attend, replace: Replace) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return replace(own(q, k, v, mask, scale=scale, dropout=dropout))

    return attend


# Measuring how much worse a model answers without some of its heads, with confidence intervals.

DRAWS = 2000


class Outcomes(NamedTuple):
    """How correct the answers to N sequences are."""

    exact: Float[Tensor, " N"]
    """1 where all tokens of the answer are correct.

    Each token is predicted after the correct ones before it. Greedy decoding makes its first error at the same place,
    so this is the exact match of greedy decoding.
    """
    places: Float[Tensor, " N"]
    """Share of correct tokens, in [0, 1]."""

    def of(self, metric: str) -> Float[Tensor, " N"]:
        """Return the outcomes for the name of a metric."""
        return self.exact if metric == "exact_match" else self.places


class Effect(NamedTuple):
    """A metric with all heads (`base`) and without some (`value`) on the same sequences; shares in [0, 1]."""

    kind: str
    metric: str
    base: float
    value: float
    interval: tuple[float, float]
    """95 % confidence interval of `value`."""
    drop: tuple[float, float]
    """95 % confidence interval of base - value, from paired draws."""
    n: int


class Scored:
    """Batches that a model answers repeatedly; blocks before the first silenced head are computed only once."""

    def __init__(self, model: Transformer, batches: Sequence[Batch], objective: Objective) -> None:
        device = next(model.parameters()).device
        self.model, self.batches = model, [batch.to(device) for batch in batches]
        self.targets = [objective(batch) for batch in self.batches]
        self._kept: list[Kept] | None = None

    def outcomes(self, heads: Iterable[Head] = (), kind: str = "zero", means: Means | None = None) -> Outcomes:
        """Return how correct the answers are without these heads."""
        chosen = list(heads)
        found: list[Outcomes] = []
        with torch.no_grad(), Evaluation(self.model):
            if self._kept is None:
                self._kept = [
                    keep(self.model, batch, targets) for batch, targets in zip(self.batches, self.targets, strict=True)
                ]
            with silence(self.model, chosen, kind, means=means):
                for batch, targets, kept in zip(self.batches, self.targets, self._kept, strict=True):
                    found.append(outcomes(self.model, self._vectors(chosen, batch, targets, kept), targets))
        return Outcomes(*(torch.cat(each).cpu() for each in zip(*found, strict=True)))

    def effect(
        self,
        base: Outcomes,
        heads: Iterable[Head],
        metric: str,
        drawn: Tensor | None = None,
        kind: str = "zero",
        means: Means | None = None,
    ) -> Effect:
        """Compare the outcomes with all heads and without these; `drawn` is that of `compare`."""
        return compare(base.of(metric), self.outcomes(heads, kind, means).of(metric), kind, metric, drawn)

    def _vectors(self, chosen: Sequence[Head], batch: Batch, targets: Targets, kept: Kept) -> Tensor:
        """Compute the vectors that the output head reads, starting at the first block with a silenced head."""
        below = min((layer for block, layer, _ in chosen if block == "encoder"), default=None)
        above = min((layer for block, layer, _ in chosen if block != "encoder"), default=None)
        encoder = self.model.encoder
        if encoder is not None and below is not None:
            with beginning_at(encoder, below, kept.encoder[below]):
                return hidden(self.model, batch, targets)
        decoder = self.model.decoder
        if decoder is not None and above is not None:
            with beginning_at(decoder, above, kept.decoder[above]):
                return hidden(self.model, batch, targets, kept.memory)
        return hidden(self.model, batch, targets, kept.memory)


class Kept(NamedTuple):
    """What each block of each stack reads, what its last block writes, and the encoder's memory, for one batch."""

    encoder: list[Float[Tensor, "N S D"]]
    decoder: list[Float[Tensor, "N T D"]]
    memory: Float[Tensor, "N S D"] | None


def keep(model: Transformer, batch: Batch, targets: Targets) -> Kept:
    """Run a forward pass and return the inputs of all blocks."""
    kept = Kept([], [], None)
    with recorded_stream(model.encoder, kept.encoder), recorded_stream(model.decoder, kept.decoder):
        if model.encoder is not None and model.decoder is not None and batch.source is not None:
            kept = kept._replace(memory=model.encode(batch.source, batch.source_keep))
        hidden(model, batch, targets, kept.memory)
    return kept


@contextmanager
def recorded_stream(stack: Stack | None, kept: list[Float[Tensor, "B T D"]]) -> Generator[None]:
    """Append to `kept` what the first block of a stack reads and what each block writes, while the `with` runs."""

    def note(block: nn.Module, given: object, x: Tensor) -> None:
        kept.append(x)

    with ExitStack() as hooks:
        for number, block in enumerate(() if stack is None else stack.blocks):
            if number == 0:
                hooks.callback(block.register_forward_pre_hook(lambda _, given: kept.append(given[0])).remove)
            hooks.callback(block.register_forward_hook(note).remove)
        yield


class Skipped(nn.Module):
    """In place of a block: what it is given goes on as it is."""

    def forward(self, x: Float[Tensor, "N T D"], *_: object, **__: object) -> Float[Tensor, "N T D"]:
        """x."""
        return x


@contextmanager
def beginning_at(stack: Stack, layer: int, kept: Float[Tensor, "N T D"]) -> Generator[None]:
    """Skip blocks before `layer`, which reads `kept` instead, for the length of the `with` block."""
    own = stack.blocks
    stack.blocks = nn.ModuleList([*[Skipped()] * layer, *own[layer:]])
    hook = own[layer].register_forward_pre_hook(lambda _, given: (kept, *given[1:]))
    try:
        yield
    finally:
        hook.remove()
        stack.blocks = own


def outcomes(model: Transformer, vectors: Float[Tensor, "N T D"], targets: Targets) -> Outcomes:
    """Return whether the most likely token, or label, is the correct one."""
    if isinstance(model.head, SequenceHead):
        right = (model.head(vectors, targets.inputs_keep).argmax(-1) == targets.ids).to(vectors.dtype)
        return Outcomes(right, right)
    keep = torch.ones_like(targets.ids, dtype=torch.bool) if targets.keep is None else targets.keep
    right = torch.zeros_like(keep)
    right[keep] = likeliest(model.head, vectors[keep]) == targets.ids[keep]
    share = right.sum(1) / keep.sum(1).clamp(min=1)
    return Outcomes((right | ~keep).all(1).to(vectors.dtype), share.to(vectors.dtype))


def resampled(n: int) -> Float[Tensor, "M N"]:
    """Draw n sequences with replacement, `DRAWS` times; return how often each was drawn, as a share (Efron 1979)."""
    generator = torch.Generator().manual_seed(0)
    picked = torch.randint(n, (DRAWS, n), generator=generator)
    counts = torch.zeros(DRAWS, n, dtype=torch.float64)
    return counts.scatter_add_(1, picked, torch.ones_like(counts)) / n


def compare(
    base: Float[Tensor, " N"],
    value: Float[Tensor, " N"],
    kind: str,
    metric: str,
    drawn: Float[Tensor, "M N"] | None = None,
) -> Effect:
    """Return both means with paired bootstrap intervals: each draw takes the same sequences from both.

    `drawn` comes from `resampled`. If all figures are equal, for instance if every answer is wrong, the interval has no
    width; 3/n then bounds the true share.
    """
    drawn = resampled(len(base)) if drawn is None else drawn
    before, after = drawn @ base.double(), drawn @ value.double()
    return Effect(
        kind, metric, float(base.double().mean()), float(value.double().mean()), middle(after), middle(before - after),
        len(base),
    )  # fmt: skip


def middle(values: Float[Tensor, " M"]) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile."""
    low, high = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    return low, high


# Estimating each head's importance for the loss by gradients: one backward pass instead of one ablation per head.


def gradient_importance(model: Transformer, batches: Sequence[Batch], objective: Objective) -> dict[Head, float]:
    """Return I_h = mean over x of |d L(x) / d xi_h|, where xi_h = 1 scales head h's output (Michel et al. 2019, eq. 2).

    The absolute value is taken per sequence, as opposite signs would cancel over a batch. Sequences do not attend to
    each other, so one backward pass of the summed loss gives the gradient of each. As in the paper, each attention's
    values are divided by their l2 norm, so they are at most 1.
    """
    with Evaluation(model):
        raw = per_sequence(model, batches, objective)
    sizes = {where: each.abs().mean(0) for where, each in raw.items()}
    return {
        (*where, head): float(size[head] / size.norm().clamp(min=torch.finfo(size.dtype).tiny))
        for where, size in sizes.items()
        for head in range(len(size))
    }


def per_sequence(
    model: Transformer, batches: Sequence[Batch], objective: Objective
) -> dict[tuple[str, int], Float[Tensor, "N H"]]:
    """Return d L(x) / d xi_h of each sequence x, by attention; L is the summed loss of the sequence's targets."""
    watched = by_place(model)
    found: dict[tuple[str, int], list[Tensor]] = {where: [] for where in watched}
    device = next(model.parameters()).device
    for batch in (each.to(device) for each in batches):
        gates = {
            where: torch.ones(len(batch.tokens), n_heads(each), 1, 1).to(each.output.weight).requires_grad_()
            for where, each in watched.items()
        }
        with through({each: gates[where].mul for where, each in watched.items()}):
            loss = loss_of(model, batch, objective).objective
        for where, gradient in zip(gates, torch.autograd.grad(loss, list(gates.values())), strict=True):
            found[where].append(gradient[:, :, 0, 0])
    return {where: torch.cat(each) for where, each in found.items()}
