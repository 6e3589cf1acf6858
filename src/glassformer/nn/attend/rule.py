"""Attention rules: each is specified by its weights and has several backends that compute it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch.nn.functional as F

from glassformer.base.shapes import Tensor
from glassformer.nn.attend.mask import Mask
from glassformer.nn.attend.matmul import Normalise, matmul
from glassformer.nn.attend.reference import weighted_sum
from glassformer.nn.attend.sparse import FEW, pays, sparse


@runtime_checkable
class Attend(Protocol):
    """attend(q, k, v, mask, *, scale, dropout): [B, H, T, K] from q [B, H, T, K], k and v [B, G, S, K]."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        """The attended values."""
        ...


@runtime_checkable
class Weigh(Protocol):
    """weigh(q, k, mask, *, scale): the weights [B, H, T, S] that the rule gives to the values, before dropout."""

    def __call__(self, q: Tensor, k: Tensor, mask: Mask, *, scale: float) -> Tensor:
        """The weights."""
        ...


@runtime_checkable
class Pick(Protocol):
    """pick(device, T, S, mask): the backend that `auto` uses for a device type and two lengths, and the reason.

    `flexible`: whether FlexAttention supports the case (`obstacle` in nn/attend/flex.py). `dropout`: the probability on
    attention weights. A rule uses what its backends depend on.
    """

    def __call__(
        self, device: str, T: int, S: int, mask: Mask | None = None, *, flexible: bool = True, dropout: float = 0.0
    ) -> tuple[str, str]:
        """The backend's name and the reason."""
        ...


@dataclass(frozen=True)
class Rule:
    """What is computed (`weigh`), the backends that compute it, and which of them `auto` uses (`pick`)."""

    weigh: Weigh
    backends: Mapping[str, Attend]
    pick: Pick


def rule_of_scores(weigh: Weigh, normalise: Normalise) -> Rule:
    """Make a rule that differs from softmax only in how a row of scores becomes weights, with all its backends."""

    def reference(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return weighted_sum(F.dropout(weigh(q, k, mask, scale=scale), dropout), v, mask).to(q.dtype)

    def products(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return matmul(q, k, v, mask, scale=scale, dropout=dropout, normalise=normalise)

    def blocks(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return sparse(q, k, v, mask, scale=scale, dropout=dropout, normalise=normalise)

    def pick(
        device: str, T: int, S: int, mask: Mask | None = None, *, flexible: bool = True, dropout: float = 0.0
    ) -> tuple[str, str]:
        del flexible, dropout
        if mask is not None and pays(mask, T, S):
            return "sparse", FEW.format(device=device, T=T, S=S)
        return "matmul", f"on {device}: no fused kernel has this rule"

    def auto(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        name, _ = pick(q.device.type, q.shape[-2], k.shape[-2], mask)
        chosen = blocks if name == "sparse" else products
        return chosen(q, k, v, mask, scale=scale, dropout=dropout)

    return Rule(weigh, {"auto": auto, "reference": reference, "matmul": products, "sparse": blocks}, pick)
