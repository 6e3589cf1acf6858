"""Measuring how much worse a model answers without some of its heads, with confidence intervals."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.data.batch import Batch
from glassformer.lens.ablate import Head, Means, silence
from glassformer.nn.heads import SequenceHead
from glassformer.nn.observe import Evaluation
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import hidden, likeliest
from glassformer.train.objective import Objective, Targets

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
        self.asked = [objective(batch) for batch in self.batches]
        self._kept: list[Kept] | None = None

    def outcomes(self, heads: Iterable[Head] = (), kind: str = "zero", means: Means | None = None) -> Outcomes:
        """Return how correct the answers are without these heads."""
        chosen = list(heads)
        found: list[Outcomes] = []
        with torch.no_grad(), Evaluation(self.model):
            if self._kept is None:
                self._kept = [
                    keep(self.model, batch, asked) for batch, asked in zip(self.batches, self.asked, strict=True)
                ]
            with silence(self.model, chosen, kind, means=means):
                for batch, asked, kept in zip(self.batches, self.asked, self._kept, strict=True):
                    found.append(outcomes(self.model, self._vectors(chosen, batch, asked, kept), asked))
        return Outcomes(*(torch.cat(each).cpu() for each in zip(*found, strict=True)))

    def _vectors(self, chosen: Sequence[Head], batch: Batch, asked: Targets, kept: Kept) -> Tensor:
        """Compute the vectors that the output head reads, starting at the first block with a silenced head."""
        below = min((layer for block, layer, _ in chosen if block == "encoder"), default=None)
        above = min((layer for block, layer, _ in chosen if block != "encoder"), default=None)
        encoder = self.model.encoder
        if encoder is not None and below is not None:
            with beginning_at(encoder, below, kept.encoder[below]):
                return hidden(self.model, batch, asked)
        decoder = self.model.decoder
        if decoder is not None and above is not None:
            with beginning_at(decoder, above, kept.decoder[above]):
                return hidden(self.model, batch, asked, kept.memory)
        return hidden(self.model, batch, asked, kept.memory)


class Kept(NamedTuple):
    """The input of each block of each stack, and the encoder's memory, for one batch."""

    encoder: list[Float[Tensor, "N S D"]]
    decoder: list[Float[Tensor, "N T D"]]
    memory: Float[Tensor, "N S D"] | None


def keep(model: Transformer, batch: Batch, asked: Targets) -> Kept:
    """Run a forward pass and return the inputs of all blocks."""
    kept = Kept([], [], None)
    with listening(model.encoder, kept.encoder), listening(model.decoder, kept.decoder):
        if model.encoder is not None and model.decoder is not None and batch.source is not None:
            kept = kept._replace(memory=model.encode(batch.source, batch.source_keep))
        hidden(model, batch, asked, kept.memory)
    return kept


@contextmanager
def listening(stack: Stack | None, kept: list[Tensor]) -> Generator[None]:
    """Append the input of each block to `kept`, for the length of the `with` block."""
    if stack is None:
        yield
        return
    with ExitStack() as hooks:
        for block in stack.blocks:
            hooks.callback(block.register_forward_pre_hook(lambda _, given: kept.append(given[0])).remove)
        yield


@contextmanager
def beginning_at(stack: Stack, layer: int, kept: Float[Tensor, "N T D"]) -> Generator[None]:
    """Skip blocks before `layer`, which reads `kept` instead, for the length of the `with` block."""
    own = stack.blocks
    stack.blocks = own[layer:]
    hook = own[layer].register_forward_pre_hook(lambda _, given: (kept,))
    try:
        yield
    finally:
        hook.remove()
        stack.blocks = own


def outcomes(model: Transformer, vectors: Float[Tensor, "N T D"], asked: Targets) -> Outcomes:
    """Return whether the most likely token, or label, is the correct one."""
    if isinstance(model.head, SequenceHead):
        right = (model.head(vectors, asked.inputs_keep).argmax(-1) == asked.ids).to(vectors.dtype)
        return Outcomes(right, right)
    keep = torch.ones_like(asked.ids, dtype=torch.bool) if asked.keep is None else asked.keep
    right = torch.zeros_like(keep)
    right[keep] = likeliest(model.head, vectors[keep]) == asked.ids[keep]
    share = right.sum(1) / keep.sum(1).clamp(min=1)
    return Outcomes((right | ~keep).all(1).to(vectors.dtype), share.to(vectors.dtype))


def resampled(n: int, *, draws: int = DRAWS, seed: int = 0) -> Float[Tensor, "M N"]:
    """Draw n sequences with replacement, `draws` times; return how often each was drawn, as a share (Efron 1979)."""
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randint(n, (draws, n), generator=generator)
    counts = torch.zeros(draws, n, dtype=torch.float64)
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
