"""Environments behind one interface: what they take and give, and which are refused."""

from __future__ import annotations

import builtins
import re
from typing import ClassVar

import numpy as np
import pytest

from control.played import Drift, drift, spaces
from glassformer.base.errors import ConfigError, DataError
from glassformer.control.world import Bounds, World, check_unit, check_world, worlds
from glassformer.data.trajectories.rooms import ACTIONS, OBSERVED

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")


class Any(gymnasium.Env):
    """An environment with any spaces, which notes what it is given."""

    given: ClassVar[list] = []

    def __init__(self, sees, acts) -> None:
        self.observation_space, self.action_space = sees, acts

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        Any.given.append(action)
        return self.observation_space.sample(), 0.5, False, False, {}


THREE = gymnasium.spaces.Discrete(3)
BOX = gymnasium.spaces.Box(-1.0, 1.0, (2, 2), np.float32)


@pytest.fixture
def registered():
    def register(sees=BOX, acts=THREE) -> str:
        gymnasium.register("Ours-v0", lambda: Any(sees, acts))
        return "Ours-v0"

    yield register
    gymnasium.registry.pop("Ours-v0", None)


def test_rooms_are_built_in():
    world = worlds("rooms")()
    assert (world.n_observed, world.n_actions, world.bounds) == (OBSERVED, len(ACTIONS), None)
    assert world.reset(3).sum() == 4
    seen, reward, _, cut = world.step(1)
    assert (seen.shape, reward, cut) == ((OBSERVED,), -1.0, False)


@pytest.mark.parametrize(("name", "facts"), [("CartPole-v1", (4, 2)), ("Pendulum-v1", (3, None))])
def test_gymnasium_plays_the_same_episode_as_by_itself(name, facts):
    world, inner = worlds(name)(), gymnasium.make(name)
    assert (world.n_observed, world.n_actions) == facts
    assert np.array_equal(world.reset(5), inner.reset(seed=5)[0])
    for action in (1, 0, 1) if world.bounds is None else (np.array([0.5], np.float32),) * 3:
        seen, reward, ended, cut = world.step(action)
        wanted = inner.step(action)
        assert np.array_equal(seen, np.float32(wanted[0]))
        assert (reward, ended, cut) == (float(wanted[1]), wanted[2], wanted[3])


def test_observations_are_flat_and_actions_may_begin_elsewhere(registered):
    world = worlds(registered(acts=gymnasium.spaces.Discrete(3, start=5)))()
    assert world.reset(1).shape == (4,)
    world.step(2)
    assert Any.given[-1] == 7


def test_actions_are_kept_within_bounds_and_unit_actions_mapped_to_them():
    bounds = Bounds(np.array([-2.0, 0.0]), np.array([2.0, 10.0]))
    assert bounds.within(np.array([-3.0, 4.0]), unit=False).tolist() == [-2.0, 4.0]
    assert bounds.within(np.array([-1.0, 1.0]), unit=True).tolist() == [-2.0, 10.0]
    assert bounds.within(np.array([0.5, -0.5]), unit=True).tolist() == [1.0, 2.5]
    assert bounds.within(np.array([0.5, 1.5]), unit=True).tolist() == [1.0, 10.0]


REFUSED = [
    ({"sees": gymnasium.spaces.Discrete(4)}, r"An observation must be a vector .*has Discrete\(4\)"),
    ({"acts": gymnasium.spaces.MultiDiscrete([2, 2])}, r"An action must be one of a few .*has MultiDiscrete"),
    ({"acts": BOX}, r"An action must be one of a few .*has Box"),
]


@pytest.mark.parametrize(("spaces_of", "said"), REFUSED, ids=["numbered observations", "two actions", "a matrix"])
def test_what_no_model_can_act_in_is_refused(registered, spaces_of, said):
    make = worlds(registered(**spaces_of))
    with pytest.raises(ConfigError, match=said):
        make()


def test_an_unknown_environment_is_told_with_what_gymnasium_says():
    with pytest.raises(ConfigError, match=r"cannot make the environment 'CartPole-v99' \(.*Check the name"):
        worlds("CartPole-v99")()


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *more):
        if name.startswith("gymnasium"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=re.escape("pip install 'gymnasium")):
        worlds("CartPole-v1")
    assert worlds("rooms")().name == "rooms"


def test_the_environment_must_be_that_of_the_episodes():
    own = spaces(discrete=True)
    for same in (drift(discrete=True), World("one action more, which nobody took", None, 3, 3)):
        check_world(same, own)
    for other in (World("other", None, 3, 1), World("other", None, 4, 2), drift(discrete=False)):
        with pytest.raises(ConfigError, match=r"has observations of \d numbers and .*; the model was trained with"):
            check_world(other, own)


def test_unit_actions_need_bounds():
    check_unit(drift(discrete=False))
    open_world = World("open", None, 3, None, Bounds(np.array([-np.inf]), np.array([1.0])))
    for each in (drift(discrete=True), open_world):
        with pytest.raises(ConfigError, match=r"--unit-actions maps -1 and 1 to the bounds"):
            check_unit(each)


class Broken(Drift):
    """An environment that gives what is no number."""

    def __init__(self, seen, reward) -> None:
        super().__init__()
        self.seen, self.reward = seen, reward

    def step(self, action):
        return self.seen, self.reward, False, False, {}


@pytest.mark.parametrize(
    ("seen", "reward", "said"),
    [
        ([0.0, float("nan"), 0.0], 1.0, r"observations of 3 finite numbers; got \[0\.0, nan, 0\.0\]"),
        ([0.0, 1.0], 1.0, r"observations of 3 finite numbers; got \[0\.0, 1\.0\]"),
        ([0.0, 1.0, 2.0], float("inf"), r"must give finite rewards; got inf"),
    ],
)
def test_an_environment_that_gives_no_numbers_is_named(seen, reward, said):
    world = World("broken", Broken(seen, reward), 3, 2)
    with pytest.raises(DataError, match=said):
        world.step(0)
