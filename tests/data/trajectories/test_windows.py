"""What a model reads of episodes: three places a step, each row as if it were alone, and no action before its time."""

import json
import math
import random
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.trajectories.episodes import OBSERVED, made
from glassformer.base.errors import DataError
from glassformer.data.batch import Batch
from glassformer.data.tokenizer import tokenizer_from_json
from glassformer.data.trajectories.episodes import TIMES, Episodes, Spaces
from glassformer.data.trajectories.windows import as_done, as_read, spaces_of, waves, windows_batch

BOTH = pytest.mark.parametrize("discrete", [True, False])
LENGTHS = [5, 1, 8, 3]


def batch_of(episodes: Episodes, spaces: Spaces, *windows: tuple[int, int]) -> Batch:
    firsts, lengths = (np.array(each, np.int64) for each in zip(*windows, strict=True))
    return windows_batch(spaces, episodes, episodes.returns_to_go(), firsts, lengths)


def example(discrete: bool) -> tuple[Episodes, Spaces]:
    episodes = made(LENGTHS, discrete=discrete)
    return episodes, spaces_of(episodes, episodes.returns_to_go())


def written_out(episodes: Episodes, spaces: Spaces, step: int) -> list[list[float]]:
    """The three vectors of one step, number by number."""
    scales, t = spaces.scales, int(episodes.times[step])
    seen = [
        (o - m) / s
        for o, m, s in zip(episodes.observations[step].tolist(), scales.observed, scales.observed_spread, strict=True)
    ]
    if episodes.discrete:
        done = [float(episodes.actions[step] == number) for number in range(len(spaces.entries))]
    else:
        numbers = episodes.actions[step].tolist()
        done = [(a - m) / s for a, m, s in zip(numbers, scales.acted, scales.acted_spread, strict=True)]
    angles = [t / 10_000 ** (i / (TIMES // 2)) for i in range(TIMES // 2)]
    time = [*map(math.sin, angles), *map(math.cos, angles)]
    to_go = episodes.returns_to_go()[step] / scales.to_go
    return [
        [1.0, 0.0, 0.0, to_go, *[0.0] * len(seen), *[0.0] * len(done), *time],
        [0.0, 1.0, 0.0, 0.0, *seen, *[0.0] * len(done), *time],
        [0.0, 0.0, 1.0, 0.0, *[0.0] * len(seen), *done, *time],
    ]


@BOTH
def test_a_window_by_hand(discrete):
    episodes, spaces = example(discrete)
    batch = batch_of(episodes, spaces, (7, 4))
    assert batch.tokens.dtype == torch.float32
    expected = [vector for step in range(7, 11) for vector in written_out(episodes, spaces, step)]
    np.testing.assert_allclose(batch.tokens[0].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert batch.keep is None
    assert batch.label_keep[0].tolist() == [False, True, False] * 4
    targets = batch.labels[0][1::3]
    if discrete:
        assert targets.tolist() == episodes.actions[7:11].tolist()
        assert targets.dtype == torch.int64
    else:
        np.testing.assert_array_equal(targets, as_read(spaces, episodes.actions[7:11]).astype(np.float32))
        np.testing.assert_array_equal(targets, batch.tokens[0, 2::3, 4 + OBSERVED : 6 + OBSERVED])


@BOTH
@given(draw=st.data())
def test_each_row_is_what_its_window_gives_alone(discrete, draw):
    episodes, spaces = example(discrete)
    windows: list[tuple[int, int]] = []
    for _ in range(draw.draw(st.integers(1, 5))):
        e = draw.draw(st.integers(0, len(LENGTHS) - 1))
        first = draw.draw(st.integers(0, LENGTHS[e] - 1))
        windows.append((int(episodes.edges[e]) + first, draw.draw(st.integers(1, LENGTHS[e] - first))))
    together = batch_of(episodes, spaces, *windows)
    longest = 3 * max(length for _, length in windows)
    for row, (first, length) in enumerate(windows):
        alone, places = batch_of(episodes, spaces, (first, length)), 3 * length
        assert torch.equal(together.tokens[row, :places], alone.tokens[0])
        assert torch.equal(together.labels[row, :places], alone.labels[0])
        assert torch.equal(together.label_keep[row, :places], alone.label_keep[0])
        assert not together.tokens[row, places:].any()
        assert not together.label_keep[row, places:].any()
        assert longest == together.tokens.shape[1]
        if together.keep is None:
            assert places == longest
        else:
            assert together.keep[row].tolist() == [place < places for place in range(longest)]


@BOTH
def test_an_action_is_read_where_it_is_done_and_nowhere_before(discrete):
    """Otherwise the model would be told what it has to predict."""
    episodes, spaces = example(discrete)
    plain = batch_of(episodes, spaces, (6, 8)).tokens[0]
    for t in range(8):
        actions = episodes.actions.copy()
        actions[6 + t] = (actions[6 + t] + 1) % 4 if discrete else actions[6 + t] + 1.5
        other = batch_of(replace(episodes, actions=actions), spaces, (6, 8)).tokens[0]
        assert (plain != other).any(-1).nonzero()[:, 0].tolist() == [3 * t + 2]


def test_an_observation_and_a_return_are_read_where_they_stand():
    episodes, spaces = example(True)
    plain = batch_of(episodes, spaces, (6, 8)).tokens[0]
    observations = episodes.observations.copy()
    observations[9] += 1
    other = batch_of(replace(episodes, observations=observations), spaces, (6, 8)).tokens[0]
    assert (plain != other).any(-1).nonzero()[:, 0].tolist() == [3 * 3 + 1]
    rewards = episodes.rewards.copy()
    rewards[9] += 1  # what is to come is known at all steps until there
    other = batch_of(replace(episodes, rewards=rewards), spaces, (6, 8)).tokens[0]
    assert (plain != other).any(-1).nonzero()[:, 0].tolist() == [0, 3, 6, 9]


def test_other_episodes_change_nothing_in_a_window():
    """Not even a neighbour's, of which padding must hold nothing."""
    episodes, spaces = example(True)
    windows = [(6, 8), (5, 1), (2, 3)]
    plain = batch_of(episodes, spaces, *windows)
    own = np.zeros(episodes.n_steps, np.bool_)
    for first, length in windows:
        own[first : first + length] = True
    strange = replace(
        episodes,
        observations=np.where(own[:, None], episodes.observations, 1e9).astype(np.float32),
        actions=np.where(own, episodes.actions, 1),
        rewards=episodes.rewards,
    )
    other = batch_of(strange, spaces, *windows)
    assert torch.equal(plain.tokens, other.tokens)
    assert torch.equal(plain.labels[plain.label_keep], other.labels[other.label_keep])


def test_time_is_told_by_waves():
    found = waves(np.arange(10_000))
    assert found.shape == (10_000, TIMES)
    assert len(np.unique(found, axis=0)) == 10_000
    assert found[0].tolist() == [0.0] * (TIMES // 2) + [1.0] * (TIMES // 2)


def test_actions_are_done_as_they_are_read():
    """Within the bounds of the training data: a model may predict what lies beyond."""
    episodes, spaces = example(False)
    np.testing.assert_allclose(as_done(spaces, as_read(spaces, episodes.actions)), episodes.actions, rtol=1e-6)
    low, high = (np.array(each) for each in (spaces.scales.acted_low, spaces.scales.acted_high))
    far = as_done(spaces, np.array([[-1e6, 1e6], [1e6, -1e6]]))
    np.testing.assert_array_equal(far, [[low[0], high[1]], [high[0], low[1]]])


# --- The scales of training episodes: by hand, kept to the last bit, and refused where they cannot be such


def spaces(discrete: bool = True, names: tuple[str, ...] = ()) -> Spaces:
    episodes = made([3, 1, 7], discrete=discrete)
    return spaces_of(episodes, episodes.returns_to_go(), names)


@BOTH
def test_scales_are_those_of_the_episodes(discrete):
    episodes = made([3, 1, 7], discrete=discrete)
    to_go = episodes.returns_to_go(0.9)
    found = spaces_of(episodes, to_go)
    scales, seen = found.scales, episodes.observations.astype(np.float64)
    means = [float(sum(column) / len(column)) for column in seen.T]
    spread = [float((sum((column - m) ** 2) / 11) ** 0.5) for column, m in zip(seen.T, means, strict=True)]
    assert scales.observed == pytest.approx(means, rel=1e-12)
    assert scales.observed_spread == pytest.approx(spread, rel=1e-12)
    assert scales.to_go == max(abs(to_go))
    assert scales.longest == 7
    returns = [to_go[first] for first in (0, 3, 4)]  # discounted, as what is asked for in a rollout
    assert scales.returns == pytest.approx((min(returns), sum(returns) / 3, max(returns)), rel=1e-12)
    assert (found.n_observed, found.n_acted) == (OBSERVED, 4 if discrete else 2)
    assert found.n_features == 3 + 1 + OBSERVED + found.n_acted + TIMES
    if discrete:
        assert (found.entries, scales.acted, scales.acted_low) == (("0", "1", "2", "3"), (), ())
    else:
        assert found.entries == ()
        assert scales.acted_low == tuple(episodes.actions.min(0).tolist())
        assert scales.acted_high == tuple(episodes.actions.max(0).tolist())


def test_what_does_not_vary_is_not_divided_by_nothing():
    episodes = made([4, 2])
    episodes.observations[:, 1] = 0.1
    scales = spaces_of(replace(episodes, rewards=np.zeros(6)), np.zeros(6)).scales
    assert (scales.observed_spread[1], scales.to_go, scales.returns) == (1.0, 1.0, (0.0, 0.0, 0.0))


def test_actions_have_the_names_of_their_environment():
    assert spaces(names=("up", "right", "down", "left")).entries == ("up", "right", "down", "left")


def test_an_action_that_never_occurs_has_its_number():
    episodes = replace(made([3]), actions=np.array([5, 0, 5]))
    found = spaces_of(episodes, episodes.returns_to_go())
    assert found.entries == tuple("012345")
    found.check(episodes, "x.csv")


@pytest.mark.parametrize("actions", [np.array([2, 2, 2]), np.full((3, 2), 0.5, np.float32)])
def test_actions_that_are_all_the_same_teach_nothing(actions):
    episodes = replace(made([3]), actions=actions)
    with pytest.raises(DataError, match=r"in all 3 steps it is .*(2|0\.5).*different actions"):
        spaces_of(episodes, episodes.returns_to_go())


@BOTH
def test_a_file_keeps_every_bit(discrete):
    whole = spaces(discrete)
    again = tokenizer_from_json(whole.to_json())
    assert (again.scales, again.entries) == (whole.scales, whole.entries)
    assert again.to_json() == whole.to_json()
    assert {name: type(value) for name, value in asdict(again.scales).items()} == {
        name: type(value) for name, value in asdict(whole.scales).items()
    }


BAD_VALUES = [None, True, "1", "", {}, [], [[]], [None], [True], ["1"], [[1.0]], float("nan"), float("inf"), -1.0,
              0, 0.0, 2.5, [float("nan")], [1.0], [1.0] * 4, 10**400, [10**400],
              [-1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]  # fmt: skip
LEGAL = {
    "to_go": [2.5],
    "observed": [[-1.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
    "returns": [[-1.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
}


@pytest.mark.parametrize("name", [*asdict(spaces().scales)])
@BOTH
def test_scales_that_are_none_are_refused(name, discrete):
    """Every field, with what another program may have written there."""
    record = json.loads(spaces(discrete).to_json())
    for bad in BAD_VALUES:
        if bad in LEGAL.get(name, []) or (discrete and name.startswith("acted") and bad == []):
            continue
        text = json.dumps({**record, "scales": {**record["scales"], name: bad}})
        with pytest.raises(DataError, match=r"file of spaces must .*Use the tokenizer\.json of a glassformer run"):
            Spaces.from_json(text)
    for scales in ({**record["scales"], "more": 1.0}, {k: v for k, v in record["scales"].items() if k != name}):
        with pytest.raises(DataError, match="must hold the scales observed, "):
            Spaces.from_json(json.dumps({**record, "scales": scales}))


@pytest.mark.parametrize("changes", [
    {"kind": "label"},
    {"specials": []},
    {"scales": None},
    {"scales": []},
    {"entries": None},
    {"entries": [1, 2]},
    {"entries": ["a", "a"]},
    {"entries": ["a", " "]},
    {"entries": []},
    {"entries": ["\ud800", "a"]},
])  # fmt: skip
def test_a_file_of_other_spaces_is_refused(changes):
    with pytest.raises(DataError):
        Spaces.from_json(json.dumps(json.loads(spaces().to_json()) | changes))


def test_names_of_actions_and_scales_of_their_numbers_exclude_each_other():
    record = json.loads(spaces(False).to_json()) | {"entries": ["a", "b"]}
    with pytest.raises(DataError, match="got 2 names and the scales of 2 numbers"):
        Spaces.from_json(json.dumps(record))


@BOTH
def test_no_damage_ends_in_an_error_of_python(discrete):
    """A piece of the text is replaced by another: it is refused, or spaces that can be written and read again."""
    text, draw = spaces(discrete).to_json(), random.Random(0)
    pieces = ["", "0", "-", "1e999", "NaN", "[", "]", "{}", "null", "true", '"', ",", ":", "[1, 2]", "\ud800"]
    refused = 0
    for _ in range(2000):
        first = draw.randrange(len(text))
        changed = text[:first] + draw.choice(pieces) + text[first + draw.randrange(12) :]
        try:
            found = Spaces.from_json(changed)
        except DataError:
            refused += 1
        else:
            assert Spaces.from_json(found.to_json()).scales == found.scales
    assert refused > 1000


def test_episodes_of_another_environment_are_refused():
    numbered, vectors = spaces(), spaces(False)
    theirs, others = made([2, 3]), made([2, 3], discrete=False)
    numbered.check(theirs, "x.csv")
    vectors.check(others, "x.csv")

    def refusal(spaces: Spaces, episodes: Episodes) -> str:
        with pytest.raises(DataError, match=r"^x\.csv: ") as caught:
            spaces.check(episodes, "x.csv")
        return str(caught.value)

    narrow = replace(theirs, observations=theirs.observations[:, :2])
    assert "an observation must have 3 numbers, as in training; these have 2" in refusal(numbered, narrow)
    assert "an action must be one of some, by number, as in training; these are 2 numbers" in refusal(numbered, others)
    assert "an action must be 2 numbers, as in training; these are one of some, by number" in refusal(vectors, theirs)
    one = replace(others, actions=others.actions[:, :1])
    assert "an action must be 2 numbers, as in training; these are 1 numbers" in refusal(vectors, one)
    more = replace(theirs, actions=theirs.actions + 1)
    assert "actions must be below 4, as in training; one is 4" in refusal(numbered, more)
