"""The limit that memory sets to generating a single text: every token needs all weights, and all keys and values, once.

Finding the largest of as many integers as have their bytes reads as much and does little else. A program that reads
them once per token cannot generate tokens faster than this can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from glassformer import Transformer
from glassformer.nn.attention import Attention


def limits(
    model: Transformer, of_weight: int, of_cache: int, read: float, steps: int
) -> dict[str, Callable[[], object]]:
    """Return runs that read what so many steps do after `read` tokens, with so many bytes per number."""
    weighs, keeps = weights(model) * of_weight, cached(model) * of_cache
    columns = read + (steps - 1) / 2  # that a step reads, on average
    return {
        "reading the weights": reads(weighs, steps),
        "reading weights and cache": reads(weighs + keeps * columns, steps),
    }


def reads(n_bytes: float, times: int) -> Callable[[], object]:
    """Return a run that reads so many bytes, so many times."""
    integers = torch.ones(max(1, int(n_bytes) // 4), dtype=torch.int32)

    def run() -> None:
        for _ in range(times):
            integers.amax()

    return run


def weights(model: Transformer) -> int:
    """Return how many weights a step multiplies: all linear maps and the head.

    Not the embedding, of which a step reads one row.
    """
    maps = [each.weight for each in model.modules() if isinstance(each, nn.Linear)]
    return sum(each.numel() for each in [*maps, model.head.weight])


def cached(model: Transformer) -> int:
    """Return how many numbers the keys and values of one token have, in all layers of a decoder without an encoder."""
    attentions = [each for each in model.modules() if isinstance(each, Attention)]
    return sum(2 * each.n_kv_heads * each.d_head for each in attentions)
