"""Batches of samples: each once an epoch, never over budget, little padding, an order that (seed, epoch) decides."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.batch import collate
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import build_tokenizers, encode_pairs, load_pairs
from glassformer.data.sampler import ROWS, BatchSampler

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=200)
POOL = st.one_of(st.none(), st.integers(1, 250))


def skewed(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as translation has them: many short, few long, both sides alike but not equal."""
    random = np.random.default_rng(seed)
    source = np.clip(np.exp(random.normal(np.log(20), 0.6, count)), 1, 400).astype(np.int64)
    target = np.clip(source * np.exp(random.normal(0, 0.25, count)), 1, 400).astype(np.int64) + 1
    return source, target


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(lengths=LENGTHS, budget=st.integers(60, 400), seed=st.integers(0, 3), epoch=st.integers(0, 3), pool=POOL)
def test_every_sample_once_and_no_batch_over_budget(
    lengths: list[tuple[int, int]], budget: int, seed: int, epoch: int, pool: int | None
) -> None:
    source, target = np.array(lengths).T
    batches = BatchSampler(source, target, budget, seed, pool).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for rows in batches:
        assert 0 < len(rows) * (source[rows].max() + target[rows].max()) <= budget


@given(lengths=LENGTHS, seed=st.integers(0, 3), pool=POOL)
def test_an_epoch_is_a_function_of_seed_and_epoch(lengths: list[tuple[int, int]], seed: int, pool: int | None) -> None:
    source, target = np.array(lengths).T
    one, other = (BatchSampler(source, target, 100, seed, pool) for _ in range(2))
    expected = [one.epoch(epoch) for epoch in range(3)]
    np.random.seed(5)
    for epoch in (2, 0, 1, 2):  # asked in any order, with any global random state
        assert same(other.epoch(epoch), expected[epoch])


