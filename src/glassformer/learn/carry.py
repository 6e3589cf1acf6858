"""Reads how a learner's transformer is built, carries its weights into ours, and compares values and gradients.

What a part is follows from what was called and in which order, not from attribute names. What the order of calls leaves
open (which of three maps is the query, relu or gelu, whether embeddings are scaled) is decided by the numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.shapes import Tensor
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.attention import first
from glassformer.proof.check.calling import built_either, is_norm, listening, means, role_of

SIZES = {"source_vocab": 13, "target_vocab": 11, "d_model": 24, "n_heads": 4, "n_layers": 2, "d_ff": 40, "max_len": 20}
"""The sizes at which a model is read; all that could be confused differ."""
CLOSE = 1e-9
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
PAD = 0


class Called(NamedTuple):
    """One module with parameters of its own that was called: its name, its kind, and what came in."""

    name: str
    kind: str
    module: Any
    given: Tensor
    gave: Tensor


class Entry(NamedTuple):
    """One of our tensors, the learner's that holds it, and which of its rows (None: all)."""

    ours: str
    theirs: str
    rows: Tensor | None = None


@dataclass(frozen=True)
class Reading:
    """How the learner's model is built, and where each of our tensors is in it."""

    config: ModelConfig
    entries: tuple[Entry, ...]
    fused: bool

    def sentence(self) -> str:
        """Say it in one sentence."""
        stack = self.config.stack
        norm = {"post": "post-norm", "pre": "norm first"}[stack.norm_placement]
        maps = "one map for query, key and value" if self.fused else "separate maps for query, key and value"
        both = self.config.encoder, self.config.decoder
        layers = " + ".join(str(each.n_layers) for each in both if each)
        scaled = "scaled" if self.config.scale_embeddings else "unscaled"
        return f"yours: {norm}, {stack.activation}, {layers} layers, {maps}, {scaled} embeddings"

    def carried(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the learner's tensors (weights or gradients) under our names."""
        return {
            each.ours: tensors[each.theirs] if each.rows is None else tensors[each.theirs][each.rows]
            for each in self.entries
        }

    def ours(self, model: nn.Module) -> Transformer:
        """Return our model with the learner's weights, in the same dtype."""
        made = Transformer(self.config).to(next(model.parameters()).dtype).eval()
        made.load_state_dict(self.carried(dict(model.named_parameters())))
        return made


class Batch(NamedTuple):
    """A batch with padding in source and target; labels are one place ahead."""

    source: Tensor
    keep: Tensor
    target: Tensor
    labels: Tensor

    @classmethod
    def drawn(cls, sizes: Mapping[str, int]) -> Batch:
        """Return a batch of three rows, of which two are padded."""
        draw = torch.Generator().manual_seed(5)
        source = torch.randint(3, sizes["source_vocab"], (3, 7), generator=draw)
        target = torch.randint(3, sizes["target_vocab"], (3, 6), generator=draw)
        keep = torch.arange(7) < torch.tensor([7, 4, 5])[:, None]
        labels = target.roll(-1, 1).masked_fill(torch.arange(6) >= torch.tensor([5, 5, 3])[:, None], PAD)
        return cls(source.masked_fill(~keep, PAD), keep, target, labels)

    def row(self, number: int) -> Batch:
        """Return one row alone, without its padding."""
        n = int(self.keep[number].sum())
        at = slice(number, number + 1)
        return Batch(self.source[at, :n], self.keep[at, :n], self.target[at], self.labels[at])


class Learner(nn.Module):
    """The learner's model, called as ours is: what an argument is follows from its name, as in `glassformer check`.

    For the training loop, the vectors that its head reads are the logits.
    """

    def __init__(self, kind: Any, sizes: Mapping[str, int]) -> None:
        super().__init__()
        common = {name: sizes[name] for name in ("source_vocab", "target_vocab", "d_model", "n_heads", "n_layers")}
        more = {name: sizes[name] for name in ("d_ff", "max_len")}
        self.model = built_either(kind, common, more, {"decoder_layers": sizes["n_layers"], "dropout": 0.0})
        names = [*inspect.signature(self.model.forward).parameters][2:]
        self.causal = next((name for name in names if means(name, "target_mask")), None)
        others = [name for name in names if name != self.causal and (means(name, "memory_mask") or "keep" in name)]
        self.keep = others[0] if others else None
        self.config = SimpleNamespace(encoder=None, decoder=None)  # no stacks of ours, whose experts would be counted
        self.encoder = self.decoder = None
        self.head = nn.Identity()

    def forward(self, source: Tensor, target: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return the logits. A model that takes the causal mask is given it; a mask of the source is [B, 1, 1, S]."""
        masks: dict[str, Tensor] = {}
        if self.causal is not None:
            length = target.shape[1]
            masks[self.causal] = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
        if self.keep is not None and keep is not None:
            masks[self.keep] = keep if "keep" in self.keep else keep[:, None, None]
        return first(self.model(source, target, **masks))

    def hidden(self, tokens: Tensor, *, source: Tensor, source_keep: Tensor | None = None, **_: Any) -> Tensor:
        """Return the logits for a batch of pairs, as the training loop asks for them."""
        return self(source, tokens, source_keep)


def theirs_on(model: nn.Module, batch: Batch) -> Tensor:
    """Return the logits of the learner's model."""
    return model(batch.source, batch.target, batch.keep)


def ours_on(model: Transformer, batch: Batch) -> Tensor:
    """Return the logits of ours."""
    return model(batch.target, source=batch.source, source_keep=batch.keep)


def calls(model: nn.Module, batch: Batch) -> list[Called]:
    """Return the calls of all modules that have parameters of their own, in order."""
    with torch.no_grad(), listening(model, lambda part: bool([*part.parameters(recurse=False)])) as heard:
        theirs_on(model, batch)
    return [Called(each.name, kind_of(each.module, each.given), *each[1:]) for each in heard]


def kind_of(module: nn.Module, given: Tensor) -> str:
    """Return "linear", "norm" or "embedding". Errors: `DataError` for a module that is none of them."""
    shapes = [each.shape for each in module.parameters(recurse=False)]
    if is_norm(module) and all(len(each) == 1 for each in shapes):
        return "norm"
    if isinstance(module, nn.Linear):
        return "linear"
    if not given.is_floating_point() and [len(each) for each in shapes] == [2]:
        return "embedding"
    raise DataError(
        f"Your {type(module).__name__} has parameters of its own and is no nn.Linear, no norm (by its class name) and "
        "no embedding, so its weights cannot be carried over. Build it from nn.Linear."
    )


def read(model: nn.Module, sizes: Mapping[str, int] = SIZES) -> Reading:
    """Return how a learner's model (float64, evaluation mode) is built. Errors: `DataError` that says what is odd.

    Its tables of positions are made exact.
    """
    exact_tables(model, sizes)
    batch = Batch.drawn(sizes)
    every = calls(model, batch)
    starts = [number for number, each in enumerate(every) if each.kind == "embedding"]
    if len(starts) != 2:
        raise DataError(f"Your model calls {len(starts)} embeddings instead of two: one for source, one for target.")
    encoder, decoder = every[starts[0] : starts[1]], every[starts[1] :]
    *decoder, head = decoder
    if head.kind != "linear" or head.gave.shape[-1] != sizes["target_vocab"]:
        raise DataError("The last part of your model must be a linear map to the words of the target.")
    stacks = [stack_of(side, part, sizes) for side, part in (("encoder", encoder), ("decoder", decoder))]
    candidates: list[Reading] = []
    with torch.no_grad():
        wanted = theirs_on(model, batch)
        named = stacks[0].roles
        for order, by_head, activation, scaled in product(
            [named] if named else [*permutations(range(3))],
            (False, True) if stacks[0].fused else (False,),
            ACTIVATIONS,
            (True, False),
        ):
            found = reading(stacks, order, by_head, activation, scaled, head, sizes)
            if float((ours_on(found.ours(model), batch) - wanted)[batch_real(batch)].abs().max()) < CLOSE:
                return found
            candidates.append(found)
    return max(candidates, key=lambda each: first_gap(model, each.ours(model), each, batch)[0])


def batch_real(batch: Batch) -> Tensor:
    """Return which places of the target count: those that have a label."""
    return batch.labels != PAD


class Stacked(NamedTuple):
    """One stack as it was read: embedding, blocks of attentions, feed-forwards and norms, and a last norm or none."""

    side: str
    embedding: Called
    attentions: list[list[Called]]
    feeds: list[list[Called]]
    norms: list[Called]
    last: Called | None
    first: bool
    """Whether the norm comes before the branch."""
    fused: bool
    roles: tuple[int, ...] | None
    """At which place query, key and value are, if their names say so."""


def stack_of(side: str, part: Sequence[Called], sizes: Mapping[str, int]) -> Stacked:
    """Return the parts of one stack. Errors: `DataError` where their number is odd."""
    width, inner, layers = sizes["d_model"], sizes["d_ff"], sizes["n_layers"]
    branches = 2 if side == "encoder" else 3
    norms = [each for each in part if each.kind == "norm"]
    linear = [each for each in part if each.kind == "linear"]
    groups = [[*group] for inside, group in groupby(linear, lambda each: inner in shape_of(each)) if inside]
    rows = [[*group] for inside, group in groupby(linear, lambda each: inner in shape_of(each)) if not inside]
    attentions = [each for row in rows for each in attentions_of(row, width)]
    odd = len(groups) != layers or any(len(each) != 2 for each in groups)
    if odd or len(attentions) != layers * (branches - 1) or len(norms) - layers * branches not in (0, 1):
        raise DataError(
            f"Your {side} cannot be read: {layers} blocks should call {layers * branches} norms (or one more) and "
            f"two maps for each feed-forward, and two or four for each attention; it calls {len(norms)} norms and "
            f"{len(linear)} maps. Is a layer not run, or a map of another kind than nn.Linear?"
        )
    last = norms.pop() if len(norms) > layers * branches else None
    names = [role_of(each.name) for each in attentions[0][:3]]
    roles = tuple(names.index(role) for role in "qkv") if {*"qkv"} <= {*names} else None
    first = [each.kind for each in part[1:2]] == ["norm"]
    fused = shape_of(attentions[0][0])[0] == 3 * width
    return Stacked(side, part[0], attentions, groups, norms, last, first, fused, None if fused else roles)


def attentions_of(row: Sequence[Called], width: int) -> Iterator[list[Called]]:
    """Yield the calls of each attention: one map for all three, called once or for each input, or three; and the last.

    Errors: `DataError` where they are not complete.
    """
    left = [*row]
    while left:
        fused = shape_of(left[0])[0] == 3 * width
        size = sum(each.module is left[0].module for each in left[:3]) if fused else 3
        if len(left) <= size:
            raise DataError(
                f"An attention of yours calls {len(left)} linear maps; expected: query, key, value, output."
            )
        yield left[: size + 1]
        left = left[size + 1 :]


def shape_of(each: Called) -> tuple[int, ...]:
    """Return the widths of a linear map."""
    return tuple(each.module.weight.shape)


def reading(
    stacks: Sequence[Stacked],
    order: Sequence[int],
    by_head: bool,
    activation: str,
    scaled: bool,
    head: Called,
    sizes: Mapping[str, int],
) -> Reading:
    """Return a reading under assumptions about what the order of calls leaves open."""
    encoder, decoder = (
        StackConfig(
            d_model=sizes["d_model"],
            n_heads=sizes["n_heads"],
            n_layers=sizes["n_layers"],
            d_ff=sizes["d_ff"],
            dropout=0.0,
            norm_placement="pre" if each.first else "post",
            final_norm=each.last is not None,
            norm_eps=float(getattr(each.norms[0].module, "eps", 1e-5)),
            activation=activation,
            max_len=sizes["max_len"],
            bias=each.attentions[0][0].module.bias is not None,
        )
        for each in stacks
    )
    config = ModelConfig(
        vocab_size=sizes["target_vocab"],
        source_vocab_size=sizes["source_vocab"],
        encoder=encoder,
        decoder=replace(decoder, causal=True),
        tie_embeddings=False,
        share_embeddings=False,
        scale_embeddings=scaled,
        head_bias=head.module.bias is not None,
    )
    entries = [each for stack in stacks for each in entries_of(stack, order, by_head, sizes)]
    entries += both("head", head.name, head.module)
    return Reading(config, tuple(entries), stacks[0].fused)


def entries_of(stack: Stacked, order: Sequence[int], by_head: bool, sizes: Mapping[str, int]) -> Iterator[Entry]:
    """Yield where each of our tensors of one stack is in the learner's model."""
    [(table, _)] = stack.embedding.module.named_parameters(recurse=False)
    yield Entry(f"{stack.side}.embedding.weight", f"{stack.embedding.name}.{table}")
    branches = ("self_attention", "feed_forward")
    if stack.side == "decoder":
        branches = ("self_attention", "cross_attention", "feed_forward")
    attentions, norms = iter(stack.attentions), iter(stack.norms)
    for layer, feed in enumerate(stack.feeds):
        for branch in branches:
            place = f"{stack.side}.blocks.{layer}.{branch}"
            yield from norm_entries(f"{place}.norm_{'in' if stack.first else 'sum'}", next(norms))
            if branch == "feed_forward":
                for ours, part in zip(("up", "down"), feed, strict=True):
                    yield from both(f"{place}.branch.{ours}", part.name, part.module)
                continue
            *maps, output = next(attentions)
            yield from both(f"{place}.branch.output", output.name, output.module)
            for number, role in enumerate(("query", "key", "value")):
                if stack.fused:
                    rows = rows_of(order[number], by_head, sizes)
                    yield from both(f"{place}.branch.{role}", maps[0].name, maps[0].module, rows)
                else:
                    part = maps[order[number]]
                    yield from both(f"{place}.branch.{role}", part.name, part.module)
    if stack.last is not None:
        yield from norm_entries(f"{stack.side}.norm", stack.last)


def rows_of(third: int, by_head: bool, sizes: Mapping[str, int]) -> Tensor:
    """Return the rows of a fused map that make one of query, key and value: a third, or a third of each head's."""
    width, heads = sizes["d_model"], sizes["n_heads"]
    rows = torch.arange(3 * width)
    return rows.view(heads, 3, -1)[:, third].flatten() if by_head else rows.view(3, -1)[third]


def both(ours: str, theirs: str, module: nn.Module, rows: Tensor | None = None) -> list[Entry]:
    """Return the entries of a linear map: weight, and bias if it has one."""
    names = [name for name in ("weight", "bias") if getattr(module, name) is not None]
    return [Entry(f"{ours}.{name}", f"{theirs}.{name}", rows) for name in names]


def norm_entries(ours: str, part: Called) -> list[Entry]:
    """Return the entries of a norm: the vector that multiplies is called `weight` or stands first."""
    names = [name for name, _ in part.module.named_parameters(recurse=False)]
    names.sort(key=lambda name: name in ("bias", "beta", "shift", "b_2"))
    return [
        Entry(f"{ours}.{each}", f"{part.name}.{name}") for each, name in zip(("weight", "bias"), names, strict=False)
    ]


def exact_tables(model: nn.Module, sizes: Mapping[str, int]) -> None:
    """Give the learner's tables of positions, made in float32, the digits that float64 has room for."""
    width, rows = sizes["d_model"], sizes["max_len"]
    rates = 10000 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    for buffer in model.buffers():
        if not buffer.is_floating_point() or buffer.shape[-1:] != (width,) or buffer.numel() < rows * width:
            continue
        angles = torch.arange(buffer.numel() // width)[:, None] * rates
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
        if (buffer.double().view_as(table) - table)[:rows].abs().max() < 1e-4:
            buffer.copy_(table.view_as(buffer))


class Comparison(NamedTuple):
    """The largest gaps between the learner's model and ours."""

    values: float
    gradients: float
    alone: float
    """Between each row alone and the same row in the batch, in the learner's model."""
    where: str
    """The first part whose input differs, if values do."""

    @property
    def equal(self) -> bool:
        """Whether all gaps are below the bound."""
        return max(self.values, self.gradients, self.alone) < CLOSE


def compare(model: nn.Module, found: Reading, sizes: Mapping[str, int] = SIZES) -> Comparison:
    """Compare logits, the gradient of the loss for each parameter, and each row alone, in float64."""
    ours, batch = found.ours(model), Batch.drawn(sizes)
    real = batch_real(batch)
    results: list[tuple[Tensor, dict[str, Tensor]]] = []
    for part, run in ((model, theirs_on), (ours, ours_on)):
        logits = run(part, batch)  # pyright: ignore[reportArgumentType]
        loss = nn.functional.cross_entropy(logits[real], batch.labels[real])
        part.zero_grad()
        loss.backward()
        grads = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in part.named_parameters()}
        results.append((logits.detach(), grads))
    (mine, gradients), (wanted, expected) = results
    carried = found.carried(gradients)
    steepest = max(float((carried[name] - each).abs().max()) for name, each in expected.items())
    with torch.no_grad():
        rows = [batch.row(number) for number in range(len(batch.source))]
        alone = max(
            float((theirs_on(model, row)[0] - mine[number])[real[number]].abs().max())
            for number, row in enumerate(rows)
        )
    values = float((mine - wanted)[real].abs().max())
    return Comparison(values, steepest, alone, first_gap(model, ours, found, batch)[1] if values >= CLOSE else "")


def first_gap(model: nn.Module, ours: Transformer, found: Reading, batch: Batch) -> tuple[int, str]:
    """Return the first part that does not receive the same in both models: its place in order, and its name in ours."""
    names = {each.theirs.rpartition(".")[0]: each.ours.rpartition(".")[0] for each in reversed(found.entries)}
    seen: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        def note(_: nn.Module, given: tuple[Any, ...]) -> None:
            seen.setdefault(name, given[0])

        return note

    wanted = {*names.values()}
    hooks = [each.register_forward_pre_hook(hook(name)) for name, each in ours.named_modules() if name in wanted]
    with torch.no_grad():
        ours_on(ours, batch)
    for each in hooks:
        each.remove()
    every = calls(model, batch)
    for place, each in enumerate(every):
        other = seen.get(names.get(each.name, ""))
        if other is None or other.shape != each.given.shape or each.kind == "embedding":
            continue
        side = batch.keep if each.given.shape[1] == batch.keep.shape[1] else batch_real(batch)
        if side.shape == each.given.shape[:2] and (each.given - other)[side].abs().max() > CLOSE:
            return place, names[each.name]
    return len(every), "head"
