"""The limit that memory sets to generating a single text: every token needs all weights, once.

Finding the largest of as many integers as have the bytes of the weights reads as much and does little else. A program
that reads its weights once per token cannot generate tokens faster than this can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from glassformer import Transformer


def reads_weights(model: Transformer, bytes_each: int, tokens: int) -> Callable[[], object]:
    """Return a run that reads the weights of one step once per token.

    The float32 model says how many weights there are.
    """
    integers = torch.ones(max(1, weights(model) * bytes_each // 4), dtype=torch.int32)

    def run() -> None:
        for _ in range(tokens):
            integers.amax()

    return run


def weights(model: Transformer) -> int:
    """Return how many weights a step multiplies: all linear maps and the head.

    Not the embedding, of which a step reads one row.
    """
    maps = [each.weight for each in model.modules() if isinstance(each, nn.Linear)]
    return sum(each.numel() for each in [*maps, model.head.weight])
