"""Putting the rows of an imported model's vocabulary into the order of our ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from glassformer.data.tokens.vocabulary import EOS, SPECIALS
from glassformer.model.config import ModelConfig
from glassformer.parts.vocabulary import NEVER

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
