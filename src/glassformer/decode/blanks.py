"""Answers of an encoder-only model: all blanks of a row are filled at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.data.rows import pad
from glassformer.data.tokens.vocabulary import BLANK, SEP
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.finite import check_numbers
from glassformer.decode.choose.unwritten import forbid
from glassformer.decode.rows import check_sources, check_writes
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer


@torch.no_grad()
def fill_blanks(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    lengths: Sequence[int],
    never: Sequence[int] = (),
    numbers: Sequence[int] | None = None,
) -> list[list[int]]:
    """Answers of an encoder-only model: row i reads [source, <sep>, blanks] and fills its `lengths[i]` blanks at once.

    No blank gets an id of `never`. `numbers` name the rows in errors (None: their places in the call). Errors:
    `DataError`, also if a logit is NaN or +inf.
    """
    check_writes(model)
    check_sources(model, sources)
    device = next(model.parameters()).device
    rows = [[*source, SEP, *[BLANK] * length] for source, length in zip(sources, lengths, strict=True)]
    tokens, keep = pad(rows)
    with Evaluation(model):
        logits = model(tokens.to(device), keep=None if keep is None else keep.to(device))
    ids = forbid(logits, never).argmax(-1)
    highest = logits.gather(-1, ids[..., None])[..., 0]
    check_numbers(highest, Context(numbers or range(len(rows)), sources, []))
    filled = zip(ids.tolist(), rows, lengths, strict=True)
    return [each[len(row) - length : len(row)] for each, row, length in filled]
