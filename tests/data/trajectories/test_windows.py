"""What a model reads of episodes: three places a step, each row as if it were alone, and no action before its time."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.trajectories.episodes import OBSERVED, made
from glassformer.data.batch import Batch
from glassformer.data.trajectories.episodes import Episodes
from glassformer.data.trajectories.spaces import TIMES, Spaces
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
def test_a_window_by_hand(discrete: bool) -> None:
    episodes, spaces = example(discrete)
    batch = batch_of(episodes, spaces, (7, 4))
    assert batch.tokens.dtype == torch.float32
    expected = [vector for step in range(7, 11) for vector in written_out(episodes, spaces, step)]
    np.testing.assert_allclose(batch.tokens[0].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert batch.keep is None
    assert batch.label_keep is not None
    assert batch.label_keep[0].tolist() == [False, True, False] * 4
    assert batch.labels is not None
    asked = batch.labels[0][1::3]
    if discrete:
        assert asked.tolist() == episodes.actions[7:11].tolist()
        assert asked.dtype == torch.int64
    else:
        np.testing.assert_array_equal(asked, as_read(spaces, episodes.actions[7:11]).astype(np.float32))
        np.testing.assert_array_equal(asked, batch.tokens[0, 2::3, 4 + OBSERVED : 6 + OBSERVED])


@BOTH
@given(draw=st.data())
def test_each_row_is_what_its_window_gives_alone(discrete: bool, draw: st.DataObject) -> None:
    episodes, spaces = example(discrete)
    windows: list[tuple[int, int]] = []
    for _ in range(draw.draw(st.integers(1, 5))):
        e = draw.draw(st.integers(0, len(LENGTHS) - 1))
        first = draw.draw(st.integers(0, LENGTHS[e] - 1))
        windows.append((int(episodes.edges[e]) + first, draw.draw(st.integers(1, LENGTHS[e] - first))))
    together = batch_of(episodes, spaces, *windows)
    longest = 3 * max(length for _, length in windows)
    assert together.labels is not None
    assert together.label_keep is not None
    for row, (first, length) in enumerate(windows):
        alone, places = batch_of(episodes, spaces, (first, length)), 3 * length
        assert alone.labels is not None
        assert alone.label_keep is not None
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
def test_an_action_is_read_where_it_is_done_and_nowhere_before(discrete: bool) -> None:
    """Otherwise the model would be told what it has to predict."""
    episodes, spaces = example(discrete)
    plain = batch_of(episodes, spaces, (6, 8)).tokens[0]
    for t in range(8):
        actions = episodes.actions.copy()
        actions[6 + t] = (actions[6 + t] + 1) % 4 if discrete else actions[6 + t] + 1.5
        other = batch_of(replace(episodes, actions=actions), spaces, (6, 8)).tokens[0]
        differing = (plain != other).any(-1).nonzero()[:, 0].tolist()
        assert differing == [3 * t + 2]


def test_an_observation_and_a_return_are_read_where_they_stand() -> None:
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


def test_other_episodes_change_nothing_in_a_window() -> None:
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
    assert plain.labels is not None
    assert other.labels is not None
    assert torch.equal(plain.labels[plain.label_keep], other.labels[other.label_keep])


def test_time_is_told_by_waves() -> None:
    found = waves(np.arange(10_000))
    assert found.shape == (10_000, TIMES)
    assert len(np.unique(found, axis=0)) == 10_000
    assert found[0].tolist() == [0.0] * (TIMES // 2) + [1.0] * (TIMES // 2)


def test_actions_are_done_as_they_are_read() -> None:
    """Within the bounds of the training data: a model may predict what lies beyond."""
    episodes, spaces = example(False)
    np.testing.assert_allclose(as_done(spaces, as_read(spaces, episodes.actions)), episodes.actions, rtol=1e-6)
    low, high = (np.array(each) for each in (spaces.scales.acted_low, spaces.scales.acted_high))
    far = as_done(spaces, np.array([[-1e6, 1e6], [1e6, -1e6]]))
    np.testing.assert_array_equal(far, [[low[0], high[1]], [high[0], low[1]]])
