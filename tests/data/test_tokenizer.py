"""What every kind of tokenizer promises, run over the registry, so that a new kind is tested once it is listed."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import (
    TOKENIZERS,
    ByteTokenizer,
    CharacterTokenizer,
    Labels,
    WordTokenizer,
    tokenizer_from_json,
)
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK

LOSSLESS = ["byte", "bpe", "wordpiece", "unigram"]
TEXTS = [
    "the cat sat on the mat",
    "der Hund schläft unter dem Tisch",
    "<pad> <bos> <eos> <unk> <sep> <blank>",
    "<pad><pad><pad> and <blank><blank> again <pad> <pad> <pad>",
]
HARD = [
    "",
    " ",
    "\n\n \t\r\n",
    "\0\x01\x1b[31m\x7f\x85",
    "e\u0301 \u0041\u030a \u00c5 \u1100\u1161\u11a8",  # combining marks, and a Hangul syllable in three parts
    "\U0001f469\U0001f3fd\u200d\U0001f680 \U0001f1e9\U0001f1ea \u2764\ufe0f",  # joined, flag, variation selector
    "\u202eright to left\u202c \ufeff \u2028 \u00a0 \u3000",
    "\ufffd \uffff \U0010ffff \U0001fffe",
    "ﬁ ½ Ⅳ ｶﾞ",  # a normaliser would change each of these
    "trailing   spaces   ",
    "<|endoftext|> Ġ Ċ ##ing ▁word",  # what other tokenizers write for themselves
    "a" * 5_000,
    " " * 5_000,
]


@pytest.fixture(scope="module", params=list(TOKENIZERS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


TRAINED = {kind: TOKENIZERS[kind].train(TEXTS, TokenizerConfig(kind=kind, vocab_size=600)) for kind in TOKENIZERS}


def normal(kind: str, text: str) -> str:
    """What a kind keeps of a text: words lose the amount of white space, all others keep everything."""
    return " ".join(text.split()) if kind == "word" else text


def test_the_special_ids_are_the_public_ones():
    assert [SPECIALS[id] for id in (PAD, BOS, EOS, UNK, SEP, BLANK)] == [
        "<pad>",
        "<bos>",
        "<eos>",
        "<unk>",
        "<sep>",
        "<blank>",
    ]
    assert (PAD, BOS, EOS, UNK, SEP, BLANK) == (0, 1, 2, 3, 4, 5)


@given(text=st.text(max_size=80))
def test_any_text_comes_back_from_a_tokenizer_trained_on_it(text):
    for kind, cls in TOKENIZERS.items():
        tokenizer = cls.train([text], TokenizerConfig(kind=kind, vocab_size=600))
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == normal(kind, text)
        assert all(len(SPECIALS) <= id < tokenizer.vocab_size for id in ids)


@given(text=st.text(max_size=200))
def test_any_text_comes_back_from_a_lossless_tokenizer_that_never_saw_it(text):
    for kind in LOSSLESS:
        ids = TRAINED[kind].encode(text)
        assert TRAINED[kind].decode(ids) == text
        assert all(id >= len(SPECIALS) for id in ids)


@pytest.mark.parametrize("text", HARD, ids=lambda text: repr(text[:12]))
def test_hard_texts_come_back(kind, text):
    tokenizer = TRAINED[kind] if kind in LOSSLESS else TOKENIZERS[kind].train([text], TokenizerConfig(kind=kind))
    assert tokenizer.decode(tokenizer.encode(text)) == normal(kind, text)


@pytest.mark.parametrize("each", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_every_code_point_comes_back(each):
    """In thousands, of which the push tier takes one in 16: 69,504 code points."""
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
    texts = ["".join(points[start : start + 1_000]) for start in range(0, len(points), each * 1_000)]
    for kind in LOSSLESS:
        assert list(map(TRAINED[kind].decode, TRAINED[kind].encode_all(texts))) == texts


def test_every_language_comes_back(kind, shared):
    texts = [path.read_text("utf-8") for path in sorted(shared("udhr").glob("*.txt"))]
    assert len(texts) >= 20
    tokenizer = TRAINED[kind] if kind in LOSSLESS else TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind))
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == normal(kind, text)


def test_naughty_strings_come_back(kind, shared):
    texts = json.loads(shared("blns/blns.json").read_text("utf-8"))
    assert len(texts) > 500
    tokenizer = TRAINED[kind] if kind in LOSSLESS else TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind))
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == normal(kind, text)
        assert all(id >= len(SPECIALS) for id in ids)
    stored = tokenizer_from_json(tokenizer.to_json())
    assert [*map(stored.encode, texts)] == [*map(tokenizer.encode, texts)]


@pytest.mark.parametrize("text", [
    *(*SPECIALS, "".join(SPECIALS), "<pad> hello <eos>", " <blank>", "x<unk>y"),
    *("[MASK]", "[UNK][PAD]", "<|endoftext|>", "</s>", "##s", "a##s", "###", "\u2581", "\u0120\u010a", "<0x41>"),
])  # fmt: skip
def test_special_tokens_typed_by_a_user_are_ordinary_text(kind, text):
    ids = TRAINED[kind].encode(text)
    assert ids
    assert not {PAD, BOS, EOS, SEP, BLANK} & set(ids)
    if kind in LOSSLESS:
        assert UNK not in ids
        assert TRAINED[kind].decode(ids) == text


@pytest.mark.parametrize("text", SPECIALS)
def test_a_special_word_seen_in_training_gets_an_id_of_its_own(kind, text):
    ids = TRAINED[kind].encode(text)
    assert all(id >= len(SPECIALS) for id in ids)
    assert TRAINED[kind].decode(ids) == text


def test_names_tell_all_ids_apart(kind):
    """Also those of words that are called as special tokens, or as bytes, or as a name that was made for another."""
    texts = [*TEXTS, "<pad> (id 0)", r"\xff <0xFF>", "\ufffd"]
    made = TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=600))
    shown, names = made.tokens(range(made.vocab_size)), made.names(range(made.vocab_size))
    assert len({*names}) == made.vocab_size
    once = [id for id, text in enumerate(shown) if shown.count(text) == 1]
    assert [names[id] for id in once] == [shown[id] for id in once]
    assert made.names([PAD, 9, PAD]) == [names[PAD], names[9], names[PAD]]


def test_decode_leaves_special_ids_out_but_shows_unknown(kind):
    tokenizer = TRAINED[kind]
    the, cat = tokenizer.encode("the"), tokenizer.encode("cat")
    assert tokenizer.decode([BOS, *the, SEP, BLANK, EOS, PAD, PAD]) == "the"
    joint = " " if kind == "word" else ""
    assert tokenizer.decode([*the, UNK, *cat]) == joint.join(["the", "<unk>", "cat"])
    assert tokenizer.decode([]) == ""


def test_tokens_are_one_string_an_id_with_special_ones_by_name(kind):
    tokenizer = TRAINED[kind]
    assert tokenizer.tokens(range(6)) == list(SPECIALS)
    ids = tokenizer.encode("the cat")
    shown = tokenizer.tokens(ids)
    assert len(shown) == len(ids)
    assert (" " if kind == "word" else "").join(shown) == "the cat"
    assert len(tokenizer.tokens(range(tokenizer.vocab_size))) == tokenizer.vocab_size


@pytest.mark.parametrize("id", [-1, 10**6, 2**40])
def test_an_id_outside_the_vocabulary_is_named_with_its_place(kind, id):
    tokenizer = TRAINED[kind]
    for read in (tokenizer.decode, tokenizer.tokens):
        with pytest.raises(DataError) as error:
            read([7, 8, id])
        assert f"id {id}" in str(error.value)
        assert "place 2" in str(error.value)
        assert f"0 to {tokenizer.vocab_size - 1}" in str(error.value)
    tokenizer.decode([tokenizer.vocab_size - 1])
    with pytest.raises(DataError):
        tokenizer.decode([tokenizer.vocab_size])


@pytest.mark.parametrize("text", ["ab\ud800c", "\udcff"])
def test_a_lone_surrogate_is_refused_by_name_and_place(kind, text):
    place = next(place for place, letter in enumerate(text, start=1) if unicodedata.category(letter) == "Cs")
    uses = [
        TRAINED[kind].encode,
        lambda text: TRAINED[kind].encode_all(["fine", text]),
        *([] if kind == "byte" else [lambda text: TOKENIZERS[kind].train([text], TokenizerConfig(kind=kind))]),
    ]
    for use in uses:
        with pytest.raises(DataError) as error:
            use(text)
        assert f"character {place}" in str(error.value)
        assert f"U+{ord(text[place - 1]):04X}" in str(error.value)


def test_json_holds_all_of_a_tokenizer(kind):
    tokenizer = TRAINED[kind]
    again = tokenizer_from_json(tokenizer.to_json())
    assert type(again) is TOKENIZERS[kind]
    assert again.to_json() == tokenizer.to_json()
    assert again.vocab_size == tokenizer.vocab_size
    for text in [*TEXTS, *HARD]:
        assert again.encode(text) == tokenizer.encode(text)
    assert again.encode("<pad>")[0] >= len(SPECIALS) or again.encode("<pad>") == [UNK]


def test_training_depends_on_the_texts_alone(kind):
    config = TokenizerConfig(kind=kind, vocab_size=600)
    assert TOKENIZERS[kind].train(iter(TEXTS), config).to_json() == TRAINED[kind].to_json()
    if kind != "bpe":  # equal counts of pairs may be settled by the order of texts, so bpe promises less
        assert TOKENIZERS[kind].train(TEXTS[::-1], config).to_json() == TRAINED[kind].to_json()


def test_encode_all_is_encode_of_each(kind):
    texts = [*TEXTS, *HARD]
    assert TRAINED[kind].encode_all(texts) == [TRAINED[kind].encode(text) for text in texts]
    with pytest.raises(DataError, match="takes a list of texts; got the text 'one'"):
        TRAINED[kind].encode_all("one")


def test_unknown_words_and_characters_become_unk_one_for_one():
    words = WordTokenizer.train(["a b c"], TokenizerConfig())
    assert words.encode("c  zebra\ta") == [8, UNK, 6]
    characters = CharacterTokenizer.train(["abc"], TokenizerConfig(kind="character"))
    assert characters.encode("c?a") == [8, UNK, 6]
    assert characters.decode([8, UNK, 6]) == "c<unk>a"
    assert words.decode([8, UNK, 6]) == "c <unk> a"


def test_bytes_are_utf8():
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("aé") == [6 + 0x61, 6 + 0xC3, 6 + 0xA9]
    assert tokenizer.vocab_size == 262
    assert tokenizer.tokens([6 + 0xC3, 6 + 0x61]) == [r"\xc3", "a"]
    assert tokenizer.decode([6 + 0xC3, 6 + 0x61]) == "\ufffda"  # a model may write half a character
    assert tokenizer.decode([6 + 0xC3, BOS, 6 + 0xA9]) == "é"


def test_a_tokenizer_of_another_kind_is_refused(kind):
    other = "word" if kind != "word" else "byte"
    with pytest.raises(DataError):
        TOKENIZERS[kind].from_json(TRAINED[other].to_json())


def test_rare_words_become_unk():
    texts = ["a b a", "b c"]
    for least, known in ((1, "abc"), (2, "ab")):
        words = WordTokenizer.train(texts, TokenizerConfig(min_count=least))
        assert words.entries == tuple(known)
        assert words.encode("a c") == [6, 8 if "c" in known else UNK]


def test_a_label_is_a_whole_text():
    labels = Labels(["a b", "c"])
    assert [labels.encode(text) for text in ("a b", "c", "a")] == [[6], [7], [UNK]]
    again = tokenizer_from_json(labels.to_json())
    assert type(again) is Labels
    assert again.to_json() == labels.to_json()
    assert again.tokens([6, 7]) == ["a b", "c"]
