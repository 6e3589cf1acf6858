"""Each id of a text begins where it stands in the text, whatever the tokenizer loses of it."""

from itertools import accumulate, pairwise
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from hypothesis import strategies as st

from data.tokens.published_examples import json_of
from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, Tokenizer
from glassformer.data.tokens import vocabulary
from glassformer.data.tokens.decoding import begins_in, composed_of
from glassformer.data.tokens.exported import adopt
from glassformer.data.tokens.vocabulary import SHARE, UNK, WordTokenizer, lacking, last_place, shares

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
    result = zip(ids, begins_in(text, ids, tokenizer), strict=True)
    assert [begin for id, begin in result if tokenizer.adds(id) == b"q"] == [2, 6]


# --- What the vocabulary lacks of a text, and how a user is told of it


@pytest.mark.parametrize(("kind", "parts"), [("character", ["é", "ñ", "é"]), ("word", ["éñ", "é"]), ("byte", [])])
def test_the_parts_that_become_unknown(kind, parts):
    made = TOKENIZERS[kind].train(["ab a b"], TokenizerConfig(kind=kind))
    assert made.lacks("a éñ b é") == parts
    assert made.encode("a éñ b é").count(UNK) == len(parts)
    assert made.lacks("ab") == []
    with pytest.raises(DataError, match="lone surrogate"):
        made.lacks("\ud800")


@pytest.mark.parametrize(("parts", "named"), [
    ("é", "'é' (U+00E9)"),
    ("ééñ", "'é' (U+00E9, 2 times), 'ñ' (U+00F1)"),
    (["zebra", "a" * 50, "zebra"], f"'zebra' (2 times), '{'a' * 40}'"),
    ("\u200b", "'\\u200b' (U+200B)"),
    ("vwxyz", "'v' (U+0076), 'w' (U+0077), 'x' (U+0078), 'y' (U+0079), 'z' (U+007A)"),
    ("uvwxyzz", "'z' (U+007A, 2 times), 'u' (U+0075), 'v' (U+0076), 'w' (U+0077), 'x' (U+0078), ..."),
])  # fmt: skip
def test_the_commonest_are_named(parts, named):
    message = f"the vocabulary lacks a part of it, {named}; the model read <unk> in its place"
    assert lacking("it", parts) == message


def test_a_word_keeps_its_name_and_the_special_token_has_its_id():
    made = WordTokenizer(["the", "<unk>", "<unk> (id 3)"])
    assert made.names([7, 3, 8, 0]) == ["<unk>", "<unk> (id 3)'", "<unk> (id 3)", "<pad>"]


# --- Text is cut where no token is: however long its shares are, their tokens are those of the whole


SPACES = " \n\t\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000"
LETTERS = "ab'sé9.#ÃŸ😀\u0301漢"
TEXTS = st.one_of(
    st.text(st.sampled_from(LETTERS + SPACES * 2), max_size=60),
    st.text(st.sampled_from(LETTERS), max_size=60),
    st.lists(st.sampled_from(["ab", "a's", "##", " ", "    ", "\t", "\t\t", " \t", "\n\n", "\t ", "\u3000\t"])).map(
        "".join
    ),
)
KNOWN: dict[str, Tokenizer] = {}


def tokenizer_of(kind: str) -> Tokenizer:
    """Made once for all examples, of text with many forms of white space between words."""
    if kind not in KNOWN:
        texts = ["a's  b a\n\nb\t ab's\r\n é9 . 漢漢 😀 ab\u3000ab a\xa0b" * 3, "abab ab  ab"]
        KNOWN[kind] = TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=600))
    return KNOWN[kind]


def places(text: str) -> list[int]:
    return [at for at in range(1, len(text)) if text[at] in " \n\t" and not text[at - 1].isspace()]


@given(TEXTS)
def test_the_last_place_is_the_last_of_all_places(text):
    assert last_place(text) == max(places(text), default=0)


@given(TEXTS, st.integers(1, 9))
def test_a_share_ends_at_its_last_place_and_without_one_at_the_first_behind(text, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "SHARE", size)
        found = list(shares(text))
    assert "".join(found) == text
    for first, last in pairwise([0, *accumulate(map(len, found))]):
        behind = [place for place in places(text) if place > first]
        within = [place for place in behind if place < first + size]
        if len(text) - first > size and behind:
            assert last == max(within, default=behind[0])
        else:
            assert last == len(text)


def test_a_run_without_a_place_is_one_share_and_what_follows_it_is_not():
    """As an image that stands in a text in base64."""
    image = "x" * (2 * SHARE + 5)
    *sizes, last = sorted(len(share) for share in shares("a word " * 9_000 + image + " a word" * 9_000))
    assert last == 1 + len(image)
    assert max(sizes) <= SHARE < 2 * min(sizes[2:])
    assert list(shares(image)) == [image]
    assert list(shares("")) == [""]


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS)
def test_every_tokenizer_has_the_ids_of_the_whole_piece_by_piece(kind, text):
    tokenizer = tokenizer_of(kind)
    parts = [text[first:last] for first, last in pairwise([0, *places(text), len(text)])]
    assert [id for part in parts for id in tokenizer.encode(part)] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS)
def test_a_kind_without_tokens_of_two_characters_may_be_cut_anywhere(kind, text):
    tokenizer = tokenizer_of(kind)
    longest = max(len(spelled.decode(errors="replace")) for spelled in tokenizer.spelling())
    assert tokenizer.cuts.anywhere == (longest == 1)
    if tokenizer.cuts.anywhere:
        assert [id for letter in text for id in tokenizer.encode(letter)] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_shares_train_the_tokenizer_of_the_whole(kind, monkeypatch):
    config = TokenizerConfig(kind=kind, vocab_size=600)
    text = "".join(f"low{'er' * (n % 3)}{SPACES[n % len(SPACES)] * (1 + n % 2)}ab's\t#{n % 7}\n" for n in range(300))
    whole = TOKENIZERS[kind].train([text], config).to_json()
    monkeypatch.setattr(vocabulary, "SHARE", 40)
    assert TOKENIZERS[kind].train([text], config).to_json() == whole
    assert TOKENIZERS[kind].train(shares(text), config).to_json() == whole
