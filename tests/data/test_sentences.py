"""Sentences of a source in another order: whole ones, each order as likely, and nothing moves across a document."""

from collections import Counter

import numpy as np
import pytest

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.corrupt import Coins, Corruption, batch_of_windows, permuted, sentence_ends
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer, CharacterTokenizer
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS

TEXT = ByteTokenizer()
ENDS = sentence_ends(TEXT)


def shuffled(text: str, seed: int = 0) -> str:
    return TEXT.decode(permuted(np.array(TEXT.encode(text), np.int64), ENDS, Coins(seed, 0, 0)).tolist())


def test_every_order_is_as_likely():
    seen = Counter(shuffled("A b. C d! E?", seed) for seed in range(3_000))
    assert sorted(seen) == sorted(
        ["A b. C d! E?", "A b. E? C d!", " C d!A b. E?", " C d! E?A b.", " E?A b. C d!", " E? C d!A b."]
    )
    assert sum((n - 500) ** 2 / 500 for n in seen.values()) < 25.7  # chi-square, 5 degrees: one in 10,000


@pytest.mark.parametrize("text", ["", "no end", "One only.", "...!?"])
def test_what_is_one_sentence_stays(text):
    assert all(shuffled(text, seed) == text for seed in range(8))


def test_marks_in_a_row_end_one_sentence():
    assert {shuffled("Oh... no?!", seed) for seed in range(20)} == {"Oh... no?!", " no?!Oh..."}


def test_nothing_moves_across_documents():
    one, two = (np.array(TEXT.encode(text)) for text in ("A. B.", "C. D. E."))
    ids = np.concatenate([[BOS], one, [EOS, BOS], two])
    orders = set()
    for seed in range(40):
        moved = permuted(ids, ENDS, Coins(seed, 0, 0))
        assert np.flatnonzero(moved < 6).tolist() == np.flatnonzero(ids < 6).tolist()
        parts = (TEXT.decode(moved[1 : 1 + len(one)].tolist()), TEXT.decode(moved[3 + len(one) :].tolist()))
        assert [sorted(part.replace(" ", "")) for part in parts] == [sorted("A.B."), sorted("C.D.E.")]
        orders.add(parts)
    assert len(orders) == 12


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_tokenizer_finds_them(kind):
    text = "It rained . We left ! Why ?" if kind == "word" else "It rained. We left! Why?"
    tokenizer = TOKENIZERS[kind].train([text] * 3, TokenizerConfig(kind=kind, vocab_size=600))
    ids, ends = np.array(tokenizer.encode(text)), sentence_ends(tokenizer)
    assert ends[ids].sum() == 3
    assert ends[ids][-1]
    orders = {tuple(permuted(ids, ends, Coins(seed, 0, 0)).tolist()) for seed in range(40)}
    assert len(orders) == 6
    assert all(sorted(each) == sorted(ids.tolist()) for each in orders)


def test_a_vocabulary_without_marks_is_told():
    tokenizer = CharacterTokenizer.train(["abc"], TokenizerConfig(kind="character"))
    with pytest.raises(DataError, match=r"no token of this vocabulary ends with one.*data\.permute_sentences = false"):
        sentence_ends(tokenizer)


def test_the_source_is_permuted_and_the_target_is_not():
    ids = np.array(TEXT.encode("Aa. Bb. Cc."))
    how = Corruption(TEXT.vocab_size, mask_share=1e-9, sentences=ENDS)
    orders = set()
    for step in range(60):
        batch = batch_of_windows("noise", [ids], how, seed=1, step=step)
        assert batch.tokens[0, 1:-1].tolist() == ids.tolist()
        read = TEXT.decode([id for id in batch.source[0, :-1].tolist() if id != BLANK])
        orders.add("".join(letter for letter in read if letter in "abc"))  # at least one of all characters is hidden
    assert {each for each in orders if len(each) == 3} == {"abc", "acb", "bac", "bca", "cab", "cba"}
