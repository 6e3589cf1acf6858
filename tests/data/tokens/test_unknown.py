"""What the vocabulary lacks of a text, and how a user is told of it."""

import pytest

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.vocabulary import UNK, lacking
from glassformer.data.tokens.words import WordTokenizer


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("character", ["é", "ñ", "é"]), ("word", ["éñ", "é"]), ("byte", [])],
)
def test_the_parts_that_become_unknown(kind, parts):
    made = TOKENIZERS[kind].train(["ab a b"], TokenizerConfig(kind=kind))
    assert made.lacks("a éñ b é") == parts
    assert made.encode("a éñ b é").count(UNK) == len(parts)
    assert made.lacks("ab") == []
    with pytest.raises(DataError, match="lone surrogate"):
        made.lacks("\ud800")


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ("é", "'é' (U+00E9)"),
        ("ééñ", "'é' (U+00E9, 2 times), 'ñ' (U+00F1)"),
        (["zebra", "a" * 50, "zebra"], f"'zebra' (2 times), '{'a' * 40}'"),
        ("\u200b", "'\\u200b' (U+200B)"),
        ("vwxyz", "'v' (U+0076), 'w' (U+0077), 'x' (U+0078), 'y' (U+0079), 'z' (U+007A)"),
        ("uvwxyzz", "'z' (U+007A, 2 times), 'u' (U+0075), 'v' (U+0076), 'w' (U+0077), 'x' (U+0078), ..."),
    ],
)
def test_the_commonest_are_named(parts, named):
    told = f"the vocabulary lacks a part of it, {named}; the model read <unk> in its place"
    assert lacking("it", parts) == told


def test_a_word_keeps_its_name_and_the_special_token_has_its_id():
    made = WordTokenizer(["the", "<unk>", "<unk> (id 3)"])
    assert made.names([7, 3, 8, 0]) == ["<unk>", "<unk> (id 3)'", "<unk> (id 3)", "<pad>"]
