"""Batches of samples: each once an epoch, never over budget, little padding, an order that (seed, epoch) decides."""

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.batch import collate
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import build_tokenizers, encode_pairs, load_pairs
from glassformer.data.growth import Growth
from glassformer.data.sampler import ROWS, BatchSampler

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=200)
POOL = st.one_of(st.none(), st.integers(1, 250))


def skewed(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as translation has them: many short, few long, both sides alike but not equal."""
    random = np.random.default_rng(seed)
    source = np.clip(np.exp(random.normal(np.log(20), 0.6, count)), 1, 400).astype(np.int64)
    return source, np.clip(source * np.exp(random.normal(0, 0.25, count)), 1, 400).astype(np.int64) + 1


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(lengths=LENGTHS, budget=st.integers(60, 400), seed=st.integers(0, 3), epoch=st.integers(0, 3), pool=POOL)
def test_every_sample_once_and_no_batch_over_budget(lengths, budget, seed, epoch, pool):
    source, target = np.array(lengths).T
    batches = BatchSampler(source, target, budget, seed, pool).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for rows in batches:
        assert 0 < len(rows) * (source[rows].max() + target[rows].max()) <= budget


@given(lengths=LENGTHS, seed=st.integers(0, 3), pool=POOL)
def test_an_epoch_is_a_function_of_seed_and_epoch(lengths, seed, pool):
    source, target = np.array(lengths).T
    one, other = (BatchSampler(source, target, 100, seed, pool) for _ in range(2))
    expected = [one.epoch(epoch) for epoch in range(3)]
    np.random.seed(5)
    for epoch in (2, 0, 1, 2):  # asked in any order, with any global random state
        assert same(other.epoch(epoch), expected[epoch])


@pytest.mark.parametrize("pool", [None, 700])
def test_other_epochs_and_other_seeds_give_other_batches(pool):
    lengths = skewed(3_000)
    orders = [BatchSampler(*lengths, 2_000, seed, pool).epoch(epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    contents = [{frozenset(rows.tolist()) for rows in order} for order in orders]
    for place, order in enumerate(orders):
        for other in range(place):
            assert not same(order, orders[other])
            assert contents[place] != contents[other]  # not the batches alone are shuffled: equals change places too


def test_equal_samples_are_mixed_over_all_batches():
    """With one length for all, as the copy task has, any two samples may meet in a batch."""
    sampler = BatchSampler([8] * 1_000, [10] * 1_000, 360)
    first = next(rows for rows in sampler.epoch(0) if 0 in rows)
    assert len(first) == 20
    assert first.max() - first.min() > 500
    neighbours = {int(i) for epoch in range(20) for rows in sampler.epoch(epoch) if 0 in rows for i in rows}
    assert len(neighbours) > 250


def test_batches_of_different_lengths_have_whole_rows():
    """All but the last of a pool, and those that are too long for so many."""
    batches = BatchSampler(*skewed(3_000), 2_000).epoch(0)
    assert len([len(rows) for rows in batches if len(rows) > ROWS and len(rows) % ROWS]) <= 1
    assert len(batches) > 30
    equal = BatchSampler([8] * 1_000, [10] * 1_000, 360).epoch(0)
    assert {len(rows) for rows in equal} == {20}  # one shape anyway


def test_a_batch_takes_as_many_as_its_own_widths_allow():
    """Neither the widths of the batch before nor those of another side count."""
    batches = BatchSampler([10] * 96 + [1] * 96, [1] * 96 + [10] * 96, 1_056).epoch(0)
    assert sorted(sorted(rows.tolist()) for rows in batches) == [list(range(96)), list(range(96, 192))]


def test_the_order_of_batches_is_not_by_length():
    source, target = skewed(3_000)
    lengths = [float(target[rows].mean()) for rows in BatchSampler(source, target, 2_000).epoch(0)]
    assert abs(np.corrcoef(lengths, range(len(lengths)))[0, 1]) < 0.3


@pytest.mark.parametrize("pool", [None, 700])
def test_steps_go_through_the_epochs_in_order(pool):
    sampler = BatchSampler(*skewed(2_000), 2_000, seed=3, pool=pool)
    expected = [(epoch, rows) for epoch in range(4) for rows in sampler.epoch(epoch)]
    edges = (0, 1, len(sampler.epoch(0)) - 1, len(sampler.epoch(0)), len(expected) - 5)
    for start in (*edges, *np.random.default_rng(0).integers(len(expected) - 5, size=100).tolist()):
        fresh = BatchSampler(*skewed(2_000), 2_000, seed=3, pool=pool)
        steps = list(islice(fresh.stream(start), 5))
        assert [epoch for epoch, _ in steps] == [epoch for epoch, _ in expected[start : start + 5]]
        assert same([rows for _, rows in steps], [rows for _, rows in expected[start : start + 5]])
        epoch, rows = fresh.at(start)
        assert epoch == expected[start][0]
        assert np.array_equal(rows, expected[start][1])


def test_what_a_caller_does_to_an_epoch_stays_with_the_caller():
    sampler = BatchSampler(*skewed(500), 2_000)
    before = sampler.epoch(0)
    sampler.epoch(0).clear()
    assert same(sampler.epoch(0), before)


def test_padding_share_is_that_of_the_batches():
    sampler = BatchSampler([1, 1, 3], [2, 4, 3], 1_000)
    assert len(sampler.epoch(0)) == 1
    assert sampler.padding_share() == pytest.approx(1 - 14 / 21)
    assert BatchSampler([2] * 9, [3] * 9, 20).padding_share(4) == 0.0


@pytest.mark.parametrize(("lengths", "limit"), [
    (skewed(29_000), 0.06),
    (tuple(side[::-1] for side in skewed(29_000)), 0.06),  # the target the shorter side
    ((np.zeros(20_000, np.int64), skewed(20_000)[1]), 0.02),  # one sequence a sample, as an encoder has it
    ((skewed(20_000, 1)[0], skewed(20_000, 2)[0]), 0.16),  # sides that know nothing of each other
    ((skewed(20_000)[0] * 8 + 3, skewed(20_000, 2)[0]), 0.03),  # long documents, short summaries
])  # fmt: skip
def test_skewed_lengths_need_little_padding(lengths, limit):
    sampler = BatchSampler(*lengths, 4_096)
    assert sampler.padding_share(0) <= limit
    random = np.array_split(np.random.default_rng(0).permutation(len(lengths[0])), len(sampler.epoch(0)))
    places = sum(len(rows) * (lengths[0][rows].max() + lengths[1][rows].max()) for rows in random)
    assert 1 - (lengths[0] + lengths[1]).sum() / places > 0.5  # what random batches would need


@pytest.mark.slow
def test_multi30k_needs_two_percent(shared):
    """The figure in the sampler's docstring: English-German, shared bpe of 8,000, 4,096 places a batch."""
    files = {"train_source": str(shared("multi30k/train.en.gz")), "train_target": str(shared("multi30k/train.de.gz"))}
    pairs = load_pairs(DataConfig(**files), "train", seed=0).pairs
    encoded = encode_pairs(pairs, build_tokenizers(TokenizerConfig(kind="bpe", vocab_size=8_000), pairs))
    sampler = BatchSampler(*encoded.lengths(), batch_tokens=4_096)
    assert len(encoded) == 29_000
    assert sampler.padding_share(0) < 0.025
    assert BatchSampler(*encoded.lengths(), 4_096, pool=12_000).padding_share(0) < 0.05
    batches = [collate(encoded, rows) for rows in sampler.epoch(0)]
    places = [sum(ids.numel() for ids in (each.tokens, each.source) if ids is not None) for each in batches]
    assert max(places) <= 4_096
    assert 1 - sum(each.n_tokens for each in batches) / sum(places) == pytest.approx(sampler.padding_share(0))


def test_a_sample_that_fits_no_batch_is_named():
    with pytest.raises(DataError) as error:
        BatchSampler([5, 60, 5, 70], [5, 50, 5, 50], 100)
    for words in ("batch_tokens=100", "too long: 2 of 4", "source of sample 3", "has 120 tokens", "at least 120"):
        assert words in str(error.value)
    assert len(BatchSampler([5, 70], [5, 50], 120).epoch(0)) == 2


def test_lengths_come_in_twos_and_not_empty():
    with pytest.raises(DataError, match="2 source and 1 target lengths"):
        BatchSampler([1, 2], [1], 10)
    with pytest.raises(DataError, match="0 source and 0 target lengths"):
        BatchSampler([], [], 10)


@pytest.mark.parametrize("settings", [{"pool": 0}, {"seed": -1}])
def test_settings_that_cannot_be(settings):
    with pytest.raises(ConfigError, match=r"pool must be at least 1 and seed at least 0"):
        BatchSampler([1], [1], 10, **settings)


def test_golden_epoch():
    """The order of another machine and another version of numpy: a resumed run depends on it."""
    batches = BatchSampler([3, 1, 2, 3, 1, 2, 3, 1], [2, 2, 2, 2, 3, 3, 3, 3], 12, seed=1).epoch(2)
    assert [rows.tolist() for rows in batches] == [[2, 1], [7, 4], [5, 6], [3, 0]]


# --- Warm-ups of batch and length: what a step may take, each sample once an epoch, by (seed, step) alone


GROWTHS = st.builds(
    Growth,
    batch_steps=st.integers(0, 60),
    batch_start=st.floats(0.01, 1.0),
    length_steps=st.integers(0, 60),
    length_start=st.integers(1, 40),
)


def drawn(sampler: BatchSampler, steps: int, start: int = 0) -> list[tuple[int, list[int]]]:
    return [(epoch, rows.tolist()) for epoch, rows in islice(sampler.stream(start), steps)]


def test_a_share_grows_in_a_straight_line():
    growth = Growth(batch_steps=4, batch_start=0.2)
    assert [growth.share(step) for step in (1, 2, 3, 4, 5, 99)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert [growth.parts(step) for step in (1, 2, 3, 4, 5)] == [5, 3, 2, 2, 1]
    assert Growth().share(1) == 1.0


def test_a_length_grows_in_a_straight_line_by_eights():
    growth = Growth(length_steps=10, length_start=5)
    assert [growth.length(step, 45) for step in (1, 2, 3, 6, 10, 11, 99)] == [5, 5, 13, 21, 37, 45, 45]
    assert growth.length(1, 3) == 3  # data that are short anyway
    assert Growth().length(1, 45) == 45


@given(lengths=LENGTHS, growth=GROWTHS, budget=st.integers(60, 400), seed=st.integers(0, 3))
def test_no_step_takes_more_than_its_share(lengths, growth, budget, seed):
    source, target = np.array(lengths).T
    sampler = BatchSampler(source, target, budget, seed, growth=growth)
    full = {row: len(rows) for rows in sampler.epoch(0) for row in rows.tolist()}  # in one pool: all epochs cut alike
    for step, (_, rows) in enumerate(drawn(sampler, growth.steps + 5), 1):
        assert 0 < len(rows) <= math.ceil(max(full.values()) * growth.share(step) + 1e-6)


@given(lengths=LENGTHS, growth=GROWTHS, seed=st.integers(0, 3), pool=st.one_of(st.none(), st.integers(1, 250)))
def test_every_sample_once_an_epoch(lengths, growth, seed, pool):
    """Also in the epoch in which the warm-up ends, and in the one after it, whose batches are those of no warm-up."""
    source, target = np.array(lengths).T
    sampler = BatchSampler(source, target, 90, seed, pool, growth=growth)
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
def test_a_longer_sample_comes_only_where_no_shorter_batch_is_left(lengths, growth, seed):
    source, target = np.array(lengths).T
    sampler = BatchSampler(source, target, 90, seed, growth=Growth(0, 1.0, growth.length_steps, growth.length_start))
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


def test_short_samples_come_first_and_long_ones_are_not_lost():
    source = np.array([4] * 64 + [40] * 64)
    sampler = BatchSampler(source, source, 160, growth=Growth(length_steps=4, length_start=8))
    assert [source[rows].max() for _, rows in drawn(sampler, 4)] == [4, 4, 4, 4]
    assert {source[rows].max() for _, rows in drawn(BatchSampler(source, source, 160), 4)} == {4, 40}
    assert sorted(row for _, rows in drawn(sampler, len(sampler.epoch(0))) for row in rows) == list(range(128))


@given(lengths=LENGTHS, growth=GROWTHS, start=st.integers(0, 150))
def test_a_step_is_a_function_of_seed_and_step(lengths, growth, start):
    source, target = np.array(lengths).T
    one, other = (BatchSampler(source, target, 90, 3, growth=growth) for _ in range(2))
    assert drawn(one, 160)[start : start + 4] == drawn(other, min(4, 160 - start), start)


@given(lengths=LENGTHS, seed=st.integers(0, 3), pool=st.one_of(st.none(), st.integers(1, 250)))
def test_without_a_warm_up_nothing_changes(lengths, seed, pool):
    source, target = np.array(lengths).T
    plain, warm = BatchSampler(source, target, 90, seed, pool), BatchSampler(source, target, 90, seed, pool)
    assert drawn(plain, 40) == drawn(warm, 40)
    assert warm.notes() == []
    assert warm.epochs(40) == pytest.approx(40 / len(plain.epoch(0)))


def test_epochs_are_counted_by_samples():
    """Parts of a batch are less of an epoch than a batch is."""
    sampler = BatchSampler([8] * 100, [10] * 100, 180, growth=Growth(batch_steps=20, batch_start=0.2))
    steps = len(drawn(sampler, 100))
    rows = sum(len(rows) for _, rows in drawn(sampler, steps))
    assert sampler.epochs(steps) == pytest.approx(rows / 100, rel=0.02)
    assert sampler.notes() == ["batch warm-up: over 20 steps from 1/5 of a batch to all of it"]
