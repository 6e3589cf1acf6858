"""Which word each id of a row is of, for every kind of tokenizer."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, NO_WORD, PAD, SPACE, UNK

TEXTS = ["the cat sat on the mat", "der Hund schläft unter dem Tisch", "a \u3000b\u00a0c\u2003d \x1ce"]
LETTERS = "ab#\u00e9\u65e5 \n\u00a0\u3000\u2003\x1c"
HARD = ["", " ", "\n\n \t\r\n a", "  two  words  ", "<pad> ##s a##s", "日本 語\u3000の", "\U0001f469\u200d\U0001f680 x"]
TRAINED = {
    kind: cls.train([*TEXTS, *HARD, LETTERS], TokenizerConfig(kind=kind, vocab_size=600))
    for kind, cls in TOKENIZERS.items()
}


def by_characters(tokenizer: Tokenizer, ids: list[int], text: str) -> list[int]:
    """Words begin with the first byte of a character that is no white space, behind one that is or none."""
    begins: list[bool] = []
    for before, letter in zip([" ", *text], text, strict=False):
        width = len(letter.encode())
        begins += [before.isspace() and not letter.isspace(), *[False] * (width - 1)]
    found, at, word = [], 0, NO_WORD
    for id in ids:
        if isinstance(tokenizer, CharacterTokenizer):
            width = len(text.encode("utf-32-le")[4 * len(found) :][:4].decode("utf-32-le").encode())
        else:
            width = len((tokenizer.pieces if isinstance(tokenizer, ByteTokenizer) else tokenizer._pieces)[id])
        word += any(begins[at : at + width])
        found.append(word)
        at += width
    return found


@given(text=st.text(alphabet=LETTERS, max_size=40) | st.sampled_from([*TEXTS, *HARD]))
def test_a_word_begins_behind_white_space(text):
    for kind, tokenizer in TRAINED.items():
        ids = tokenizer.encode(text)
        expected = [*range(len(ids))] if kind == "word" else by_characters(tokenizer, ids, text)
        assert tokenizer.words_of(ids) == expected


def test_words_as_one_writes_them():
    tokenizer = CharacterTokenizer.train(["ab\u3000 \n"], TokenizerConfig(kind="character"))
    a, b, wide = (tokenizer.encode(each)[0] for each in ("a", "b", "\u3000"))
    assert tokenizer.words_of([a, b, wide, b, a]) == [0, 0, 0, 1, 1]
    assert tokenizer.words_of([BOS, a, b, EOS, b, UNK, PAD]) == [-1, 0, 0, -1, 1, 1, -1]
    assert tokenizer.words_of([wide, wide]) == [-1, -1]
    assert tokenizer.words_of([wide, a, EOS, wide, BOS, wide, b]) == [-1, 0, -1, -1, -1, -1, 1]
    assert ByteTokenizer().words_of([6 + byte for byte in "a\u00a0b".encode()]) == [0, 0, 0, 1]
    words = WordTokenizer.train(["a b"], TokenizerConfig(kind="word"))
    assert words.words_of([BOS, *words.encode("b x a"), EOS]) == [-1, 1, 2, 3, -1]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_no_id_is_of_no_word_and_an_unknown_id_is_named(kind):
    assert TRAINED[kind].words_of([]) == []
    with pytest.raises(DataError, match="place 1"):
        TRAINED[kind].words_of([7, 10**6])


def test_white_space_is_pythons():
    points = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]
    found = {point for point in points if SPACE.search(point.encode())}
    assert found == {point for point in points if point.isspace()}
