"""What a choice may hang on besides the logits: which row of the call is written, what it read, what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from glassformer.foundation.shapes import Tensor


class Context(NamedTuple):
    """The rows of one step, in the order of the logits. Rows that finished are no longer among them."""

    numbers: Sequence[int]
    """What each row is known by, whatever batch it is in: its random numbers are those of this number."""
    prompts: Sequence[Sequence[int]]
    """The ids that each row began with, special ones included."""
    written: Sequence[Sequence[int]]
    """The ids that each row got so far."""
    seeds: Sequence[int] | None = None
    """What fixes the random numbers of each row, where rows of several callers share a step; none: the settings do."""
    searched: bool = False
    """Whether the rows are beginnings of a beam: one that is left without any token ends, and others go on."""

    @property
    def read(self) -> list[list[int]]:
        """Prompt and written ids of each row."""
        return [[*prompt, *ids] for prompt, ids in zip(self.prompts, self.written, strict=True)]


Filter = Callable[[Tensor, Context], Tensor]
"""Logits [B, V] to logits [B, V]; what is forbidden is -inf. Filters are pure and can stand in any order."""

Choose = Callable[[Tensor, Context], Tensor]
"""Logits [B, V] to the next tokens [B]."""