@pytest.mark.parametrize("pool", [None, 700])
def test_other_epochs_and_other_seeds_give_other_batches(pool: int | None) -> None:
    lengths = skewed(3_000)
    orders = [BatchSampler(*lengths, 2_000, seed, pool).epoch(epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    contents = [{frozenset(rows.tolist()) for rows in order} for order in orders]
    for place, order in enumerate(orders):
        for other in range(place):
            assert not same(order, orders[other])
            assert contents[place] != contents[other]  # not the batches alone are shuffled: equals change places too


def test_equal_samples_are_mixed_over_all_batches() -> None:
    """With one length for all, as the copy task has, any two samples may meet in a batch."""
    sampler = BatchSampler([8] * 1_000, [10] * 1_000, 360)
    first = next(rows for rows in sampler.epoch(0) if 0 in rows)
    assert len(first) == 20
    assert first.max() - first.min() > 500
    neighbours = {int(i) for epoch in range(20) for rows in sampler.epoch(epoch) if 0 in rows for i in rows}
    assert len(neighbours) > 250


def test_batches_of_different_lengths_have_whole_rows() -> None:
    """All but the last of a pool, and those that are too long for so many."""
    batches = BatchSampler(*skewed(3_000), 2_000).epoch(0)
    broken = [len(rows) for rows in batches if len(rows) > ROWS and len(rows) % ROWS]
    assert len(broken) <= 1
    assert len(batches) > 30
    alike = BatchSampler([8] * 1_000, [10] * 1_000, 360).epoch(0)
    assert {len(rows) for rows in alike} == {20}  # one shape anyway


def test_a_batch_takes_as_many_as_its_own_widths_allow() -> None:
    """Neither the widths of the batch before nor those of another side count."""
    batches = BatchSampler([10] * 96 + [1] * 96, [1] * 96 + [10] * 96, 1_056).epoch(0)
    assert sorted(sorted(rows.tolist()) for rows in batches) == [list(range(96)), list(range(96, 192))]


def test_the_order_of_batches_is_not_by_length() -> None:
    source, target = skewed(3_000)
    lengths = [float(target[rows].mean()) for rows in BatchSampler(source, target, 2_000).epoch(0)]
    assert abs(np.corrcoef(lengths, range(len(lengths)))[0, 1]) < 0.3


@pytest.mark.parametrize("pool", [None, 700])
def test_steps_go_through_the_epochs_in_order(pool: int | None) -> None:
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


def test_what_a_caller_does_to_an_epoch_stays_with_the_caller() -> None:
    sampler = BatchSampler(*skewed(500), 2_000)
    before = sampler.epoch(0)
    sampler.epoch(0).clear()
    assert same(sampler.epoch(0), before)


def test_padding_share_is_that_of_the_batches() -> None:
    sampler = BatchSampler([1, 1, 3], [2, 4, 3], 1_000)
    assert len(sampler.epoch(0)) == 1
    assert sampler.padding_share() == pytest.approx(1 - 14 / 21)
    assert BatchSampler([2] * 9, [3] * 9, 20).padding_share(4) == 0.0


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [
        (skewed(29_000), 0.06),
        (tuple(side[::-1] for side in skewed(29_000)), 0.06),  # the target the shorter side
        ((np.zeros(20_000, np.int64), skewed(20_000)[1]), 0.02),  # one sequence a sample, as an encoder has it
        ((skewed(20_000, 1)[0], skewed(20_000, 2)[0]), 0.16),  # sides that know nothing of each other
        ((skewed(20_000)[0] * 8 + 3, skewed(20_000, 2)[0]), 0.03),  # long documents, short summaries
    ],
)
def test_skewed_lengths_need_little_padding(lengths: tuple[np.ndarray, np.ndarray], limit: float) -> None:
    sampler = BatchSampler(*lengths, 4_096)
    assert sampler.padding_share(0) <= limit
    random = np.array_split(np.random.default_rng(0).permutation(len(lengths[0])), len(sampler.epoch(0)))
    places = sum(len(rows) * (lengths[0][rows].max() + lengths[1][rows].max()) for rows in random)
    assert 1 - (lengths[0] + lengths[1]).sum() / places > 0.5  # what random batches would need


@pytest.mark.slow
def test_multi30k_needs_two_percent(shared: Callable[[str], Path]) -> None:
    """The figure in the sampler's docstring: English-German, shared bpe of 8,000, 4,096 places a batch."""
    files = {
        "train_source": str(shared("multi30k/train.en.gz")),
        "train_target": str(shared("multi30k/train.de.gz")),
    }
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


def test_a_sample_that_fits_no_batch_is_named() -> None:
    with pytest.raises(DataError) as error:
        BatchSampler([5, 60, 5, 70], [5, 50, 5, 50], 100)
    for words in ("batch_tokens=100", "too long: 2 of 4", "source of sample 3", "has 120 tokens", "at least 120"):
        assert words in str(error.value)
    assert len(BatchSampler([5, 70], [5, 50], 120).epoch(0)) == 2


def test_lengths_come_in_twos_and_not_empty() -> None:
    with pytest.raises(DataError, match="2 source and 1 target lengths"):
        BatchSampler([1, 2], [1], 10)
    with pytest.raises(DataError, match="0 source and 0 target lengths"):
        BatchSampler([], [], 10)


@pytest.mark.parametrize("settings", [{"pool": 0}, {"seed": -1}])
def test_settings_that_cannot_be(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"pool must be at least 1 and seed at least 0"):
        BatchSampler([1], [1], 10, **settings)


def test_golden_epoch() -> None:
    """The order of another machine and another version of numpy: a resumed run depends on it."""
    batches = BatchSampler([3, 1, 2, 3, 1, 2, 3, 1], [2, 2, 2, 2, 3, 3, 3, 3], 12, seed=1).epoch(2)
    assert [rows.tolist() for rows in batches] == [[2, 1], [7, 4], [5, 6], [3, 0]]
