"""Environments to act in: the one that is built in, and those of gymnasium, behind one small interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError, install
from glassformer.data.kinds import ROOMS
from glassformer.data.trajectories.episodes import Floats
from glassformer.data.trajectories.rooms import ACTIONS, OBSERVED, Rooms
from glassformer.data.trajectories.spaces import Spaces


class Bounds(NamedTuple):
    """The least and the greatest of each number of an action; infinite where there is no bound."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def within(self, action: NDArray[np.floating], *, unit: bool) -> Floats:
        """An action that the environment takes. `unit`: -1 and 1 stand for the bounds."""
        if unit:
            action = self.low + (action + 1) / 2 * (self.high - self.low)
        return np.clip(action, self.low, self.high).astype(np.float32)


@dataclass
class World:
    """An environment, what can be observed there and what can be done."""

    name: str
    inner: Any
    """It has gymnasium's `reset` and `step`."""
    n_observed: int
    n_actions: int | None
    """How many numbered actions there are; None if actions are vectors."""
    bounds: Bounds | None = None
    """Of actions that are vectors."""
    first_action: int = 0
    """The environment's own number of our action 0."""

    def reset(self, seed: int) -> Floats:
        """Start an episode; return the first observation."""
        return self._flat(self.inner.reset(seed=seed)[0])

    def step(self, action: int | Floats) -> tuple[Floats, float, bool, bool]:
        """Act. Returns the observation, the reward, and whether the episode has ended: by itself, or for its length.

        Errors: `DataError` for an observation or a reward that is no finite number.
        """
        done = action + self.first_action if isinstance(action, int) else action
        seen, reward, ended, cut, _ = self.inner.step(done)
        if not np.isfinite(reward):
            raise DataError(f"The environment {self.name} must give finite rewards; got {reward}. Correct it.")
        return self._flat(seen), float(reward), bool(ended), bool(cut)

    def close(self) -> None:
        """Release what the environment holds, such as a window or a process."""
        if not isinstance(self.inner, Rooms):
            self.inner.close()

    @property
    def best_return(self) -> float | None:
        """The best return of the episode that begins here, where that is known."""
        return self.inner.best_return if isinstance(self.inner, Rooms) else None

    def _flat(self, seen: Any) -> Floats:
        flat = np.asarray(seen, np.float32).ravel()
        if len(flat) != self.n_observed or not bool(np.isfinite(flat).all()):
            raise DataError(
                f"The environment {self.name} must give observations of {self.n_observed} finite numbers; got "
                f"{flat.tolist()!r:.80}. Correct it."
            )
        return flat


def worlds(name: str) -> Callable[[], World]:
    """What makes new environments of this name. Errors: `ConfigError` for one that cannot be made or used."""
    if name == ROOMS:
        return lambda: World(ROOMS, Rooms(), OBSERVED, len(ACTIONS))
    try:
        import gymnasium
        from gymnasium import spaces
    except ImportError:
        raise ConfigError(
            f"The environment {name!r} is not built in ({ROOMS} is) and needs gymnasium, which is not installed. "
            f"Install it: {install('control')}"
        ) from None

    def make() -> World:
        try:
            inner = gymnasium.make(name)
        except Exception as error:  # whatever a package of environments raises when it cannot make one
            raise ConfigError(
                f"gymnasium cannot make the environment {name!r} ({type(error).__name__}: {str(error)[:200]}). Check "
                "the name, which has a version, such as CartPole-v1."
            ) from None
        sees, acts = inner.observation_space, inner.action_space
        if not isinstance(sees, spaces.Box):
            raise ConfigError(
                f"An observation must be a vector of numbers (a gymnasium Box); the environment {name!r} has "
                f"{sees!s:.80}. Choose another, or wrap it."
            )
        width = int(np.prod(sees.shape))
        if isinstance(acts, spaces.Discrete):
            return World(name, inner, width, int(acts.n), first_action=int(acts.start))
        if isinstance(acts, spaces.Box) and len(acts.shape) == 1:
            bounds = Bounds(acts.low.astype(np.float64), acts.high.astype(np.float64))
            return World(name, inner, width, None, bounds)
        raise ConfigError(
            f"An action must be one of a few (Discrete) or a vector (a Box of one dimension); the environment {name!r} "
            f"has {acts!s:.80}. Choose another, or wrap it."
        )

    return make


def check_world(world: World, spaces: Spaces) -> None:
    """Refuse an environment in which this model cannot act. Errors: `ConfigError`.

    It may have more numbered actions than the model: the last ones may be in no training episode.
    """
    n_ours, n_theirs = spaces.n_acted, world.n_actions if world.bounds is None else len(world.bounds.low)
    assert n_theirs is not None, "actions are numbered or have bounds"
    numbered = bool(spaces.entries)
    fits = numbered == (world.bounds is None) and (n_ours <= n_theirs if numbered else n_ours == n_theirs)
    if world.n_observed != spaces.n_observed or not fits:
        raise ConfigError(
            f"The environment {world.name!r} has observations of {world.n_observed} numbers and "
            f"{told(n_theirs, numbered=world.bounds is None)}; the model was trained with observations of "
            f"{spaces.n_observed} numbers and {told(n_ours, numbered=numbered)}. Name the environment that its "
            "episodes come from."
        )


def told(n: int, *, numbered: bool) -> str:
    """What can be done, in words."""
    return f"{n} numbered actions" if numbered else f"actions of {n} numbers"


def check_unit(world: World) -> None:
    """Refuse to map -1 and 1 to bounds that are not there. Errors: `ConfigError`."""
    if world.bounds is None or not np.isfinite([*world.bounds.low, *world.bounds.high]).all():
        raise ConfigError(
            f"--unit-actions maps -1 and 1 to the bounds of an action, but the actions of {world.name!r} have none. "
            "Remove it."
        )
