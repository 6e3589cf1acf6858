"""Warm-ups of batch and length: what a step may take, each sample once an epoch, by (seed, step) alone."""

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.growth import Growth
from glassformer.data.sampler import BatchSampler, WarmingSampler

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=200)
GROWTHS = st.builds(
    Growth,
    batch_steps=st.integers(0, 60),
    batch_start=st.floats(0.01, 1.0),
    length_steps=st.integers(0, 60),
    length_start=st.integers(1, 40),
)


def drawn(sampler: BatchSampler, steps: int, start: int = 0) -> list[tuple[int, list[int]]]:
    return [(epoch, rows.tolist()) for epoch, rows in islice(sampler.stream(start), steps)]


def test_a_share_grows_in_a_straight_line() -> None:
    growth = Growth(batch_steps=4, batch_start=0.2)
    assert [growth.share(step) for step in (1, 2, 3, 4, 5, 99)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert [growth.parts(step) for step in (1, 2, 3, 4, 5)] == [5, 3, 2, 2, 1]
    assert Growth().share(1) == 1.0


def test_a_length_grows_in_a_straight_line_by_eights() -> None:
    growth = Growth(length_steps=10, length_start=5)
    assert [growth.length(step, 45) for step in (1, 2, 3, 6, 10, 11, 99)] == [5, 5, 13, 21, 37, 45, 45]
    assert growth.length(1, 3) == 3  # data that are short anyway
    assert Growth().length(1, 45) == 45


@given(lengths=LENGTHS, growth=GROWTHS, budget=st.integers(60, 400), seed=st.integers(0, 3))
def test_no_step_takes_more_than_its_share(
    lengths: list[tuple[int, int]], growth: Growth, budget: int, seed: int
) -> None:
    source, target = np.array(lengths).T
    sampler = WarmingSampler(source, target, budget, seed, growth=growth)
    full = {row: len(rows) for rows in sampler.epoch(0) for row in rows.tolist()}  # in one pool: all epochs cut alike
    for step, (_, rows) in enumerate(drawn(sampler, growth.steps + 5), 1):
        assert 0 < len(rows) <= math.ceil(max(full.values()) * growth.share(step) + 1e-6)


@given(lengths=LENGTHS, growth=GROWTHS, seed=st.integers(0, 3), pool=st.one_of(st.none(), st.integers(1, 250)))
def test_every_sample_once_an_epoch(
    lengths: list[tuple[int, int]], growth: Growth, seed: int, pool: int | None
) -> None:
    """Also in the epoch in which the warm-up ends, and in the one after it, whose batches are those of no warm-up."""
    source, target = np.array(lengths).T
    sampler = WarmingSampler(source, target, 90, seed, pool, growth=growth)
    last = sampler.at(max(0, growth.steps - 1))[0]
    seen: dict[int, list[int]] = {}
    for epoch, rows in sampler.stream():
        if epoch > last + 1:
            break
        seen.setdefault(epoch, []).extend(rows.tolist())
    assert list(seen) == list(range(last + 2))
    assert all(sorted(rows) == list(range(len(lengths))) for rows in seen.values())
    assert seen[last + 1] == np.concatenate(BatchSampler(source, target, 90, seed, pool).epoch(last + 1)).tolist()


@given(lengths=LENGTHS, growth=GROWTHS, seed=st.integers(0, 3))
def test_a_longer_sample_comes_only_where_no_shorter_batch_is_left(
    lengths: list[tuple[int, int]], growth: Growth, seed: int
) -> None:
    source, target = np.array(lengths).T
    sampler = WarmingSampler(source, target, 90, seed, growth=Growth(0, 1.0, growth.length_steps, growth.length_start))
    longer, longest = np.maximum(source, target), int(max(source.max(), target.max()))
    steps = drawn(sampler, growth.length_steps)
    late = 0
    for place, (epoch, rows) in enumerate(steps):
        allowed = growth.length(place + 1, longest)
        if longer[rows].max() > allowed:
            late += 1
            left = [each for other, each in steps[place + 1 :] if other == epoch]
            assert all(longer[each].max() >= longer[rows].max() for each in left)
    if growth.length_steps:
        assert f"; {late} of these steps hold longer samples" in sampler.notes()[-1]


def test_short_samples_come_first_and_long_ones_are_not_lost() -> None:
    source = np.array([4] * 64 + [40] * 64)
    sampler = WarmingSampler(source, source, 160, growth=Growth(length_steps=4, length_start=8))
    early = [source[rows].max() for _, rows in drawn(sampler, 4)]
    assert early == [4, 4, 4, 4]
    assert {source[rows].max() for _, rows in drawn(BatchSampler(source, source, 160), 4)} == {4, 40}
    assert sorted(row for _, rows in drawn(sampler, len(sampler.epoch(0))) for row in rows) == list(range(128))


@given(lengths=LENGTHS, growth=GROWTHS, start=st.integers(0, 150))
def test_a_step_is_a_function_of_seed_and_step(lengths: list[tuple[int, int]], growth: Growth, start: int) -> None:
    source, target = np.array(lengths).T
    one, other = (WarmingSampler(source, target, 90, 3, growth=growth) for _ in range(2))
    assert drawn(one, 160)[start : start + 4] == drawn(other, min(4, 160 - start), start)


@given(lengths=LENGTHS, seed=st.integers(0, 3), pool=st.one_of(st.none(), st.integers(1, 250)))
def test_without_a_warm_up_nothing_changes(lengths: list[tuple[int, int]], seed: int, pool: int | None) -> None:
    source, target = np.array(lengths).T
    plain, warm = BatchSampler(source, target, 90, seed, pool), WarmingSampler(source, target, 90, seed, pool)
    assert drawn(plain, 40) == drawn(warm, 40)
    assert warm.notes() == []
    assert warm.epochs(40) == pytest.approx(40 / len(plain.epoch(0)))


def test_epochs_are_counted_by_samples() -> None:
    """Parts of a batch are less of an epoch than a batch is."""
    sampler = WarmingSampler([8] * 100, [10] * 100, 180, growth=Growth(batch_steps=20, batch_start=0.2))
    steps = len(drawn(sampler, 100))
    rows = sum(len(rows) for _, rows in drawn(sampler, steps))
    assert sampler.epochs(steps) == pytest.approx(rows / 100, rel=0.02)
    assert sampler.notes() == ["batch warm-up: over 20 steps from 1/5 of a batch to all of it"]
