"""Positions of the tokens of one forward pass: where each stands, which were before it, and of which document."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.base.shapes import Bool, Int, Tensor


class Step(NamedTuple):
    """The positions of the tokens of one forward pass, and of all keys."""

    positions: Int[Tensor, "*batch T"]
    keys: Int[Tensor, "*batch S"]
    """-1 where a column holds no key."""
    in_order: bool
    """Whether the queries are the last T of S consecutive keys, so that a mask needs no positions."""


def columns_before(step: Step, count: int, places: Int[Tensor, "*batch T"] | None = None) -> Int[Tensor, "N *batch T"]:
    """The columns of the `count` tokens before each new one; -1 for those before the first of its text.

    `places` are positions within documents; None: as the step's positions.
    """
    earlier = step.positions - steps_back(count, step.positions)
    if step.in_order:  # columns are positions
        return earlier.clamp(min=-1)
    # Up to each column the last real token's position, so the first column that reaches a position holds it.
    reached = step.keys.cummax(-1).values
    wide = earlier.movedim(0, -2).flatten(-2)
    columns = torch.searchsorted(reached, wide.contiguous()).unflatten(-1, (count, -1)).movedim(-2, 0)
    begun = earlier >= 0 if places is None else places >= steps_back(count, places)
    return torch.where(begun, columns, -1)


def steps_back(count: int, like: Int[Tensor, "*batch T"]) -> Int[Tensor, "N *ones"]:
    """1 to `count`, along a new first dimension."""
    return torch.arange(1, count + 1, device=like.device).view(-1, *[1] * like.ndim)


def whole(tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None) -> Step:
    """The step of a forward pass without a cache, where the keys are the tokens themselves."""
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    if keep is None:
        return Step(columns, columns, in_order=True)
    positions = keep.long().cumsum(1) - 1
    return Step(positions.clamp(min=0), torch.where(keep, positions, -1), in_order=False)


def within(documents: Int[Tensor, "B T"], keys: Int[Tensor, "*#B T"]) -> Int[Tensor, "B T"]:
    """Positions counted from the first real token of each document; a document begins where the number changes."""
    begins, real = torch.ones_like(documents, dtype=torch.bool), (keys >= 0).expand_as(documents).long()
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    counted = real.cumsum(1)
    return (counted - 1 - torch.where(begins, counted - real, 0).cummax(1).values).clamp(min=0)
