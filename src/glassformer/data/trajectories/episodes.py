"""Episodes of an agent: what it observed, did and was rewarded with, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Actions = NDArray[Any]
"""Whole numbers of 64 bits, or floats of 32 bits."""


@dataclass(frozen=True)
class Episodes:
    """E episodes one after the other, N steps in all. At each step the agent observes, acts and gets a reward."""

    observations: Floats
    """[N, S]: what the agent observes before it acts."""
    actions: Actions
    """[N], the numbers of actions from 0; or [N, A], each action as A numbers."""
    rewards: NDArray[np.float64]
    """[N]: what each action earned."""
    edges: NDArray[np.int64]
    """[E + 1]: episode e has the steps edges[e] to edges[e + 1] - 1."""

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def n_steps(self) -> int:
        """N."""
        return int(self.edges[-1])

    @property
    def discrete(self) -> bool:
        """Whether an action is one of a few, by number, and not a vector of numbers."""
        return self.actions.ndim == 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """[E]: the number of steps of each episode."""
        return np.diff(self.edges)

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """[N]: how many steps of its episode came before each step."""
        return np.arange(self.n_steps) - np.repeat(self.edges[:-1], self.lengths)

    @cached_property
    def returns(self) -> NDArray[np.float64]:
        """[E]: the sum of the rewards of each episode."""
        return np.add.reduceat(self.rewards, self.edges[:-1])

    def returns_to_go(self, discount: float = 1.0) -> NDArray[np.float64]:
        """[N]: the rewards from each step to the end of its episode, R_t = r_t + discount * R_(t+1).

        Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling", section 3, have
        discount 1. Summed from the end, one step of all episodes at a time.
        """
        found = self.rewards.copy()
        for back in range(2, int(self.lengths.max()) + 1):
            at = self.edges[1:][self.lengths >= back] - back
            found[at] += discount * found[at + 1]
        return found

    def fingerprints(self) -> list[bytes]:
        """A digest of each episode; those of two equal episodes are equal."""
        found: list[bytes] = []
        for first, last in pairwise(self.edges.tolist()):
            parts = (array[first:last].tobytes() for array in (self.observations, self.actions, self.rewards))
            found.append(blake2b(b"".join(parts), digest_size=16).digest())
        return found

    def part(self, first: int, last: int) -> Episodes:
        """The episodes `first` to `last` - 1."""
        steps = slice(int(self.edges[first]), int(self.edges[last]))
        edges = self.edges[first : last + 1] - self.edges[first]
        return Episodes(self.observations[steps], self.actions[steps], self.rewards[steps], edges)
