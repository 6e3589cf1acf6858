"""Subwords of bytes: the file is that of the `tokenizers` library, nothing is lost, and texts may be a stream."""

import json
import tracemalloc
from collections.abc import Iterator
from functools import cache

import pytest
import tokenizers

from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens import vocabulary as cuts
from glassformer.data.tokens.subword import Subword
from glassformer.data.tokens.vocabulary import SPECIALS

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest <pad> <pad>"] * 5
KINDS = {kind: cls for kind, cls in TOKENIZERS.items() if issubclass(cls, Subword)}
MOST_LEARNED = 200  # what TEXTS give beyond the bytes


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@cache
def trained(kind: str, more: int = 38) -> Subword:
    """With so many entries more than the least."""
    cls = KINDS[kind]
    return cls.train(TEXTS, TokenizerConfig(kind=kind, vocab_size=cls.least_vocab_size + more))


def test_the_vocabulary_is_specials_then_bytes_then_what_was_learned(kind):
    tokenizer, least = trained(kind), KINDS[kind].least_vocab_size
    assert least < tokenizer.vocab_size <= least + 38
    assert tokenizer.tokens(range(6)) == list(SPECIALS)
    assert sorted(tokenizer._pieces[6:262]) == [bytes([byte]) for byte in range(256)]
    assert all(len(piece) == 1 for piece in tokenizer._pieces[262:least])
    assert all(len(piece) > 1 for piece in tokenizer._pieces[least:])
    assert len(tokenizer.encode("lowest")) < len("lowest")


def test_the_size_asked_for_is_the_size_got_when_the_text_allows():
    for kind, least in (("bpe", 262), ("wordpiece", 517)):
        assert KINDS[kind].least_vocab_size == least
        assert trained(kind, 0).vocab_size == least
        assert trained(kind, 8).vocab_size == least + 8
        assert trained(kind, 100_000).vocab_size < least + MOST_LEARNED  # no pair is left that repeats
    for more in range(5):  # the library goes beyond, by pieces that it does not weigh
        assert trained("unigram", more).vocab_size == 262 + more
    assert trained("unigram", 100_000).vocab_size < 262 + MOST_LEARNED


def test_the_library_itself_reads_our_file_and_agrees(kind):
    tokenizer = trained(kind)
    library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    library.encode_special_tokens = True
    for text in [*TEXTS, "unseen wörds \U0001f600  two  spaces "]:
        assert library.encode(text).ids == tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        if kind != "wordpiece":  # the library's decoder knows bytes or ##, and not both
            assert library.decode(tokenizer.encode(text)) == text
    assert [library.id_to_token(id) for id in range(6)] == list(SPECIALS)


def test_a_long_text_has_the_ids_that_it_has_whole(kind):
    """`encode` cuts it, and the library alone does not."""
    tokenizer = trained(kind)
    words = ["lowest", " ", "  wider", "\n\n", "new ", "\x1c", "!\x1c", "\u00a0\n", "##", "日本 "]
    text = "".join(words[place * place % len(words)] for place in range(60_000))
    assert sum(1 for _ in cuts.shares(text)) > 2
    assert tokenizer.encode(text) == tokenizer._library.encode(text, add_special_tokens=False).ids


def test_training_takes_a_stream_and_keeps_no_text(kind, monkeypatch):
    """8 MB pass, of the same few words; the library takes 256 texts at a time, however long: here 1 MB."""
    monkeypatch.setattr(cuts, "SHARE", 2**12)

    def stream() -> Iterator[str]:
        for _ in range(8):
            yield "lower lowest newer\n" * 55_000

    tracemalloc.start()
    tokenizer = KINDS[kind].train(stream(), TokenizerConfig(kind=kind, vocab_size=600))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
    assert tokenizer.decode(tokenizer.encode("lowest")) == "lowest"


def test_wordpiece_takes_the_longest_piece_that_it_knows():
    tokenizer = trained("wordpiece", 60)
    known = set(tokenizer._library.get_vocab())
    for word in ("lowest", "newest", "widest", "lower"):
        rest, found = word, []
        while rest:
            mark = "##" if found else ""
            piece = max((rest[:end] for end in range(1, len(rest) + 1) if mark + rest[:end] in known), key=len)
            found.append(piece)
            rest = rest.removeprefix(piece)
        assert tokenizer.tokens(tokenizer.encode(word)) == found


def test_unigram_takes_the_most_probable_cut():
    """Told once more by trying every cut of a word."""
    tokenizer = trained("unigram")
    scores = dict(map(tuple, json.loads(tokenizer.to_json())["model"]["vocab"]))

    def cuts(word: str) -> Iterator[list[str]]:
        if not word:
            yield []
        for end in range(1, len(word) + 1):
            if word[:end] in scores:
                yield from ([word[:end], *rest] for rest in cuts(word[end:]))

    for word in ("lowest", "newer", "wideness", "zebra"):
        best = max(cuts(word), key=lambda cut: sum(scores[piece] for piece in cut))
        found = tokenizer.tokens(tokenizer.encode(word))
        assert sum(scores[piece] for piece in found) == pytest.approx(sum(scores[piece] for piece in best), abs=1e-9)


def test_nothing_to_learn_from_leaves_bytes(kind):
    for texts in ([], [""], ["a"]):
        tokenizer = KINDS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=600))
        assert tokenizer.vocab_size == KINDS[kind].least_vocab_size
        assert tokenizer.decode(tokenizer.encode("né \0")) == "né \0"
