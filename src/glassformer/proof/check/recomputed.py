"""Tests recomputation: a block that keeps nothing between its two passes, with the gradients of one that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import UNKNOWN, called, distance, drawn
from glassformer.proof.check.property import Fault, Mistake, ask, law

WIDTH = 8
LOST = Mistake(
    "the gradient is lost at the block",
    "The output is cut off from the block's weights or from its input, so nothing before it learns.",
    "Which of your two forward passes is recorded, and who calls backward on it?",
)
NOT_AGAIN = Mistake(
    "nothing is recomputed",
    "The block runs once, so all it made in between stays in memory until the backward pass.",
    "How often must the block run, if nothing inside it may be kept?",
)
OTHER_UNITS = Mistake(
    "the second forward drops other units",
    "Dropout draws anew in the second pass, so the gradient belongs to another output.",
    "What must be the same for both passes, besides the input?",
)


class Counted(nn.Module):
    """A block with dropout that counts how often it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop, self.count = nn.Parameter(drawn(WIDTH, WIDTH)), nn.Dropout(0.5), 0

    def forward(self, x: Tensor) -> Tensor:
        """Return a bent map of x, with dropout."""
        self.count += 1
        return self.drop((x @ self.weight).tanh())


class Recomputed:
    """The learner's `recomputed`, forwards and backwards, beside the block itself under the same seed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seen, self.slopes, self.count = self.run(training=True)
        self.wanted, self.right, _ = self.run(training=True, plain=True)

    def run(self, training: bool, plain: bool = False) -> tuple[Any, list[Tensor | None], int]:
        """Return the output, the gradients of x and of the weight, and how often the block ran."""
        block, x = Counted().train(training), drawn(2, 6, WIDTH).requires_grad_()
        torch.manual_seed(5)
        seen = block(x) if plain else called(self.function, {"block": block, "x": x})
        torch.manual_seed(6)
        if isinstance(seen, Tensor) and seen.requires_grad:
            ask(seen.square().sum().backward)
        return seen, [x.grad, block.weight.grad], block.count

    @law("The output is that of the block.")
    def value(self) -> Fault | None:
        seen = self.seen
        gap = distance(seen.detach(), self.wanted.detach()) if isinstance(seen, Tensor) else float("inf")
        return Fault(UNKNOWN, f"It differs from block(x) by {gap:.2g}.") if gap > 1e-9 else None

    @law("A gradient reaches input and weights.", "value")
    def gradient(self) -> Fault | None:
        missing = [name for name, each in zip(("x", "the block's weight"), self.slopes, strict=True) if each is None]
        return Fault(LOST, f"No gradient reaches {' and '.join(missing)}.") if missing else None

    @law("The block runs again in the backward pass.", "gradient")
    def again(self) -> Fault | None:
        evidence = f"Forwards and backwards, the block ran {self.count} time."
        return None if self.count > 1 else Fault(NOT_AGAIN, evidence)

    @law("Gradients are those of the block, with dropout too.", "again", name="slopes")
    def same_slopes(self) -> Fault | None:
        def gap(slopes: list[Tensor | None], right: list[Tensor | None]) -> float:
            return max(distance(x, y) for x, y in zip(slopes, right, strict=True) if x is not None and y is not None)

        off = gap(self.slopes, self.right)
        if off < 1e-9:
            return None
        plain = gap(self.run(training=False)[1], self.run(training=False, plain=True)[1])
        evidence = f"With dropout, gradients are {off:.2g} off, without it {plain:.2g}."
        return Fault(OTHER_UNITS if plain < 1e-9 else UNKNOWN, evidence)
