"""What the queries and the keys of an attention stand for: tokens, places in the source, steps of the answer.

    source  x1 x2 x3 <eos>     tokens  <bos> y1 y2 y3          one stack  x1 x2 x3 <sep> <blank> <blank> <blank>
    rank     0  1  2   -       step      0    1  2  -          rank        0  1  2   -      -       -       -
                                                               step        -  -  -   -      0       1       2

A decoder alone reads <bos> x <sep> y: the query at <sep> writes y1, so it has step 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.data.batch import Batch
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP, SPECIALS, UNK
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Bool, Int, Tensor
from glassformer.train.objective import Targets

ABSENT = -1
"""Of a query that writes no token of the answer, and of a key that is none of the source."""


class View(NamedTuple):
    """What one kind of attention reads, of N sequences."""

    queries: Int[Tensor, "N T"]
    """Ids of the tokens at the queries."""
    keys: Int[Tensor, "N S"]
    """Ids of the tokens at the keys."""
    step: Int[Tensor, "N T"]
    """Which token of the answer a query writes, from 0."""
    rank: Int[Tensor, "N S"]
    """Which token of the source a key is, from 0."""
    outputs: Int[Tensor, "N T"] | None
    """Ids of the tokens that the queries write."""
    counted: Bool[Tensor, "N T"]
    """Queries that are asked: those that hold a token of the text, or write one."""
    real: Bool[Tensor, "N S"]
    """Keys that hold a token of the text: neither padding nor special."""
    crossing: bool
    """Whether queries and keys are two sequences."""

    @property
    def length(self) -> Int[Tensor, " N"]:
        """Tokens of the source; where nothing is said to be one, tokens in all."""
        ranked = (self.rank != ABSENT).sum(1)
        return torch.where(ranked > 0, ranked, self.real.sum(1))

    @property
    def sinks(self) -> Bool[Tensor, "N S"]:
        """<bos>, <sep> and <eos>; the first key of a row that has none of them."""
        special = is_one_of(self.keys, BOS, SEP, EOS)
        first = torch.zeros_like(special)
        first[:, 0] = True
        return torch.where(special.any(1, keepdim=True), special, first)

    def drop(self, rows: Bool[Tensor, " N"]) -> View:
        """Without some of the sequences."""
        kept = {name: each[~rows] for name, each in self._asdict().items() if isinstance(each, Tensor)}
        return self._replace(**kept)


def views(batch: Batch, asked: Targets) -> dict[str, View]:
    """The view of each kind of attention ("encoder", "decoder", "cross") that reads the batch.

    `asked` is what the batch asks for: what the last stack reads, and what it should write.
    """
    inputs, outputs = asked.inputs, asked.ids
    if inputs.is_floating_point() or (batch.source is not None and batch.source.is_floating_point()):
        raise ConfigError("Roles of heads are told by the tokens that they read; this model reads features.")
    keep = torch.ones_like(inputs, dtype=torch.bool) if asked.inputs_keep is None else asked.inputs_keep
    real = ordinary(inputs) & keep
    wanted = torch.zeros_like(keep)
    if outputs.shape == inputs.shape:  # an answer in each place, none for the whole sequence
        wanted = ordinary(outputs) & (keep if asked.keep is None else asked.keep)
    if batch.source is not None:
        return two_stacks(batch, inputs, outputs, wanted, real)
    behind = is_one_of(inputs, SEP).cumsum(1) > 0  # <sep> itself writes the first token of a decoder's answer
    step, rank = counted_up(wanted & behind), counted_up(real & ~behind)
    own = View(inputs, inputs, step, rank, outputs, real | (step != ABSENT), real, False)
    if bool(behind.any()):
        return {"encoder": own, "decoder": own}
    own = own._replace(outputs=None)  # each token stands for its own place
    return {"encoder": own._replace(step=rank), "decoder": own._replace(step=torch.full_like(rank, ABSENT))}


def two_stacks(batch: Batch, inputs: Tensor, outputs: Tensor, wanted: Tensor, real: Tensor) -> dict[str, View]:
    """Those of an encoder-decoder. The encoder's queries stand for their own place in the source."""
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
    """Where a token of the text stands; <unk> stands for one."""
    return (ids >= len(SPECIALS)) | (ids == UNK)


def is_one_of(ids: Int[Tensor, "N T"], *which: int) -> Bool[Tensor, "N T"]:
    """Where one of these ids stands."""
    return torch.isin(ids, torch.tensor(which, device=ids.device))


def counted_up(where: Bool[Tensor, "N T"]) -> Int[Tensor, "N T"]:
    """0, 1, 2, ... at the places in each row, `ABSENT` elsewhere."""
    return torch.where(where, where.long().cumsum(1) - 1, ABSENT)
