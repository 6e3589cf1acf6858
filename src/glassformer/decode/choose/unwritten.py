"""Which special tokens stand in no text: one rule for all that write one, in answers, texts and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK
from glassformer.decode.choose.context import Context, Filter
from glassformer.foundation.shapes import Float, Tensor


def unwritten(layout: str, *, ends: bool = True) -> list[int]:
    """The ids that a model of this layout never writes.

    <pad> and <bos> are put around texts and stand in none, and <unk> is the hole where a text had what the vocabulary
    lacks: an answer that names it says nothing, and no target is ever equal to it. <eos> ends a text, unless the model
    learned from text without `ends`. <sep> and <blank> a decoder alone never learned to write; an encoder-decoder
    did where spans were hidden from it, each of which begins behind a <sep>. An encoder fills as many blanks as there
    are, each with a token of the text.
    """
    if layout == "encoder":
        return [*range(len(SPECIALS))]
    never = [PAD, BOS, UNK]
    never += [SEP, BLANK] if layout == "decoder" else []
    return never if ends else [*never, EOS]


def without(ids: Sequence[int]) -> Filter:
    """None of these ids comes."""

    def forbidden(logits: Float[Tensor, "B V"], _: Context) -> Float[Tensor, "B V"]:
        return logits.index_fill(-1, torch.tensor([*ids], dtype=torch.long, device=logits.device), -math.inf)

    return forbidden
