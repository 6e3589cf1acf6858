"""Each id of a text begins where it stands in the text, whatever the tokenizer loses of it."""

from itertools import pairwise
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from data.tokens.published_examples import json_of
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.decoding import begins_in, composed_of
from glassformer.data.tokens.exported import adopt
from glassformer.data.tokens.vocabulary import UNK

TEXT = "the cat déjà sat 😀 on 12"
MADE = {
    kind: made.train([TEXT] * 3, TokenizerConfig(kind=kind, vocab_size=max(290, made.least_vocab_size + 30)))
    for kind, made in TOKENIZERS.items()
}
MADE["SentencePiece"] = adopt(json_of("Llama 2"), {}).tokenizer
MADE["GPT-NeoX"] = adopt(json_of("GPT-NeoX"), {}).tokenizer
ACCENT, BELOW = "\u0301", "\u0323"
PARTS = ["the", "cat", "zebra", "<unk>", " ", "  ", "\t", "déjà", "漢", "😀", "\n", "▁", "q", "e", ACCENT, BELOW]
HANGUL = ["\u1100", "\u1161", "\u11a8", "\uac00"]


@pytest.mark.parametrize(("kind", "text", "begins"), [
    ("word", " the  zebra\tcat on", [1, 6, 12, 15]),
    ("character", "zet", [0, 1, 2]),
    ("byte", "a😀b", [0, 1, 1, 1, 1, 2]),
])  # fmt: skip
def test_by_hand(kind, text, begins):
    assert begins_in(text, MADE[kind].encode(text), MADE[kind]) == begins


@pytest.mark.parametrize("kind", MADE)
@given(text=some.lists(some.sampled_from(PARTS), max_size=12).map("".join))
def test_ids_stand_in_the_text_in_their_order(kind, text):
    tokenizer = MADE[kind]
    ids = tokenizer.encode(text)
    begins = begins_in(text, ids, tokenizer)
    assert len(begins) == len(ids)
    assert all(one <= other for one, other in pairwise([0, *begins, len(text)]))
    missing = iter(tokenizer.lacks(text))
    for n, (id, begin) in enumerate(zip(ids, begins, strict=True)):
        part = next(missing).encode() if id == UNK else tokenizer.adds(id, first=n == 0)
        if whole(part):  # of parts of characters, `test_by_hand` has some
            assert tokenizer.normal(text[begin:]).lstrip(" \t\n▁").startswith(part.decode().strip(" \t\n▁"))


@given(text=some.lists(some.sampled_from([*"ae x", ACCENT, BELOW, "é", *HANGUL]), max_size=10).map("".join))
@example(text=f"e{BELOW}{ACCENT}")
def test_each_composed_character_has_its_place(text):
    """What is before the place of a run is composed without what is behind it."""
    places, composed = composed_of(text), normalize("NFC", text)
    assert len(places) == len(composed) + 1
    assert places[-1] == len(text)
    for n, (one, other) in enumerate(pairwise([-1, *places])):
        assert one <= other
        if one < other:
            assert normalize("NFC", text[:other]) == composed[:n]


def test_a_composed_character_is_one_place():
    assert composed_of(f"cafe{ACCENT} x") == [0, 1, 2, 3, 5, 6, 7]


def whole(part: bytes) -> bool:
    return part.decode(errors="ignore").encode() == part


def test_what_is_behind_composed_characters_stands_where_it_was_typed():
    tokenizer, text = MADE["GPT-NeoX"], f"e{ACCENT}q e{ACCENT}qé"
    ids = tokenizer.encode(text)
    told = zip(ids, begins_in(text, ids, tokenizer), strict=True)
    assert [begin for id, begin in told if tokenizer.adds(id) == b"q"] == [2, 6]
