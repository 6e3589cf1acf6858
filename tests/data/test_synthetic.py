"""Synthetic tasks: right targets, a pair as a function of (seed, split, index), and splits that share no source."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.data.dataset import make_pairs
from glassformer.data.kinds import EQUAL_LENGTHS
from glassformer.data.pairs import Pair
from glassformer.data.synthetic import TASKS, spell

SMALL = {"train_size": 400, "dev_size": 40, "test_size": 60}


@pytest.fixture(params=list(TASKS))
def config(request: pytest.FixtureRequest) -> DataConfig:
    lengths = {"min_length": 3, "max_length": 9} if request.param in EQUAL_LENGTHS else {}
    return DataConfig(task=request.param, **lengths, **SMALL)


def numbers(source: str) -> list[int]:
    return [int(word) for word in source.split()]


RIGHT = {
    "copy": lambda source, target: source == target,
    "reverse": lambda source, target: source.split()[::-1] == target.split(),
    "sort": lambda source, target: (
        Counter(source.split()) == Counter(target.split())
        and all(a <= b for a, b in zip(target.split(), target.split()[1:], strict=False))
    ),
    "numbers": lambda source, target: target.split() == [spell(number) for number in numbers(source)],
    "spell": lambda source, target: target == spell(int(source)),
}


def test_every_target_is_right(config):
    for split in ("train", "dev", "test"):
        for pair in make_pairs(config, split, seed=1):
            assert RIGHT[config.task](pair.source, pair.target), pair


def test_golden_pairs():
    """What other versions made, and every other machine makes: a change here changes every user's data."""
    first = {task: make_pairs(DataConfig(task=task, train_size=1), "train", seed=0)[0] for task in TASKS}
    assert first == {
        "copy": Pair("k a e o r r k h", "k a e o r r k h"),
        "reverse": Pair("d p b p a q e n", "n e q a p b p d"),
        "sort": Pair("o l n j f i f n", "f f i j l n n o"),
        "numbers": Pair("59 70 19 43", "fifty-nine seventy nineteen forty-three"),
        "spell": Pair("929", "nine hundred twenty-nine"),
    }


def test_sizes_are_as_asked(config):
    assert [len(make_pairs(config, split, 0)) for split in ("train", "dev", "test")] == [400, 40, 60]


def test_a_pair_depends_on_seed_split_and_index_alone(config):
    for split in ("train", "dev", "test"):
        before = make_pairs(config, split, seed=3)
        random.seed(99)
        assert make_pairs(config, split, seed=3) == before
        fewer = make_pairs(replace(config, **{f"{split}_size": 30}), split, seed=3)
        assert fewer == before[:30]  # a larger set only goes on
        assert make_pairs(config, split, seed=4) != before


def test_splits_share_no_source_whatever_the_seeds(config):
    sources = {
        split: {pair.source for seed in range(3) for pair in make_pairs(config, split, seed)}
        for split in ("train", "dev", "test")
    }
    assert not sources["train"] & sources["dev"]
    assert not sources["train"] & sources["test"]
    assert not sources["dev"] & sources["test"]
    assert all(len(found) > 75 for found in sources.values())


def test_dev_and_test_ask_nothing_twice(config):
    for split in ("dev", "test"):
        sources = [pair.source for pair in make_pairs(config, split, seed=0)]
        assert len(set(sources)) == len(sources)


def test_the_hash_splits_ninety_five_five(config):
    task = TASKS[config.task]
    share = Counter(task.split_of(str(number)) for number in range(100, 30_100))
    assert share["train"] == pytest.approx(27_000, rel=0.02)
    assert share["dev"] == pytest.approx(1_500, rel=0.1)
    assert share["test"] == pytest.approx(1_500, rel=0.1)


def test_spell_holds_out_no_word_and_spells_all_lengths():
    config = DataConfig(task="spell", train_size=12_000, dev_size=200, test_size=1_000)
    train, dev, test = (make_pairs(config, split, seed=0) for split in ("train", "dev", "test"))
    lengths = Counter(len(pair.source) for pair in train)
    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    assert all(count == pytest.approx(2_000, rel=0.1) for count in lengths.values())
    assert all(TASKS["spell"].split_of(str(number)) == "train" for number in range(100))
    words = {word for pair in train for word in pair.target.split()}
    assert {word for pair in dev + test for word in pair.target.split()} <= words
    assert {"zero", "nineteen", "ninety-nine", "hundred", "thousand"} <= words
    assert {len(pair.source) for pair in test} == {3, 4, 5, 6}
    assert max(int(pair.source) for pair in train) > 990_000
    assert not any(pair.source.startswith("0") and pair.source != "0" for pair in train)


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_symbols_and_lengths_are_uniform(task):
    config = DataConfig(task=task, symbols=5, min_length=4, max_length=7, train_size=4_000)
    pairs = make_pairs(config, "train", seed=0)
    lengths = Counter(len(pair.source.split()) for pair in pairs)
    symbols = Counter(symbol for pair in pairs for symbol in pair.source.split())
    assert sorted(lengths) == [4, 5, 6, 7]
    assert sorted(symbols) == list("abcde")
    for counts in (lengths, symbols):
        assert all(count == pytest.approx(counts.total() / len(counts), rel=0.15) for count in counts.values())


def test_numbers_are_two_to_seven_of_0_to_99():
    pairs = make_pairs(DataConfig(task="numbers", train_size=3_000), "train", seed=0)
    assert {len(pair.source.split()) for pair in pairs} == {2, 3, 4, 5, 6, 7}
    assert {number for pair in pairs for number in numbers(pair.source)} == set(range(100))


def test_more_symbols_than_letters_are_numbered_words_that_sort():
    pairs = make_pairs(DataConfig(task="sort", symbols=101, train_size=500), "train", seed=0)
    seen = sorted({symbol for pair in pairs for symbol in pair.source.split()})
    assert seen == [f"s{number:03d}" for number in range(101)]
    with_letters = make_pairs(DataConfig(task="sort", symbols=26, train_size=500), "train", seed=0)
    assert {symbol for pair in with_letters for symbol in pair.source.split()} == set("abcdefghijklmnopqrstuvwxyz")


def test_a_task_with_too_few_sources_says_so():
    config = DataConfig(task="copy", symbols=3, min_length=4, max_length=4, dev_size=50)
    existing = sum(TASKS["copy"].split_of(" ".join(symbols)) == "dev" for symbols in product("abc", repeat=4))
    assert 0 < existing < 50
    with pytest.raises(ConfigError) as error:
        make_pairs(config, "dev", seed=0)
    for words in ("'copy'", f"only {existing} different dev sources", "data.dev_size is 50", "Lower data.dev_size"):
        assert words in str(error.value)


def test_an_unknown_split_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="Did you mean 'dev'"):
        make_pairs(DataConfig(task="copy"), "dve", seed=0)
