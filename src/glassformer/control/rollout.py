"""Let a model of trajectories act, asked for a return (Chen et al. 2021, section 3 and algorithm 1).

At each step the model reads the last steps of its own episode, each as return-to-go, observation and action, and tells
the next action. The return-to-go begins with what is asked for; each reward is taken from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from glassformer.base.errors import DataError
from glassformer.base.tensors import in_float64
from glassformer.control.world import World
from glassformer.data.kinds import PLACES
from glassformer.data.trajectories.episodes import Episodes, Floats
from glassformer.data.trajectories.spaces import Spaces
from glassformer.data.trajectories.windows import ASKED, as_done, features
from glassformer.decode.choose import AT_ONCE as NUMBERS
from glassformer.decode.choose import draw, numbers
from glassformer.nn.transformer import Transformer

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

    asked: float
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
    agent: Agent, make: Callable[[], World], asked: Iterable[float], seeds: Sequence[int], most_steps: int
) -> Iterator[Played]:
    """Play an episode for each return asked for and each seed, in this order; up to `AT_ONCE` side by side.

    An episode does not depend on those beside it. Errors: `DataError` for an environment that gives no finite numbers.
    """
    wanted = [Played(each, seed, agent.discount) for each in asked for seed in seeds]
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
            each.to_go.append((each.to_go[-1] - each.rewards[-1]) / agent.discount if step else each.asked)
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
    read = read.reshape(len(episodes), -1, spaces.n_features)[:, : ASKED - PLACES + 1]
    check_finite(read, episodes, step)
    told = model.head(model.hidden(torch.as_tensor(read).to(weight.device, weight.dtype))[:, -1])
    if not spaces.entries:
        return list(as_done(spaces, told.double().cpu().numpy()).astype(np.float32))
    if agent.temperature == 0:
        return told.argmax(-1).tolist()
    block, place = divmod(step, NUMBERS)
    drawn = [numbers(each.seed, 0, block)[place] for each in episodes]
    told = in_float64(told)
    told = told - told.max(-1, keepdim=True).values  # no value above 0, which a small temperature would make infinite
    return draw(told / agent.temperature, drawn).tolist()


def check_finite(read: Floats, episodes: Sequence[Played], step: int) -> None:
    """Refuse what no model can read. Errors: `DataError` naming the step and what was asked for."""
    wrong = np.flatnonzero(~np.isfinite(read).all((1, 2)))
    if len(wrong):
        raise DataError(
            "What the model reads must be finite numbers of 32 bits, on the scale of training, but it is not in step "
            f"{step} of an episode that is asked for {episodes[wrong[0]].asked:g}. Ask for a return near those of the "
            "training episodes; if data.discount is below 1, play fewer steps."
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
