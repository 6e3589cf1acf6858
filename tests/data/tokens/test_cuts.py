"""Text is cut where no token is: however long its shares are, their tokens are those of the whole."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, Tokenizer
from glassformer.data.tokens import vocabulary
from glassformer.data.tokens.vocabulary import SHARE, last_place, shares

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
def test_the_last_place_is_the_last_of_all_places(text: str) -> None:
    assert last_place(text) == max(places(text), default=0)


@given(TEXTS, st.integers(1, 9))
def test_a_share_ends_at_its_last_place_and_without_one_at_the_first_behind(text: str, size: int) -> None:
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


def test_a_run_without_a_place_is_one_share_and_what_follows_it_is_not() -> None:
    """As an image that stands in a text in base64."""
    image = "x" * (2 * SHARE + 5)
    *sizes, last = sorted(len(share) for share in shares("a word " * 9_000 + image + " a word" * 9_000))
    assert last == 1 + len(image)
    assert max(sizes) <= SHARE < 2 * min(sizes[2:])
    assert list(shares(image)) == [image]
    assert list(shares("")) == [""]


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS)
def test_every_tokenizer_has_the_ids_of_the_whole_piece_by_piece(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    parts = [text[first:last] for first, last in pairwise([0, *places(text), len(text)])]
    assert [id for part in parts for id in tokenizer.encode(part)] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS)
def test_a_kind_without_tokens_of_two_characters_may_be_cut_anywhere(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    longest = max(len(spelled.decode(errors="replace")) for spelled in tokenizer.spelling())
    assert tokenizer.cuts.anywhere == (longest == 1)
    if tokenizer.cuts.anywhere:
        assert [id for letter in text for id in tokenizer.encode(letter)] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_shares_train_the_tokenizer_of_the_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=600)
    text = "".join(f"low{'er' * (n % 3)}{SPACES[n % len(SPACES)] * (1 + n % 2)}ab's\t#{n % 7}\n" for n in range(300))
    whole = TOKENIZERS[kind].train([text], config).to_json()
    monkeypatch.setattr(vocabulary, "SHARE", 40)
    assert TOKENIZERS[kind].train([text], config).to_json() == whole
    assert TOKENIZERS[kind].train(shares(text), config).to_json() == whole
