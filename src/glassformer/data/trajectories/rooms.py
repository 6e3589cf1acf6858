"""Four rooms: a small world to walk in, which makes its own episodes (after Sutton, Precup and Singh 1999, section 4).

The agent starts in a random cell and has to reach another one. Each step costs 1, so the return is minus the number of
steps, and the best return is minus the length of the shortest way. Walkers of all kinds made the episodes, from those
who know the way to those who know nothing; which is which, only the returns tell.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig
from glassformer.data.kinds import ROOMS
from glassformer.data.synthetic import below, hashed, split_of
from glassformer.data.trajectories.episodes import Episodes, Floats, read_episodes

PLAN = (
    "#########",
    "#...#...#",
    "#...#...#",
    "#.......#",
    "#...#...#",
    "##.###.##",
    "#...#...#",
    "#.......#",
    "#...#...#",
    "#########",
)
"""The walls (#) and the cells that can be walked on."""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ACTIONS = ("up", "right", "down", "left")
LONGEST = 60
"""Steps after which an episode ends, wherever the agent is."""


class Cell(NamedTuple):
    """A place, counted from the corner at the top left."""

    row: int
    column: int


CELLS = tuple(Cell(r, c) for r, line in enumerate(PLAN) for c, each in enumerate(line) if each == ".")
HEIGHT, WIDTH = len(PLAN), len(PLAN[0])
OBSERVED = 2 * (HEIGHT + WIDTH)


class Rooms:
    """The world, with the interface of gymnasium's environments."""

    def __init__(self) -> None:
        self.cell = self.goal = CELLS[0]
        self.steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[Floats, dict[str, object]]:
        """Start an episode between two cells that no training episode began with, which `seed` chooses."""
        self.cell, self.goal = _ends(Random(hashed(f"reset/{seed}")), "test")
        self.steps = 0
        return observation(self.cell, self.goal), {}

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, object]]:
        """Walk one step. Returns the observation, the reward, whether the goal is reached, whether time is up, and {}.

        A step into a wall leads nowhere.
        """
        self.cell = walked(self.cell, action)
        self.steps += 1
        reached = self.cell == self.goal
        return observation(self.cell, self.goal), -1.0, reached, not reached and self.steps >= LONGEST, {}

    @property
    def best_return(self) -> float:
        """The best return from here."""
        return -float(distances(self.goal)[self.cell])


def observation(cell: Cell, goal: Cell) -> Floats:
    """Row and column of the agent and of its goal, each as a one-hot vector: [OBSERVED]."""
    found = np.zeros(OBSERVED, np.float32)
    places = (cell.row, HEIGHT + cell.column, HEIGHT + WIDTH + goal.row, 2 * HEIGHT + WIDTH + goal.column)
    found[list(places)] = 1.0
    return found


def walked(cell: Cell, action: int) -> Cell:
    """The cell that a step leads to."""
    rows, columns = MOVES[action]
    there = Cell(cell.row + rows, cell.column + columns)
    return cell if PLAN[there.row][there.column] == "#" else there


@cache
def distances(goal: Cell) -> dict[Cell, int]:
    """The number of steps of the shortest way from each cell to the goal."""
    found, border = {goal: 0}, [goal]
    for cell in border:
        for action in range(len(MOVES)):
            if (there := walked(cell, action)) not in found:
                found[there] = found[cell] + 1
                border.append(there)
    return found


def make_episodes(config: DataConfig, split: str, seed: int) -> Episodes:
    """The first episodes of a split, as many as the config says. Each depends only on (seed, split, its number)."""
    size: int = getattr(config, f"{split}_size")
    observations: list[Floats] = []
    actions: list[int] = []
    edges = [0]
    for number in range(size):
        random = Random(hashed(f"{seed}/{split}/{number}"))
        cell, goal = _ends(random, split)
        lost = random.random()  # how often this walker takes a random step
        for _ in range(LONGEST):
            action = _step(random, cell, goal, lost)
            observations.append(observation(cell, goal))
            actions.append(action)
            cell = walked(cell, action)
            if cell == goal:
                break
        edges.append(len(actions))
    return Episodes(
        np.stack(observations), np.array(actions, np.int64), np.full(len(actions), -1.0), np.array(edges, np.int64)
    )


def _step(random: Random, cell: Cell, goal: Cell, lost: float) -> int:
    if random.random() < lost:
        return below(random, len(MOVES))
    to_go = distances(goal)
    nearer = [action for action in range(len(MOVES)) if to_go[walked(cell, action)] < to_go[cell]]
    return nearer[below(random, len(nearer))]


def _ends(random: Random, split: str) -> tuple[Cell, Cell]:
    """Two different cells, start and goal. Each such pair belongs to one split for ever, by its hash."""
    while True:
        start, goal = (CELLS[below(random, len(CELLS))] for _ in range(2))
        if start != goal and split == split_of(f"{start.row},{start.column}/{goal.row},{goal.column}"):
            return start, goal


class Source(NamedTuple):
    """Episodes, where they come from, and what in their file was not read."""

    episodes: Episodes
    name: str
    unread: tuple[str, ...] = ()


def read_split(config: DataConfig, split: str, seed: int) -> Source:
    """The episodes of "train", "dev" or "test".

    Without a file of its own, dev is the end of the training file, and the training split its beginning. Errors:
    `DataError` from reading and for a file too short to be split; `ConfigError` for a split that nothing gives.
    """
    path: str | None = getattr(config, split)
    if path is not None and not (split == "train" and config.dev is None):
        return read_named(path)
    if config.train is None:
        return Source(make_episodes(config, split, seed), f"the environment {ROOMS}")
    if split == "test":
        raise ConfigError(
            "There is no file for the test episodes. Set data.test to a file, or score the dev episodes with --split "
            "dev."
        )
    episodes, name, unread = read_named(config.train)
    held_out = max(1, round(config.dev_share * len(episodes)))
    if held_out >= len(episodes):
        raise DataError(
            f"{name}: data.dev_share={config.dev_share} of {len(episodes)} episodes leaves none to train on. Give more "
            "episodes, or a file of dev episodes with data.dev."
        )
    kept = len(episodes) - held_out
    part = episodes.part(0, kept) if split == "train" else episodes.part(kept, len(episodes))
    return Source(part, name, unread)


def read_named(path: str) -> Source:
    """The episodes of a file, its name, and what in it was not read."""
    found = read_episodes(path)
    return Source(found.episodes, path, found.unread)


def action_names(config: DataConfig) -> tuple[str, ...]:
    """The names of the actions, where the environment that made the episodes has any."""
    return ACTIONS if config.train is None else ()
