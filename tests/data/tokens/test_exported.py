"""A tokenizer as a tokenizer.json: the library gives the same tokens and texts, and the file is recognised again."""

import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer, CharacterTokenizer, Labels, Tokenizer, WordTokenizer
from glassformer.data.tokens.exported import BETWEEN_WORDS, exported, names_of, returned
from glassformer.data.tokens.vocabulary import BOS, EOS, NO_WORD, PAD, SPACE, SPECIALS, UNK

TEXT = "The model reads a text. It reads  the text ## again:\n\tand a déjà vu, 12 times 😀."
MADE = {
    kind: made.train([TEXT] * 2, TokenizerConfig(kind=kind, vocab_size=540 if kind == "wordpiece" else 290))
    for kind, made in TOKENIZERS.items()
}
MADE["word, of their names"] = TOKENIZERS["word"].train([f"{TEXT} {' '.join(SPECIALS)}"], TokenizerConfig(kind="word"))
PARTS = [*TEXT, *"#▁<pad>\x1c\x85\u200b\u3000", *(f" {name} " for name in SPECIALS)]
MARKED = some.lists(some.sampled_from(PARTS), max_size=40).map("".join)
kinds = pytest.mark.parametrize("kind", MADE)


def library(text):
    made = Library.from_str(text)
    made.encode_special_tokens = True  # as tokenizer_config.json says with split_special_tokens
    return made


LIBRARIES = {kind: library(exported(made, begin=BOS)) for kind, made in MADE.items()}


@kinds
@given(text=some.one_of(MARKED, some.text(max_size=40)))
def test_the_library_gives_the_same_tokens_and_the_same_text(kind, text):
    if any(0xD800 <= ord(each) < 0xE000 for each in text):
        return
    ours, theirs = MADE[kind], LIBRARIES[kind]
    ids = ours.encode(text)
    assert theirs.encode(text).ids == [BOS, *ids]
    assert theirs.decode(ids, skip_special_tokens=False).replace("<unk >", "<unk>") == ours.decode(ids)


def test_white_space_is_what_words_are_split_at():
    spaces = re.compile(BETWEEN_WORDS)
    characters = map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1)))
    assert not [each for each in characters if bool(spaces.fullmatch(each)) != each.isspace()]


@kinds
def test_other_tokens_move_up_if_special_ones_are_left_out(kind):
    ours = MADE[kind]
    kept = [2, 3, *range(len(SPECIALS), ours.vocab_size)]
    theirs = library(exported(ours, kept, begin=EOS))
    assert theirs.get_vocab_size() == len(kept)
    assert [kept[id] for id in theirs.encode(TEXT).ids] == [EOS, *ours.encode(TEXT)]
    assert theirs.token_to_id(names_of(ours)[PAD]) is None


@kinds
@pytest.mark.parametrize("begin", [None, BOS])
def test_a_file_of_ours_is_recognised(kind, begin):
    tokenizer, begins = returned(exported(MADE[kind], begin=begin))
    assert type(tokenizer) is type(MADE[kind])
    assert tokenizer.to_json() == MADE[kind].to_json()
    assert begins == (begin is not None)


@kinds
def test_a_file_that_was_saved_with_limits_and_padding_is_recognised(kind):
    theirs = library(exported(MADE[kind], begin=BOS))
    theirs.enable_truncation(5)
    theirs.enable_padding(pad_token=names_of(MADE[kind])[PAD])
    assert returned(theirs.to_str())[0].to_json() == MADE[kind].to_json()


def changed(place, value):
    def change(record):
        for each in place[:-1]:
            record = record[each]
        record[place[-1]] = value

    return change


OTHERS = {
    "special": changed(("added_tokens", 0, "content"), "<s>"),
    "stripped": changed(("added_tokens", 0, "lstrip"), True),
    "normalizer": changed(("normalizer",), {"type": "Lowercase"}),
    "cut": changed(("pre_tokenizer",), None),
    "beginning": changed(("post_processor",), {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}),
    "decoder": changed(("decoder",), None),
    "model": changed(("model", "type"), "Other"),
    "no vocabulary": changed(("model",), {"type": "BPE"}),
    "no tokens": changed(("added_tokens",), None),
}


@kinds
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_any_other_file_is_not(kind, change):
    record = json.loads(exported(MADE[kind], begin=BOS))
    change(record)
    if record["decoder"] is None and kind.startswith("word"):
        return  # it has none
    assert returned(json.dumps(record)) is None


def test_labels_have_no_such_file():
    with pytest.raises(DataError, match=r"of the kind 'label' has no tokenizer.json\. Export another run"):
        exported(Labels(["a", "b"]))


# --- Which word each id of a row is of, for every kind of tokenizer


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
