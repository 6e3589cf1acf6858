"""The most likely tokens of each row and their log-probabilities: all that a beam search needs to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.finite import check_numbers
from glassformer.decode.choose.unwritten import forbid
from glassformer.decode.prepare import Kernels


class Scores(NamedTuple):
    """The logits of a step, in float32 or wider, and the number to subtract for log-probabilities, in nats."""

    logits: Float[Tensor, "rows V"]
    whole: Float[Tensor, "rows 1"]
    """The logarithm of the sum of e^z over the whole vocabulary; on the CPU, which always has float64."""


class Candidates(NamedTuple):
    """Tokens of each row, most likely first; on the CPU, where the search uses them."""

    ids: Int[Tensor, "rows k"]
    log_p: Float[Tensor, "rows k"]
    """In nats, normalised as by `scored`; -inf for forbidden tokens."""


def scored(logits: Float[Tensor, "rows V"], never: Sequence[int] = (), kernels: Kernels | None = None) -> Scores:
    """Sum over the vocabulary, then forbid the ids of `never`.

    In this order, a log-probability is the model's own: what the model gives to a token that is never written is lost,
    as it is where a given text is scored (`read_back`).
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    whole = None if kernels is None else kernels.log_sums(wide)
    if whole is None:
        whole = wide.logsumexp(-1, keepdim=True).cpu().double()
    return Scores(forbid(wide, never) if never else wide, whole)


def check_summed(scores: Scores, logits: Float[Tensor, "rows V"], context: Context) -> None:
    """`check_numbers` for logits that were summed: their sum tells whether all of them need looking at."""
    if bool((scores.whole.isnan() | scores.whole.isposinf()).any()):
        check_numbers(logits, context)


def likeliest(scores: Scores, k: int, kernels: Kernels | None = None) -> Candidates:
    """Return the `k` most likely tokens of each row, or all if there are fewer."""
    k = min(k, scores.logits.shape[-1])
    found = None if kernels is None else kernels.largest(scores.logits, k)
    if found is None:
        values, ids = scores.logits.topk(k)
        found = values.cpu().double(), ids.cpu()
    values, ids = found
    return Candidates(ids, (values - scores.whole).masked_fill(values.isneginf(), -torch.inf))
