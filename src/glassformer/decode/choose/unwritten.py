"""Which special tokens a model never writes: one rule for answers, texts and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from glassformer.base.recording import constant
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK
from glassformer.decode.choose.context import ByLogits, Filter


def unwritten(left_to_right: bool = True, objective: str = "next_token", *, ends: bool = True) -> list[int]:
    """The ids that a model never writes, from left to right or in blanks, if it was trained with this objective.

    <pad> and <bos> surround texts but are in none, and <blank> stands only in what a model reads. <unk> stands for text
    that the vocabulary lacks: in an answer it says nothing, and no target ever equals it. <eos> ends a text, unless the
    model was trained on text without `ends`. <sep> stands between the hidden spans that T5's objective, "spans", asks
    for; no other target has it. An encoder fills each blank with a token of the text.
    """
    if not left_to_right:
        return [*range(len(SPECIALS))]
    never = [PAD, BOS, UNK, BLANK] if objective == "spans" else [PAD, BOS, UNK, SEP, BLANK]
    return never if ends else [*never, EOS]


def one_end(ids: Sequence[int]) -> Filter:
    """Make a filter that gives <eos> the probability of all tokens that end a text: its own, and that of `ids`."""

    def joined(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        whole = logits[..., [EOS, *ids]].logsumexp(-1, keepdim=True)
        return forbid(logits, ids).index_copy(-1, constant([EOS], torch.long, logits.device), whole)

    return ByLogits(joined)


def without(ids: Sequence[int]) -> Filter:
    """Make a filter that forbids these ids."""

    def forbidden(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return forbid(logits, ids)

    return ByLogits(forbidden)


def forbid(logits: Float[Tensor, "*B V"], ids: Sequence[int]) -> Float[Tensor, "*B V"]:
    """Return the logits, with -inf for these ids."""
    return logits.index_fill(-1, constant(ids, torch.long, logits.device), -math.inf)
