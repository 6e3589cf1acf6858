"""The rows of a vocabulary: those of an imported model in the order of our ids, and those that an export has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS
from glassformer.nn.config import ModelConfig
from glassformer.nn.heads import NEVER

INPUT, OUTPUT, BIAS = "decoder.embedding.weight", "head.weight", "head.bias"
"""Our names of the tensors of a decoder that have a row for each token."""


def reordered(
    config: ModelConfig, weights: Mapping[str, Tensor], rows: Sequence[int | None]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return config and weights of the same decoder with our ids: id i has their row `rows[i]`, zeros if that is None.

    Of the special tokens only <eos> is predicted; the others are `silent`. So every other token has the probability
    that it had there, if theirs has no special tokens but the end of a text.
    """
    index = torch.tensor([row or 0 for row in rows])
    empty = torch.tensor([row is None for row in rows])
    made = {
        name: each[index].masked_fill(empty[:, None], 0.0) if name in (INPUT, OUTPUT) else each
        for name, each in weights.items()
    }
    silent = [id for id in range(len(SPECIALS)) if id != EOS or rows[EOS] is None]
    made[BIAS] = torch.zeros(len(rows)).index_fill(0, torch.tensor(silent), NEVER)
    return replace(config, vocab_size=len(rows), silent=",".join(map(str, silent))), made


class Kept(NamedTuple):
    """The tokens of a model that its export has."""

    ids: list[int]
    """Our ids, in ascending order; the id of each in the export is its place here."""
    ends: list[int]
    """Our ids of special tokens that are the token <eos> there, as they have its rows."""
    silent: list[int]
    """Those of `ids` that our model never predicts, but that have a logit there."""

    def stands_for(self, id: int) -> int:
        """Our id of the token that a special token is there."""
        return EOS if id in self.ends else id

    def place(self, id: int) -> int | None:
        """The id of a special token there; None if there is none."""
        own = self.stands_for(id)
        return self.ids.index(own) if own in self.ids else None


def kept_rows(config: ModelConfig, weights: Mapping[str, Tensor], needed: Collection[int]) -> Kept:
    """Choose the tokens to export: all, except special ones that the model never predicts and that have no rows.

    They would get a logit there, and so a probability, as other libraries have no `silent`. The tokens `needed` are
    kept even so, because a tokenizer gives their ids.
    """
    tables = [weights[name] for name in (INPUT, OUTPUT) if name in weights]
    asked = [id for id in config.silent_ids if id < len(SPECIALS)]
    empty = [id for id in asked if id not in needed and not any(bool(each[id].any()) for each in tables)]
    others = [id for id in asked if id not in (*empty, EOS) and (id not in needed or id == BOS)]
    ends = [id for id in others if EOS not in empty and all(torch.equal(each[id], each[EOS]) for each in tables)]
    ids = [id for id in range(config.vocab_size or 0) if id not in (*empty, *ends)]
    return Kept(ids, ends, [id for id in config.silent_ids if id in ids])


def selected(config: ModelConfig, weights: Mapping[str, Tensor], kept: Kept) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return config and weights of the same decoder with the rows of these tokens."""
    made = {name: each[kept.ids] if name in (INPUT, OUTPUT) else each for name, each in weights.items() if name != BIAS}
    return replace(config, vocab_size=len(kept.ids), silent=""), made
