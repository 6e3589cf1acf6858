"""What the choice of a token may depend on besides the logits: each row's number, prompt and written ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glassformer.base.shapes import Tensor


class Context(NamedTuple):
    """The unfinished rows of one step, in the order of the logits."""

    numbers: Sequence[int]
    """The number of each row, the same in any batch; it determines the row's random numbers."""
    prompts: Sequence[Sequence[int]]
    """The ids that each row began with, including special ones."""
    written: Sequence[Sequence[int]]
    """The ids that each row has written so far."""
    seeds: Sequence[int] | None = None
    """The random seed of each row, if rows of several callers share a step; None: the seed of the settings."""
    searched: bool = False
    """Whether the rows are hypotheses of a beam, where one without an allowed token just ends and others continue."""

    @property
    def read(self) -> list[list[int]]:
        """The prompt and written ids of each row, joined."""
        return [[*prompt, *ids] for prompt, ids in zip(self.prompts, self.written, strict=True)]


Filter = Callable[[Tensor, Context], Tensor]
"""Maps logits [B, V] to logits [B, V], with -inf for forbidden tokens. Filters are pure and work in any order."""


@dataclass(frozen=True)
class Named:
    """A filter that forbids tokens, with the name of the setting that asked for it, which error messages give."""

    step: Filter
    name: str

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Apply the filter."""
        return self.step(logits, context)


@dataclass(frozen=True)
class ByLogits:
    """A filter that looks at nothing but logits, so that it can be applied before the last tokens are known."""

    step: Callable[[Tensor], Tensor]

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Apply the filter."""
        return self.step(logits)


Choose = Callable[[Tensor, Context], Tensor]
"""Maps logits [B, V] to the next tokens [B]."""
