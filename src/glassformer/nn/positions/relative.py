"""Relative positions as vectors: one per distance, added to the keys and to the values that a query reads."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend import Mask, ValueBias
from glassformer.nn.positions.scheme import Positions, Relation


class Shaw(Positions):
    """Relative position representations (Shaw, Uszkoreit and Vaswani 2018), with separate tables for each layer."""

    def relation(self) -> Relation:
        """The tables of one layer."""
        return RelativeVectors(self.room.relative.clip_distance, self.room.d_head)


class RelativeVectors(Relation):
    """z_i = sum_j weight_ij (v_j + a^V_ij), with weights from scores q_i . (k_j + a^K_ij) * scale (equations 3 to 5).

    a_ij is row clip(j - i, -k, k) of a table (section 3.2). There is one table for keys and one for values, shared by
    all heads (section 3.3). q_i . a^K_ij is added to the scores, so that no vector per pair is ever held.
    """

    def __init__(self, clip_distance: int, d_head: int) -> None:
        super().__init__()
        self.clip_distance = clip_distance
        self.keys = nn.Parameter(torch.empty(2 * clip_distance + 1, d_head))
        self.values = nn.Parameter(torch.empty(2 * clip_distance + 1, d_head))

    def forward(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float) -> Mask:
        """Return the mask with q . a^K * scale added to its bias, and a^V as its value bias."""
        T, S = q.shape[-2], k.shape[-2]
        clip = self.clip_distance
        index = (-mask.back(T, S, q.device)).clamp(-clip, clip) + clip  # [T, S] or [B, T, S]
        rows = index if index.ndim == 3 else index[None]
        by_row = (q * scale) @ self.keys.to(q.dtype).mT  # [B, H, T, 2k + 1]
        bias = by_row.gather(-1, rows[:, None].expand(*q.shape[:2], T, S))
        return replace(
            mask, bias=bias if mask.bias is None else mask.bias + bias, value_bias=ValueBias(self.values, index)
        )
