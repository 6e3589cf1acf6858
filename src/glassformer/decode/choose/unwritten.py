"""Which special tokens a model never writes: one rule for answers, texts and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK
from glassformer.decode.choose.context import Context, Filter
from glassformer.foundation.shapes import Float, Tensor


def unwritten(layout: str, *, ends: bool = True) -> list[int]:
    """The ids that a model of this layout never writes.

    <pad> and <bos> surround texts but are in none. <unk> stands for text that the vocabulary lacks: in an answer it
    says nothing, and no target ever equals it. <eos> ends a text, unless the model was trained on text without `ends`.
    A decoder-only model never learned to write <sep> and <blank>; an encoder-decoder did if it was trained on hidden
    spans, each of which begins after a <sep>. An encoder fills each blank with a token of the text.
    """
    if layout == "encoder":
        return [*range(len(SPECIALS))]
    never = [PAD, BOS, UNK]
    never += [SEP, BLANK] if layout == "decoder" else []
    return never if ends else [*never, EOS]


def without(ids: Sequence[int]) -> Filter:
    """Make a filter that forbids these ids."""

    def forbidden(logits: Float[Tensor, "B V"], _: Context) -> Float[Tensor, "B V"]:
        return forbid(logits, ids)

    return forbidden


def forbid(logits: Float[Tensor, "*B V"], ids: Sequence[int]) -> Float[Tensor, "*B V"]:
    """Return the logits, with -inf for these ids."""
    return logits.index_fill(-1, torch.tensor([*ids], dtype=torch.long, device=logits.device), -math.inf)
