"""What memory allows a program that writes one text: every token needs all weights, once.

A product of a vector and a float32 matrix that is as large as the weights in their precision reads as many bytes and
does little else. Nothing that reads its weights once a token writes faster than this is repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from glassformer import Transformer

WIDTH = 1024
"""Columns of the matrix."""


def reads_weights(model: Transformer, bytes_each: int, tokens: int) -> Callable[[], object]:
    """Read the weights of one step as often as there are tokens; the float32 model says how many weights there are."""
    matrix = torch.ones(max(1, weights(model) * bytes_each // (4 * WIDTH)), WIDTH)
    vector = torch.ones(WIDTH)

    def run() -> None:
        for _ in range(tokens):
            torch.mv(matrix, vector)

    return run


def weights(model: Transformer) -> int:
    """How many numbers a step multiplies: all linear maps and the head, not the embedding, of which it reads a row."""
    maps = [each.weight for each in model.modules() if isinstance(each, nn.Linear)]
    return sum(each.numel() for each in [*maps, model.head.weight])
