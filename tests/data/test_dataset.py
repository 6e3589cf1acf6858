"""From a config to encoded pairs: the right files, the right vocabularies, the right ids and lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import Sequences, Tokenizers, build_tokenizers, encode_pairs, load_pairs, make_pairs
from glassformer.data.pairs import Loaded, Pair
from glassformer.data.tokenizer import ByteTokenizer
from glassformer.data.tokens.vocabulary import UNK

PAIRS = [Pair("a b", "x"), Pair("c", "y z y"), Pair("a", "x a")]


def test_each_split_is_read_from_its_own_files(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n\t\n", encoding="utf-8")
    (tmp_path / "dev.en").write_text("c\n", encoding="utf-8")
    (tmp_path / "dev.de").write_text("d\n", encoding="utf-8")
    config = DataConfig(
        train=str(tmp_path / "train.tsv"),
        dev_source=str(tmp_path / "dev.en"),
        dev_target=str(tmp_path / "dev.de"),
        skip_empty=True,
    )
    assert load_pairs(config, "train", seed=0) == Loaded([Pair("a", "b")], 1)
    assert load_pairs(config, "dev", seed=0) == Loaded([Pair("c", "d")], 0)
    with pytest.raises(ConfigError) as error:
        load_pairs(config, "test", seed=0)
    for words in ("no file for the test pairs", "data.test", "data.test_source", "data.task"):
        assert words in str(error.value)
    with pytest.raises(DataError, match="empty"):
        load_pairs(DataConfig(train=str(tmp_path / "train.tsv")), "train", seed=0)


def test_a_task_is_made_with_the_seed():
    config = DataConfig(task="reverse", train_size=20, dev_size=5)
    assert load_pairs(config, "train", seed=7) == Loaded(make_pairs(config, "train", 7), 0)
    assert load_pairs(config, "dev", seed=7).pairs == make_pairs(config, "dev", 7)
    assert load_pairs(config, "train", seed=8).pairs != load_pairs(config, "train", seed=7).pairs


@pytest.mark.parametrize("task", ["pairs", "copy"])
def test_an_unknown_split_is_refused(task):
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        load_pairs(DataConfig(task=task), "trains", seed=0)


@pytest.mark.parametrize("kind", ["word", "character", "byte", "bpe"])
def test_a_shared_vocabulary_is_one_object_that_knows_both_sides(kind):
    tokenizers = build_tokenizers(TokenizerConfig(kind=kind, vocab_size=300), PAIRS)
    assert tokenizers.source is tokenizers.target
    assert tokenizers.source.kind == kind
    assert all(UNK not in tokenizers.source.encode(text) for pair in PAIRS for text in pair)


def test_separate_vocabularies_know_their_own_side():
    config = TokenizerConfig(kind="word", source_kind="character", shared=False)
    source, target = build_tokenizers(config, PAIRS)
    assert (source.kind, target.kind) == ("character", "word")
    assert source.encode("x") == [UNK]
    assert target.encode("b") == [UNK]
    assert target.decode(target.encode("z y a")) == "z y a"
    same_kind = build_tokenizers(TokenizerConfig(shared=False), PAIRS)
    assert same_kind.source.vocab_size == 6 + len("abc")
    assert same_kind.target.vocab_size == 6 + len("xyza")


def test_no_pairs_no_vocabulary():
    with pytest.raises(DataError, match="at least one pair"):
        build_tokenizers(TokenizerConfig(), [])


def test_encoded_pairs_are_the_ids_of_each_side():
    tokenizers = build_tokenizers(TokenizerConfig(shared=False), PAIRS)
    encoded = encode_pairs(PAIRS, tokenizers)
    assert len(encoded) == 3
    assert list(encoded.source) == [tokenizers.source.encode(pair.source) for pair in PAIRS]
    assert list(encoded.target) == [tokenizers.target.encode(pair.target) for pair in PAIRS]


def test_lengths_count_the_special_tokens_of_the_layout():
    encoded = encode_pairs([Pair("abc", "x"), Pair("a", "xyz")], Tokenizers(ByteTokenizer(), ByteTokenizer()))
    source, target = encoded.lengths()
    assert source.tolist() == [4, 2]  # x <eos>
    assert target.tolist() == [3, 5]  # <bos> y <eos>
    nothing, sequence = encoded.lengths("encoder")
    assert nothing.tolist() == [0, 0]
    assert sequence.tolist() == [5, 5]  # x <sep> blanks
    with pytest.raises(ConfigError, match="Did you mean 'encoder'"):
        encoded.lengths("encodr")


@given(rows=st.lists(st.lists(st.integers(0, 100_000), max_size=9), max_size=9))
def test_sequences_read_like_lists(rows):
    flat = Sequences(iter(rows))
    assert len(flat) == len(rows)
    assert list(flat) == rows
    assert flat[1:-1] == rows[1:-1]
    assert flat[::-2] == rows[::-2]
    assert flat.lengths.tolist() == [len(row) for row in rows]
    for index in range(-len(rows), len(rows)):
        assert flat[index] == rows[index]
    for index in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            flat[index]


def test_sequences_are_flat_and_small():
    flat = Sequences([[1, 2, 3]] * 1_000)
    assert flat.flat.dtype == np.int32
    assert flat.flat.nbytes == 12_000
