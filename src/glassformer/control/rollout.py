"""Let a model of trajectories act, asked for a return (Chen et al. 2021, section 3 and algorithm 1).

At each step the model reads the last steps of its own episode, each as return-to-go, observation and action, and tells
the next action. The return-to-go begins with what is asked for; each reward is taken from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError, install
from glassformer.base.tensors import in_float64
from glassformer.data.kinds import PLACES, ROOMS
from glassformer.data.trajectories.episodes import Episodes, Floats, Spaces
from glassformer.data.trajectories.rooms import ACTIONS, OBSERVED, Rooms
from glassformer.data.trajectories.windows import PREDICTED_AT, as_done, features
from glassformer.decode.choose import AT_ONCE as NUMBERS
from glassformer.decode.choose import draw, numbers
from glassformer.nn.transformer import Transformer


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
            f"{actions_in_words(n_theirs, numbered=world.bounds is None)}; the model was trained with observations of "
            f"{spaces.n_observed} numbers and {actions_in_words(n_ours, numbered=numbered)}. Name the environment "
            "that its episodes come from."
        )


def actions_in_words(n: int, *, numbered: bool) -> str:
    """What can be done, in words."""
    return f"{n} numbered actions" if numbered else f"actions of {n} numbers"


def check_unit(world: World) -> None:
    """Refuse to map -1 and 1 to bounds that are not there. Errors: `ConfigError`."""
    if world.bounds is None or not np.isfinite([*world.bounds.low, *world.bounds.high]).all():
        raise ConfigError(
            f"--unit-actions maps -1 and 1 to the bounds of an action, but the actions of {world.name!r} have none. "
            "Remove it."
        )


AT_ONCE = 128
"""Most episodes that are played side by side."""


class Agent(NamedTuple):
    """A model that acts, and how."""

    model: Transformer
    spaces: Spaces
    window: int
    """Steps that it reads at once."""
    discount: float = 1.0
    """As in training."""
    temperature: float = 0.0
    """Of numbered actions: 0 takes the likeliest, more draws."""
    unit_actions: bool = False
    """Whether -1 and 1 stand for the bounds of the environment's actions."""


@dataclass
class Played:
    """An episode, step by step."""

    target_return: float
    """The return that was asked for."""
    seed: int
    """The environment's seed; with the same one, episodes begin alike."""
    discount: float = 1.0
    """That of the return, as of what is asked for."""
    observations: list[Floats] = field(default_factory=list)
    actions: list[int | Floats] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    to_go: list[float] = field(default_factory=list)
    """What the model was asked for at each step."""
    best: float | None = None
    """The best return that was possible, where that is known."""
    ended: bool = False
    """Whether the environment ended it, before the most steps."""

    @property
    def got(self) -> float:
        """The return."""
        return float(sum(reward * self.discount**step for step, reward in enumerate(self.rewards)))


def play(
    agent: Agent, make: Callable[[], World], target_return: Iterable[float], seeds: Sequence[int], most_steps: int
) -> Iterator[Played]:
    """Play an episode for each return asked for and each seed, in this order; up to `AT_ONCE` side by side.

    An episode does not depend on those beside it. Errors: `DataError` for an environment that gives no finite numbers.
    """
    wanted = [Played(each, seed, agent.discount) for each in target_return for seed in seeds]
    for first in range(0, len(wanted), AT_ONCE):
        group = wanted[first : first + AT_ONCE]
        _play(agent, make, group, most_steps)
        yield from group


@torch.no_grad()
def _play(agent: Agent, make: Callable[[], World], group: Sequence[Played], most_steps: int) -> None:
    """Play these episodes to their ends, one step of all of them at a time."""
    running = [(each, world, world.reset(each.seed)) for each in group for world in [make()]]
    for each, world, _ in running:
        each.best = world.best_return if agent.discount == 1 else None
    for step in range(most_steps):
        for each, _, seen in running:
            each.observations.append(seen)
            each.to_go.append((each.to_go[-1] - each.rewards[-1]) / agent.discount if step else each.target_return)
        actions = next_actions(agent, [each for each, _, _ in running], step)
        still: list[tuple[Played, World, Floats]] = []
        for (each, world, _), action in zip(running, actions, strict=True):
            each.actions.append(action)
            done = action
            if world.bounds is not None:
                done = world.bounds.within(np.asarray(action), unit=agent.unit_actions)
            seen, reward, each.ended, cut = world.step(done)
            each.rewards.append(reward)
            if each.ended or cut or step + 1 == most_steps:
                world.close()
            else:
                still.append((each, world, seen))
        running = still
        if not running:
            return


def next_actions(agent: Agent, episodes: Sequence[Played], step: int) -> list[int | Floats]:
    """The action of each episode after so many steps. All have as many; their last observation has no action yet."""
    model, spaces = agent.model, agent.spaces
    weight = next(model.parameters())
    first = max(0, step + 1 - agent.window)
    unknown = 0 if spaces.entries else np.zeros(spaces.n_acted, np.float32)  # is not read
    with np.errstate(over="ignore"):  # refused below
        read = features(
            spaces,
            np.array([each.to_go[first:] for each in episodes]),
            np.array([each.observations[first:] for each in episodes]),
            np.array([[*each.actions[first:], unknown] for each in episodes]),
            np.tile(np.arange(first, step + 1), (len(episodes), 1)),
        )
    read = read.reshape(len(episodes), -1, spaces.n_features)[:, : PREDICTED_AT - PLACES + 1]
    check_finite(read, episodes, step)
    logits = model.head(model.hidden(torch.as_tensor(read).to(weight.device, weight.dtype))[:, -1])
    if not spaces.entries:
        return list(as_done(spaces, logits.double().cpu().numpy()).astype(np.float32))
    if agent.temperature == 0:
        return logits.argmax(-1).tolist()
    block, place = divmod(step, NUMBERS)
    drawn = [numbers(each.seed, 0, block)[place] for each in episodes]
    logits = in_float64(logits)
    logits = (
        logits - logits.max(-1, keepdim=True).values
    )  # no value above 0, which a small temperature would make infinite
    return draw(logits / agent.temperature, drawn).tolist()


def check_finite(read: Floats, episodes: Sequence[Played], step: int) -> None:
    """Refuse what no model can read. Errors: `DataError` naming the step and what was asked for."""
    wrong = np.flatnonzero(~np.isfinite(read).all((1, 2)))
    if len(wrong):
        raise DataError(
            "What the model reads must be finite numbers of 32 bits, on the scale of training, but it is not in step "
            f"{step} of an episode that is asked for {episodes[wrong[0]].target_return:g}. Ask for a return near those "
            "of the training episodes; if data.discount is below 1, play fewer steps."
        )


def as_episodes(played: Sequence[Played]) -> Episodes:
    """The episodes in the form in which files hold them, to learn from again."""
    discrete = isinstance(played[0].actions[0], int)
    actions = [action for each in played for action in each.actions]
    return Episodes(
        np.array([seen for each in played for seen in each.observations], np.float32),
        np.array(actions, np.int64 if discrete else np.float32),
        np.array([reward for each in played for reward in each.rewards]),
        np.cumsum([0, *(len(each.rewards) for each in played)]),
    )
