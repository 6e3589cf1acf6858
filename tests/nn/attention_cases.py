"""Queries, keys and values for tests of attention in C++."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.nn.positions import Rotation


class Case(NamedTuple):
    """Sizes of queries and keys: texts, heads, their groups, queries, keys, width of a head."""

    B: int = 2
    H: int = 4
    G: int = 2
    T: int = 9
    S: int = 9
    K: int = 8

    def inputs(self, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, as maps write them: the heads of a token side by side."""
        B, H, G, T, S, K = self
        shapes = ((B, T, H, K), (B, S, G, K), (B, S, G, K))
        q, k, v = (torch.randn(each, dtype=dtype).transpose(1, 2).requires_grad_() for each in shapes)
        return q, k, v


ONE = Case()


def turning(case: Case, layout: str | None, *, texts: bool = False, dtype: torch.dtype = torch.float64):
    """Angles for all but the last pair of a head's numbers; `texts`: others for each text."""
    if layout is None:
        return None
    angles = torch.randn(*((case.B,) if texts else ()), case.T, case.K // 2 - 1, dtype=dtype)
    return Rotation(1.1 * angles.cos(), 1.1 * angles.sin(), layout)
