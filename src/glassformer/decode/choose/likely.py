"""The likeliest tokens of each row and their log-probabilities: all that a beam has to look at."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.foundation.shapes import Float, Int, Tensor


class Candidates(NamedTuple):
    """Tokens of each row, the likeliest first."""

    ids: Int[Tensor, "rows k"]
    log_p: Float[Tensor, "rows k"]
    """In nats, among all tokens; -inf where one may not come."""


def likeliest(logits: Float[Tensor, "rows V"], k: int) -> Candidates:
    """The `k` likeliest of each row, or all. The sum over the vocabulary is in float32 at least, and not kept.

    They are on the processor, where a search goes through them, and where there is float64: not every device has it.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    best = wide.topk(min(k, wide.shape[-1]))
    values = best.values.cpu().double()
    log_p = values - wide.logsumexp(-1, keepdim=True).cpu().double()
    return Candidates(best.indices.cpu(), log_p.masked_fill(values.isneginf(), -torch.inf))
