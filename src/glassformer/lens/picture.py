"""Attention weights as text: a map whose shades show what each position reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from glassformer.foundation.shapes import Float, Tensor

SHADES = " ░▒▓█"


def sharpest_head(seen: Mapping[str, Float[Tensor, "B H T S"]], kind: str) -> tuple[str, int]:
    """The module of this kind ("cross_attention", "self_attention") and its head whose queries read most decidedly.

    Decided is a head whose largest weight, averaged over queries, is largest. `seen` is what `observe` collected.
    """
    best = {name: weights.amax(-1).mean((0, 2)) for name, weights in seen.items() if name.endswith(kind)}
    name = max(best, key=lambda each: float(best[each].max()))
    return name, int(best[name].argmax())


def heat_map(weights: Float[Tensor, "T S"], rows: Sequence[str], columns: Sequence[str]) -> str:
    """One line a query: its label, and for each key a shade, from blank (below 1/8) to full (from 7/8)."""
    margin, width = max(map(len, rows)), max(map(len, columns))
    levels = torch.clamp(weights * (len(SHADES) - 1) + 0.5, 0, len(SHADES) - 1).int().tolist()
    lines = [" " * margin + "  " + " ".join(f"{label:^{width}}" for label in columns)]
    for label, row in zip(rows, levels, strict=True):
        lines.append(f"{label:>{margin}}  " + " ".join(SHADES[level] * width for level in row))
    return "\n".join(lines)
