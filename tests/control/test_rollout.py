"""A model acts on what it was trained to read; episodes side by side are what they are alone."""

from __future__ import annotations

import builtins
import re
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from control.played import Drift, agent, drift, spaces
from glassformer.base.errors import ConfigError, DataError
from glassformer.control.rollout import AT_ONCE, Bounds, World, as_episodes, check_unit, check_world, play, worlds
from glassformer.data.trajectories.rooms import ACTIONS, OBSERVED, Rooms
from glassformer.data.trajectories.windows import PREDICTED_AT, as_done, windows_batch

KINDS = pytest.mark.parametrize("discrete", [True, False], ids=["numbered", "vectors"])


def same(one, other) -> bool:
    actions = all(np.array_equal(a, b) for a, b in zip(one.actions, other.actions, strict=True))
    return actions and (one.rewards, one.to_go, one.ended) == (other.rewards, other.to_go, other.ended)


@KINDS
@pytest.mark.parametrize("window", [1, 4, 20])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_it_reads_what_training_would_read_of_its_own_episode(discrete, window, discount):
    """At each step: the window that ends there, with the returns-to-go that begin with what was asked for."""
    acting = agent(discrete=discrete, window=window, discount=discount)
    [played] = play(acting, partial(drift, discrete=discrete), [3.0], [1], 12)
    left = [3.0]
    for reward in played.rewards[:-1]:
        left.append((left[-1] - reward) / discount)
    episode, to_go = as_episodes([played]), np.array(left)
    for step in range(episode.n_steps):
        first = max(0, step + 1 - window)
        batch = windows_batch(acting.spaces, episode, to_go, np.array([first]), np.array([step + 1 - first]))
        predicted = acting.model(batch.tokens.double())[0, 3 * (step - first) + PREDICTED_AT].detach()
        if discrete:
            assert played.actions[step] == int(predicted.argmax())
        else:
            assert np.allclose(played.actions[step], as_done(acting.spaces, predicted.numpy()), rtol=0, atol=1e-6)


@KINDS
@pytest.mark.parametrize("temperature", [0.0, 9.0])
def test_an_episode_does_not_depend_on_those_beside_it(discrete, temperature):
    acting = agent(discrete=discrete, temperature=temperature if discrete else 0.0)
    together = list(play(acting, partial(drift, discrete=discrete), [3.0, -2.0], range(4), 12))
    alone = [
        each
        for requested in (3.0, -2.0)
        for seed in range(4)
        for each in play(acting, partial(drift, discrete=discrete), [requested], [seed], 12)
    ]
    assert [(each.target_return, each.seed) for each in together] == [(a, s) for a in (3.0, -2.0) for s in range(4)]
    assert all(same(a, b) for a, b in zip(together, alone, strict=True))
    assert len({len(each.rewards) for each in together}) > 1  # some end earlier than others


def test_more_than_fit_side_by_side_are_all_played():
    acting = agent(discrete=True, window=1)
    played = list(play(acting, partial(drift, discrete=True, long=2), [1.0], range(AT_ONCE + 3), 2))
    assert [each.seed for each in played] == [*range(AT_ONCE + 3)]
    assert all(len(each.rewards) == 2 or each.ended for each in played)


def test_draws_depend_on_the_seed_and_follow_the_probabilities():
    acting = agent(discrete=True, temperature=1.0)
    once, again = (list(play(acting, partial(drift, discrete=True), [0.0], range(6), 12)) for _ in range(2))
    assert all(same(a, b) for a, b in zip(once, again, strict=True))
    likeliest = list(play(agent(discrete=True), partial(drift, discrete=True), [0.0], range(6), 12))
    assert not all(same(a, b) for a, b in zip(once, likeliest, strict=True))
    first = [each.actions[0] for each in play(acting, lambda: Still(), [0.0], range(2000), 1)]
    own = next(iter(play(acting, lambda: Still(), [0.0], [0], 1)))
    batch = windows_batch(acting.spaces, as_episodes([own]), np.array([0.0]), np.array([0]), np.array([1]))
    share = float(acting.model(batch.tokens.double())[0, PREDICTED_AT].softmax(-1)[1].detach())
    assert abs(np.mean(first) - share) < 4 * (share * (1 - share) / 2000) ** 0.5, share


