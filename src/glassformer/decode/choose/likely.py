"""The most likely tokens of each row and their log-probabilities: all that a beam search needs to look at."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.foundation.shapes import Float, Int, Tensor


class Candidates(NamedTuple):
    """Tokens of each row, most likely first."""

    ids: Int[Tensor, "rows k"]
    log_p: Float[Tensor, "rows k"]
    """In nats, normalised over the whole vocabulary; -inf for forbidden tokens."""


def likeliest(logits: Float[Tensor, "rows V"], k: int) -> Candidates:
    """Return the `k` most likely tokens of each row, or all if there are fewer.

    Sums over the vocabulary are in float32 or wider. Results are on the CPU, where the search uses them and float64 is
    always available.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    best = wide.topk(min(k, wide.shape[-1]))
    values = best.values.cpu().double()
    log_p = values - wide.logsumexp(-1, keepdim=True).cpu().double()
    return Candidates(best.indices.cpu(), log_p.masked_fill(values.isneginf(), -torch.inf))
