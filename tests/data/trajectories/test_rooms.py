"""The world of four rooms: walls, shortest ways, and episodes that depend on nothing but seed, split and number."""

from typing import Any

import numpy as np
import pytest

from data.trajectories.episodes import same
from glassformer.data.config import DataConfig
from glassformer.data.trajectories.episodes import Episodes, Floats
from glassformer.data.trajectories.rooms import (
    ACTIONS,
    CELLS,
    HEIGHT,
    LONGEST,
    MOVES,
    OBSERVED,
    PLAN,
    WIDTH,
    Cell,
    Rooms,
    distances,
    make_episodes,
    observation,
    walked,
)


def config(**changes: Any) -> DataConfig:
    settings: dict[str, Any] = {"train_size": 60, "dev_size": 40, "test_size": 40, **changes}
    return DataConfig(task="trajectories", layout="actions", environment="rooms", **settings)


def places(observed: Floats) -> tuple[Cell, Cell]:
    """Where the agent and its goal are, as an observation tells it."""
    assert observed.sum() == 4
    rows, columns, goal_rows, goal_columns = np.split(observed, np.cumsum([HEIGHT, WIDTH, HEIGHT]))
    return Cell(int(rows.argmax()), int(columns.argmax())), Cell(int(goal_rows.argmax()), int(goal_columns.argmax()))


def ends(episodes: Episodes) -> set[tuple[Cell, Cell]]:
    return {places(episodes.observations[first]) for first in episodes.edges[:-1]}


def test_an_observation_tells_where_the_agent_and_its_goal_are():
    for cell in CELLS:
        for goal in CELLS[::7]:
            assert observation(cell, goal).shape == (OBSERVED,)
            assert places(observation(cell, goal)) == (cell, goal)


def test_a_step_leads_to_the_next_cell_and_not_into_a_wall():
    for cell in CELLS:
        for action, (rows, columns) in enumerate(MOVES):
            there = Cell(cell.row + rows, cell.column + columns)
            assert walked(cell, action) == (there if there in CELLS else cell)
    assert [ACTIONS[action] for action in range(4)] == ["up", "right", "down", "left"]
    assert walked(Cell(2, 2), ACTIONS.index("up")) == Cell(1, 2)
    assert sum(line.count(".") for line in PLAN) == len(CELLS)


def test_the_shortest_ways_are_those_of_trying_all():
    """Floyd and Warshall's rule, on all pairs."""
    far = np.full((len(CELLS), len(CELLS)), np.inf)
    np.fill_diagonal(far, 0)
    for i, cell in enumerate(CELLS):
        for action in range(4):
            far[i, CELLS.index(walked(cell, action))] = min(1, far[i, CELLS.index(walked(cell, action))])
    for via in range(len(CELLS)):
        far = np.minimum(far, far[:, via, None] + far[None, via])
    assert np.isfinite(far).all()
    for j, goal in enumerate(CELLS):
        assert [distances(goal)[cell] for cell in CELLS] == far[:, j].tolist()


def test_episodes_are_walks_to_the_goal():
    episodes = make_episodes(config(), "train", 1)
    assert (len(episodes), episodes.actions.dtype) == (60, np.int64)
    assert (episodes.rewards == -1).all()
    for first, last in zip(episodes.edges[:-1], episodes.edges[1:], strict=True):
        cell, goal = places(episodes.observations[first])
        assert 1 <= last - first <= LONGEST
        for step in range(first, last):
            assert places(episodes.observations[step]) == (cell, goal)
            assert cell != goal
            cell = walked(cell, int(episodes.actions[step]))
        assert (cell == goal) or last - first == LONGEST
    best = [distances(goal)[start] for start, goal in (places(episodes.observations[i]) for i in episodes.edges[:-1])]
    assert (episodes.lengths >= best).all()
    assert 5 < (episodes.lengths == best).sum() < 55  # walkers of all kinds


def test_episodes_depend_on_seed_split_and_number_alone():
    few, many = make_episodes(config(), "train", 1), make_episodes(config(train_size=90), "train", 1)
    assert same(few, many.part(0, 60))
    assert not same(few, make_episodes(config(), "train", 2))


def test_no_split_begins_where_another_does():
    found = {name: ends(make_episodes(config(), name, 1)) for name in ("train", "dev", "test")}
    assert not found["train"] & (found["dev"] | found["test"])
    assert not found["dev"] & found["test"]


def test_the_environment_is_the_world_of_the_episodes():
    room = Rooms()
    seen, result = room.reset(seed=3)
    assert result == {}
    assert np.array_equal(room.reset(seed=3)[0], seen)
    assert any(not np.array_equal(room.reset(seed=n)[0], seen) for n in range(4, 8))
    room.reset(seed=3)
    start, goal = places(seen)
    assert (start, goal) not in ends(make_episodes(config(train_size=200), "train", 1))
    assert room.best_return == -distances(goal)[start]
    for n in range(1, LONGEST + 1):
        action = next((a for a in range(4) if walked(room.cell, a) == room.cell), 0)  # into a wall, if there is one
        seen, reward, reached, late, _ = room.step(action)
        assert (reward, reached, late) == (-1.0, False, n == LONGEST)
    room.reset(seed=3)
    for n in range(distances(goal)[start], 0, -1):
        best = min(range(4), key=lambda action: distances(goal)[walked(room.cell, action)])
        seen, _, reached, late, _ = room.step(best)
        assert (reached, late) == (n == 1, False)
    assert places(seen) == (goal, goal)


@pytest.mark.parametrize("size", [1, 3])
def test_so_many_episodes_are_made_as_asked_for(size):
    assert len(make_episodes(config(dev_size=size), "dev", 1)) == size
