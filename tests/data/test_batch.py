"""Batches: where every id, every mark of padding and every label stands."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.batch import Batch, check_ids, collate, pad
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import Tokenizers, build_tokenizers, encode_pairs
from glassformer.data.kinds import LABEL
from glassformer.data.pairs import Pair
from glassformer.data.tokenizer import ByteTokenizer
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP

IDS = st.lists(st.integers(6, 99), max_size=7)
SIDES = st.lists(st.tuples(IDS, IDS), min_size=1, max_size=6)
BUILD = {
    "encoder-decoder": Batch.pairs,
    "encoder": Batch.blanks,
    "label": lambda texts, others: Batch.labelled(texts, [len(other) for other in others]),
    "numbers": lambda texts, others: Batch.labelled(texts, [[0.5, float(len(other)), -1.0] for other in others]),
    "tags": lambda texts, others: Batch.tagged([[9, *ids] for ids in texts], [[1, *ids] for ids in texts]),
}


def rows(tokens: torch.Tensor, keep: torch.Tensor | None) -> list[list[int]]:
    """The real ids of each row, by `keep`."""
    if keep is None:
        return tokens.tolist()
    return [row[real].tolist() for row, real in zip(tokens, keep, strict=True)]


@given(sides=SIDES)
def test_pairs_hold_each_row_and_padding_on_the_right(sides):
    sources, targets = [source for source, _ in sides], [target for _, target in sides]
    batch = Batch.pairs(sources, targets)
    assert rows(batch.tokens, batch.keep) == [[BOS, *ids, EOS] for ids in targets]
    assert rows(batch.source, batch.source_keep) == [[*ids, EOS] for ids in sources]
    assert (batch.keep is None) == (len({len(ids) for ids in targets}) == 1)
    assert (batch.source_keep is None) == (len({len(ids) for ids in sources}) == 1)
    for tokens, keep in ((batch.tokens, batch.keep), (batch.source, batch.source_keep)):
        if keep is not None:
            assert (tokens[~keep] == PAD).all()
            assert (keep[:, 1:] <= keep[:, :-1]).all()  # once it ends, a row stays ended


@given(sides=SIDES)
def test_blanks_are_labelled_and_nothing_else_is(sides):
    sources, targets = [source for source, _ in sides], [target for _, target in sides]
    batch = Batch.blanks(sources, targets)
    assert rows(batch.tokens, batch.keep) == [[*s, SEP, *[BLANK] * len(t)] for s, t in sides]
    assert rows(batch.labels, batch.label_keep) == targets
    assert torch.equal(batch.label_keep, batch.tokens == BLANK)
    assert (batch.labels[~batch.label_keep] == PAD).all()
    assert (batch.keep is None) == (len({len(s) + len(t) for s, t in sides}) == 1)


@given(sequences=st.lists(st.lists(st.integers(0, 2**40), max_size=9), min_size=1).filter(any))
def test_pad(sequences):
    tokens, keep = pad(sequences)
    assert tokens.dtype == torch.int64
    assert tokens.shape == (len(sequences), max(map(len, sequences)))
    assert rows(tokens, keep) == sequences
    assert (keep is None) == (len(set(map(len, sequences))) == 1)


@pytest.mark.parametrize("sequences", [[], [[]], [[], [], []]])
def test_nothing_to_pad(sequences):
    with pytest.raises(DataError, match=f"{len(sequences)} sequences without any"):
        pad(sequences)


@given(sides=SIDES, n=st.integers(1, 8), layout=st.sampled_from(sorted(BUILD)))
def test_split_keeps_every_row_and_drops_needless_padding(sides, n, layout):
    sources, targets = [source for source, _ in sides], [target for _, target in sides]
    parts = BUILD[layout](sources, targets).split(n)
    sizes = [len(part.tokens) for part in parts]
    assert len(parts) == min(n, len(sides))
    assert sum(sizes) == len(sides)
    assert max(sizes) - min(sizes) <= 1
    start = 0
    for part, size in zip(parts, sizes, strict=True):  # a part is the batch of those rows alone
        alone = BUILD[layout](sources[start : start + size], targets[start : start + size])
        for field in fields(Batch):
            got, expected = getattr(part, field.name), getattr(alone, field.name)
            assert (got is None) == (expected is None), field.name
            assert got is None or torch.equal(got, expected), field.name
        start += size


def test_a_prefix_reaches_no_further_than_the_part_that_it_is_in():
    tokens, keep = pad([[7, 8, 9], [7] * 10])
    whole = Batch(tokens, keep, prefix=torch.tensor([5, 2]))
    assert [part.prefix.tolist() for part in whole.split(2) if part.prefix is not None] == [[3], [2]]


def test_split_in_no_parts_is_refused():
    with pytest.raises(DataError, match="at least 1 part; got n=0"):
        Batch.pairs([[7]], [[8]]).split(0)


@pytest.mark.parametrize("layout", BUILD)
def test_to_moves_all_and_changes_nothing(layout):
    batch = BUILD[layout]([[7, 8], [9]], [[8, 7], [9]])
    there = batch.to("meta")
    back = batch.to(torch.device("cpu"))
    for field in fields(Batch):
        value = getattr(batch, field.name)
        if value is None:
            assert getattr(there, field.name) is None
        else:
            assert getattr(there, field.name).device.type == "meta"
            assert torch.equal(getattr(back, field.name), value)


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
def test_collate_is_the_layout_of_the_chosen_samples_in_order(layout):
    encoded = encode_pairs([Pair("abc", "x"), Pair("d", "yz"), Pair("ef", "")], Tokenizers(*[ByteTokenizer()] * 2))
    chosen = [2, 0]
    expected = BUILD[layout]([encoded.source[i] for i in chosen], [encoded.target[i] for i in chosen])
    got = collate(encoded, chosen, layout)
    assert torch.equal(got.tokens, expected.tokens)
    assert (got.source is None) == (layout == "encoder")
    with pytest.raises(ConfigError, match="Did you mean 'encoder'"):
        collate(encoded, chosen, "encodre")


def test_labelled_by_example():
    batch = Batch.labelled([[7, 8, 9], [7]], [1, 0])
    assert batch.tokens.tolist() == [[BOS, 7, 8, 9], [BOS, 7, PAD, PAD]]
    assert batch.keep.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.labels.tolist() == [1, 0]
    assert (batch.n_tokens, batch.pad_share, batch.label_keep, batch.source) == (6, 0.25, None, None)


def test_tagged_by_example():
    batch = Batch.tagged([[7, 8], [9]], [[1, 2], [3]])
    assert batch.tokens.tolist() == [[7, 8], [9, PAD]]
    assert batch.keep.tolist() == [[True, True], [True, False]]
    assert rows(batch.labels, batch.keep) == [[1, 2], [3]]
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\) has 1 tokens and 2 tags"):
        Batch.tagged([[7], [8]], [[1], [2, 3]])


def test_numbers_of_places_are_cut_with_their_places():
    labels = torch.arange(2 * 9 * 3.0).view(2, 9, 3)
    keep = torch.arange(9) < torch.tensor([[9], [2]])
    parts = Batch(torch.full((2, 9), 7), keep, labels=labels, label_keep=keep).split(2)
    assert [part.tokens.shape[1] for part in parts] == [9, 2]
    for part, expected in zip(parts, (labels[:1], labels[1:, :2]), strict=True):
        assert torch.equal(part.labels, expected)


@pytest.mark.shapes(False)
@pytest.mark.parametrize("kind", [torch.int64, torch.float32])
def test_labels_of_places_stand_in_the_places_of_tokens(kind):
    in_words, more = ("two", []) if kind == torch.int64 else ("three", [4])
    Batch(torch.full((2, 3), 7), labels=torch.ones(2, 3, *more, dtype=kind))
    with pytest.raises(DataError, match=rf"Labels of {in_words} dimensions .* \[2, 3\]; got \[2, 5.*Give \[B"):
        Batch(torch.full((2, 3), 7), labels=torch.ones(2, 5, *more, dtype=kind))


def test_features_are_counted_by_place():
    keep = torch.arange(4) < torch.tensor([[4], [1]])
    batch = Batch(torch.ones(2, 4, 3), keep, labels=torch.tensor([1, 0]))
    assert (batch.n_tokens, batch.pad_share) == (5, 3 / 8)
    first, second = batch.split(2)
    assert (first.tokens.shape, second.tokens.shape, second.keep) == ((1, 4, 3), (1, 1, 3), None)


def test_labels_are_counted_from_zero():
    texts = ["no", "yes", "no"]
    tokenizers = build_tokenizers(TokenizerConfig(), [Pair("x y", text) for text in texts], labelled=True)
    batch = collate(encode_pairs([Pair("x", text) for text in texts], tokenizers), [1, 0, 2], LABEL)
    assert batch.labels.tolist() == [1, 0, 0]
    assert batch.tokens.tolist() == [[BOS, 6]] * 3


@pytest.mark.parametrize("build", [Batch.pairs, Batch.blanks])
def test_as_many_sources_as_targets(build):
    with pytest.raises(DataError, match="there are 2 sources and 1 targets"):
        build([[7], [8]], [[9]])


@pytest.mark.parametrize("wrong", [-1, 10, 2**40])
def test_an_id_outside_the_vocabulary_is_named_by_row_and_column(wrong):
    rows = [[0, 9, 1, 4], [2, 3, wrong], [wrong]]
    with pytest.raises(DataError) as error:
        check_ids(rows, 10, "source")
    for words in ("source", "0 to 9", "row 1, column 2", f"holds {wrong}", "tokenizer"):
        assert words in str(error.value)


@pytest.mark.parametrize("row", [[False, True, True], [True, False, True], [False, False, False]])
@pytest.mark.parametrize("name", ["keep", "source_keep"])
def test_padding_that_is_not_on_the_right_is_refused(row, name):
    tokens = torch.tensor([[7, 8, 9]] * 3)
    keep = torch.tensor([[True, True, False], row, [True] * 3])
    with pytest.raises(DataError, match=rf"got {name} .*in row 1 .*Pad on the right"):
        Batch(tokens, source=tokens, **{name: keep})
