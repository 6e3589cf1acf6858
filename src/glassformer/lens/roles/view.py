"""What the queries and keys of an attention stand for: tokens, positions in the source, steps of the answer.

    source  x1 x2 x3 <eos>     tokens  <bos> y1 y2 y3          one stack  x1 x2 x3 <sep> <blank> <blank> <blank>
    rank     0  1  2   -       step      0    1  2  -          rank        0  1  2   -      -       -       -
                                                               step        -  -  -   -      0       1       2

A decoder without an encoder reads <bos> x <sep> y: the query at <sep> predicts y1, so it has step 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Int, Tensor
from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP, SPECIALS, UNK
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


def views(batch: Batch, asked: Targets) -> dict[str, View]:
    """Return the view for each kind of attention ("encoder", "decoder", "cross") on the batch.

    `asked` are the batch's targets: what the last stack reads and what it should predict.
    """
    inputs, outputs = asked.inputs, asked.ids
    if inputs.is_floating_point() or (batch.source is not None and batch.source.is_floating_point()):
        raise ConfigError("A role says which tokens a head reads; this model reads features. Use observe(model).")
    keep = torch.ones_like(inputs, dtype=torch.bool) if asked.inputs_keep is None else asked.inputs_keep
    real = ordinary(inputs) & keep
    wanted = torch.zeros_like(keep)
    if outputs.shape == inputs.shape:  # the model answers at each position, not once for the whole sequence
        wanted = ordinary(outputs) & (keep if asked.keep is None else asked.keep)
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
