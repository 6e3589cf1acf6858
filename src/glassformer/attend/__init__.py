"""Floor 1: attention as functions of (q, k, v, mask), without parameters.

A rule is what is computed, a backend is how. Every rule has a `reference`, the equation written out; each other
backend of the rule equals it in value and gradient.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from glassformer.attend.auto import auto, pick
from glassformer.attend.mask import Mask
from glassformer.attend.matmul import matmul
from glassformer.attend.reference import attention_weights, reference
from glassformer.attend.sdpa import sdpa
from glassformer.attend.value_bias import ValueBias
from glassformer.foundation.shapes import Tensor

__all__ = ["ATTEND", "Attend", "Mask", "ValueBias", "attention_weights", "pick"]


@runtime_checkable
class Attend(Protocol):
    """attend(q, k, v, mask, *, scale, dropout): [B, H, T, K] from q [B, H, T, K], k and v [B, G, S, K]."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        """The attended values."""
        ...


ATTEND: dict[str, dict[str, Attend]] = {
    "softmax": {"auto": auto, "reference": reference, "matmul": matmul, "sdpa": sdpa},
}
