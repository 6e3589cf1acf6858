"""Ablating (silencing) heads: for the length of a `with`, their outputs are replaced; all else is computed as usual."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.shapes import Float, Tensor
from glassformer.lens.blocks import head_id, place
from glassformer.nn.attention import Attend, Attention
from glassformer.nn.mask import Mask
from glassformer.nn.observe import attentions

Head = tuple[str, int, int]
"""Kind of block ("encoder", "decoder", "cross"), layer and head number, both from 0."""
Means = Mapping[tuple[str, int], Float[Tensor, "H K"]]
"""The mean outputs of the heads of an attention, by kind of block and layer."""
KINDS = ("zero", "mean", "resample")
ORDER = ("encoder", "decoder", "cross")
Replace = Callable[[Float[Tensor, "B H T K"]], Float[Tensor, "B H T K"]]


@contextmanager
def silence(
    model: nn.Module, heads: Iterable[Head], kind: str = "zero", *, means: Means | None = None, seed: int = 0
) -> Generator[None]:
    """Replace the outputs of these heads, for the length of the `with`, by "zero", their "mean" or a "resample".

    zero: no output (Michel et al. 2019, section 2.3: xi = 0). mean: their mean output (`mean_outputs`), so that later
    parts read numbers of the usual size. resample: their output for another sequence of the batch at the same position,
    drawn by `seed`; it needs rows of one length. Each attention's `attend` is swapped, and restored afterwards even
    after an exception. Errors: `ConfigError` for a head that the model does not have.

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
    before = {each: each.attend for each in chosen}
    try:
        for attention, (where, numbers) in chosen.items():
            attention.attend = _replaced(attention.attend, _replacement(kind, where, numbers, means, seed))
        yield
    finally:
        for attention, attend in before.items():
            attention.attend = attend


def by_attention(model: nn.Module, heads: Iterable[Head]) -> dict[Attention, tuple[tuple[str, int], list[int]]]:
    """Return the attentions of these heads, each with its place and the head numbers. Errors: `ConfigError`."""
    there = {place(name): attention for name, attention in attentions(model).items()}
    found: dict[Attention, tuple[tuple[str, int], list[int]]] = {}
    for block, layer, number in heads:
        attention = there.get((block, layer))
        if attention is None or not 0 <= number < n_heads(attention):
            raise ConfigError(
                f"A head is (block, layer, head), counted from 0; got {(block, layer, number)!r}, "
                f"which this model does not have. It has {known(there)}."
            )
        found.setdefault(attention, ((block, layer), []))[1].append(number)
    return found


def all_heads(model: nn.Module) -> list[Head]:
    """Return every head of a model: encoder, decoder, then cross-attention, layer by layer."""
    there = {place(name): attention for name, attention in attentions(model).items()}
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


def _replaced(own: Attend, replace: Replace) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return replace(own(q, k, v, mask, scale=scale, dropout=dropout))

    return attend