class Still:
    """Where nothing differs between seeds, so that only the draws do."""

    name, n_observed, n_actions, bounds, best_return = "still", 3, 2, None, None

    def reset(self, seed):
        return np.zeros(3, np.float32)

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, True, False

    def close(self):
        pass


@pytest.mark.parametrize("most", [1, 5])
def test_most_steps_end_an_episode_and_every_world_is_closed(most):
    made = []

    def make():
        made.append(drift(discrete=False, long=7))
        return made[-1]

    played = list(play(agent(discrete=False), make, [1.0], range(3), most))
    assert all(len(each.rewards) == most or each.ended for each in played)
    assert all(each.inner.closed for each in made)


def test_returns_are_discounted_as_what_is_asked_for():
    [played] = play(agent(discrete=True, discount=0.9), partial(drift, discrete=True), [3.0], [1], 12)
    assert played.got == pytest.approx(as_episodes([played]).returns_to_go(0.9)[0], abs=1e-12)
    assert played.got != pytest.approx(sum(played.rewards))


@KINDS
def test_what_no_model_can_read_is_refused(discrete):
    with pytest.raises(DataError, match=r"not in step 0 of an episode that is asked for 1e\+300\. Ask"):
        list(play(agent(discrete=discrete), partial(drift, discrete=discrete), [1.0, 1e300], [0], 3))


def test_a_small_temperature_takes_the_likeliest():
    """Also one that makes scores infinite."""
    likeliest, drawn = (
        list(play(agent(discrete=True, temperature=t), partial(drift, discrete=True), [0.0], range(3), 12))
        for t in (0.0, 1e-320)
    )
    assert all(same(a, b) for a, b in zip(likeliest, drawn, strict=True))


def test_actions_stay_within_the_training_data():
    own = spaces(discrete=False)
    far = as_done(own, np.array([[1e9, -1e9]]))
    assert far.tolist() == [[own.scales.acted_high[0], own.scales.acted_low[1]]]


def test_episodes_can_be_learned_from_again():
    played = list(play(agent(discrete=False), partial(drift, discrete=False), [1.0, 2.0], range(2), 12))
    made = as_episodes(played)
    assert made.lengths.tolist() == [len(each.rewards) for each in played]
    assert np.allclose(made.returns, [each.got for each in played])
    assert made.actions.dtype == np.float32
    assert as_episodes(list(play(agent(discrete=True), partial(drift, discrete=True), [1.0], [0], 3))).discrete


def test_the_best_return_is_known_in_the_rooms():
    world = Rooms()
    world.reset(seed=4)
    best = world.best_return
    for _ in range(-int(best)):
        before = world.best_return
        _, _, reached, _, _ = world.step(next(a for a in range(4) if stepped(world, a) > before))
    assert reached


def stepped(world: Rooms, action: int) -> float:
    copy = Rooms()
    copy.cell, copy.goal = world.cell, world.goal
    copy.step(action)
    return copy.best_return


# --- Environments behind one interface: what they take and give, and which are refused


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


@pytest.mark.parametrize(("spaces_of", "message"), REFUSED, ids=["numbered observations", "two actions", "a matrix"])
def test_what_no_model_can_act_in_is_refused(registered, spaces_of, message):
    make = worlds(registered(**spaces_of))
    with pytest.raises(ConfigError, match=message):
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


@pytest.mark.parametrize(("seen", "reward", "message"), [
    ([0.0, float("nan"), 0.0], 1.0, r"observations of 3 finite numbers; got \[0\.0, nan, 0\.0\]"),
    ([0.0, 1.0], 1.0, r"observations of 3 finite numbers; got \[0\.0, 1\.0\]"),
    ([0.0, 1.0, 2.0], float("inf"), r"must give finite rewards; got inf"),
])  # fmt: skip
def test_an_environment_that_gives_no_numbers_is_named(seen, reward, message):
    world = World("broken", Broken(seen, reward), 3, 2)
    with pytest.raises(DataError, match=message):
        world.step(0)
