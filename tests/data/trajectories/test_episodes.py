"""Episodes: their lengths, times, returns and returns-to-go, beside a loop over the steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.trajectories.episodes import made, same

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(lengths=LENGTHS, discount=st.sampled_from([1.0, 0.9, 0.25]))
def test_returns_to_go_are_the_rewards_from_here_to_the_end(lengths, discount):
    episodes = made(lengths)
    expected: list[float] = []
    for first, length in zip(episodes.edges, lengths, strict=False):
        rewards = episodes.rewards[first : first + length].tolist()
        expected += [sum(r * discount**i for i, r in enumerate(rewards[t:])) for t in range(length)]
    found = episodes.returns_to_go(discount)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_returns_to_go_leave_the_rewards_as_they_are():
    episodes = made([3, 2])
    before = episodes.rewards.copy()
    assert episodes.returns_to_go() is not episodes.rewards
    assert np.array_equal(episodes.rewards, before)
    assert episodes.returns_to_go(0.5)[2] == episodes.rewards[2]  # the last step has its own reward alone


@given(lengths=LENGTHS)
def test_lengths_times_and_returns_are_those_of_each_episode(lengths):
    episodes = made(lengths)
    assert (len(episodes), episodes.n_steps) == (len(lengths), sum(lengths))
    assert episodes.lengths.tolist() == lengths
    assert episodes.times.tolist() == [t for length in lengths for t in range(length)]
    expected = [episodes.rewards[a:b].sum() for a, b in zip(episodes.edges[:-1], episodes.edges[1:], strict=True)]
    np.testing.assert_allclose(episodes.returns, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(episodes.returns_to_go()[episodes.edges[:-1]], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("discrete", [True, False])
def test_a_part_is_some_of_the_episodes(discrete):
    episodes = made([2, 5, 1, 4], discrete=discrete)
    assert episodes.discrete == discrete
    assert same(episodes.part(0, 4), episodes)
    part = episodes.part(1, 3)
    assert part.edges.tolist() == [0, 5, 6]
    assert np.array_equal(part.observations, episodes.observations[2:8])
    assert np.array_equal(part.actions, episodes.actions[2:8])
    assert np.array_equal(part.rewards, episodes.rewards[2:8])
    assert part.times.tolist() == [0, 1, 2, 3, 4, 0]
