"""Corruptions of running text: nothing is lost, special tokens stay, and the shares are those of the papers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.corrupt import BATCHES, Coins, Corruption, batch_of_windows, masked, noise, prefix_length, spans
from glassformer.data.corrupt_lengths import longest
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, NO_WORD, PAD, SEP, SPECIALS, UNK

V = 40
TEXT = st.lists(st.sampled_from([BOS, EOS, UNK]) | st.integers(6, V - 1), max_size=60).map(np.array)
SEEDS = st.integers(0, 2**20)
SHARES = st.floats(0.01, 1.0)
MEANS = st.floats(1.0, 9.0)
LONG = np.arange(6, 6 + 2_000)  # no two alike


def coins(seed=0, step=0, row=0):
    return Coins(seed, step, row)


def ids_of(window):
    return np.asarray(window, np.int64)


def pieces(ids, mark):
    """The stretches between marks."""
    found = [[]]
    for each in ids.tolist():
        found.append([]) if each == mark else found[-1].append(each)
    return found


def within(count, n, p):
    """Whether a count of n is within five standard deviations of its mean."""
    return abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1e-9


# Coins


def test_coins_are_a_function_of_seed_step_and_row_alone():
    """Pinned: a resumed run on another numpy must draw the same."""
    assert coins(1, 2, 3).uniform(3).tolist() == coins(1, 2, 3).uniform(3).tolist()
    assert coins(1, 2, 3).below(1000, 4).tolist() == [301, 281, 509, 724]
    others = [coins(0, 2, 3), coins(1, 0, 3), coins(1, 2, 0), coins(2, 1, 3)]
    assert all(other.uniform(3).tolist() != coins(1, 2, 3).uniform(3).tolist() for other in others)


def test_some_of_is_fair():
    counts = np.zeros(5, int)
    for row in range(4_000):
        found = coins(row=row).some_of(5, 2)
        assert found[0] < found[1]
        counts[found] += 1
    assert all(within(count, 4_000, 2 / 5) for count in counts)


# masked


@given(TEXT, SEEDS, SHARES)
def test_masked_changes_only_what_it_asks_for(window, seed, share):
    ids = ids_of(window)
    read, requested = masked(ids, coins(seed), V, share)
    assert (read == ids)[~requested].all()
    assert (ids[requested] >= 6).all()  # special tokens are not asked for
    drawn = read[requested]
    assert ((drawn >= 6) | (drawn == BLANK)).all()
    assert (drawn < V).all()
    assert requested.any() == (ids >= 6).any()


def test_shares_of_masked_tokens():
    """15 % are chosen; of them 80 % hidden, 10 % replaced by any token, 10 % kept: chi-square with 2 degrees."""
    n, big = 200_000, 1_000
    ids = 6 + np.arange(n) % (big - 6)
    read, requested = masked(ids, coins(), big)
    chosen = int(requested.sum())
    assert within(chosen, n, 0.15)
    hidden, same = int((read == BLANK).sum()), int((requested & (read == ids)).sum())
    found = np.array([hidden, chosen - hidden - same, same])
    right_by_chance = 0.1 / (big - 6)
    expected = chosen * np.array([0.8, 0.1 - right_by_chance, 0.1 + right_by_chance])
    assert ((found - expected) ** 2 / expected).sum() < 23  # passed by one in 100,000
    drawn = read[requested & (read != BLANK) & (read != ids)]
    assert (drawn.min(), drawn.max()) == (6, big - 1)
    assert within(int((drawn < 6 + (big - 6) / 2).sum()), len(drawn), 0.5)


@given(TEXT, SEEDS, SHARES)
def test_whole_words_are_whole(window, seed, share):
    ids = ids_of(window)
    word = (np.random.default_rng(seed).random(len(ids)) < 0.4).cumsum() - 1
    _, requested = masked(ids, coins(seed), V, share, word)
    for each in range(len(ids)):
        of_word = requested[(word == each) & (ids >= 6)]
        assert of_word.all() or not of_word.any()
    assert requested.any() == ((ids >= 6) & (word != NO_WORD)).any()
    assert not requested[word == NO_WORD].any()


def test_the_share_of_whole_words():
    _, requested = masked(6 + np.arange(30_000) % 30, coins(), V, 0.15, np.arange(30_000) // 3)
    assert within(int(requested[::3].sum()), 10_000, 0.15)


WORDS = "\n\n The cats' house,\n  stood there: 12.5 m high naïve \n"


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_what_is_hidden_is_a_word_with_its_white_space(kind):
    """Of every kind; white space before the first word, here and behind a special token, is never asked for."""
    tokenizer = TOKENIZERS[kind].train([WORDS] * 3, TokenizerConfig(kind=kind, vocab_size=600))
    ids = np.array([BOS, *tokenizer.encode(WORDS), EOS, BOS, *tokenizer.encode(WORDS)])
    how, hidden = Corruption(tokenizer.vocab_size, 0.3, words_of=tokenizer.words_of), set()
    for step in range(40):
        targets = batch_of_windows("masked", [ids], how, seed=0, step=step).label_keep[0].numpy()
        for part in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(targets)) + 1):
            if targets[part[0]]:
                hidden |= {tokenizer.decode(ids[part].tolist())}
    assert {word for text in hidden for word in text.split()} == {*WORDS.split()}
    assert [text for text in hidden if not text.strip()] == []


def test_white_space_alone_has_no_word_to_hide():
    """So nothing is asked, as of a stretch of <unk>."""
    words = ByteTokenizer().words_of
    blank = [np.array([6 + 10, 6 + 32, BOS, 6 + 9])]
    batch = batch_of_windows("masked", blank, Corruption(262, 1.0, words_of=words), seed=0, step=0)
    assert not batch.label_keep.any()


# spans


@given(TEXT, SEEDS, SHARES, MEANS)
def test_spans_restore_the_text(window, seed, share, mean):
    ids = ids_of(window)
    source, target = spans(ids, coins(seed), share, mean)
    kept, hidden = pieces(source, BLANK), pieces(target, SEP) if len(target) else []
    assert len(hidden) == len(kept) - 1
    assert all(hidden)
    restored = kept[0] + [each for held, after in zip(hidden, kept[1:], strict=True) for each in held + after]
    assert restored == ids.tolist()
    assert (target[target != SEP] >= 6).all()
    n = int((ids >= 6).sum())
    assert sum(map(len, hidden)) == min(n, max(1, round(share * n))) * (n > 0)


def test_spans_have_their_mean_and_stand_anywhere():
    begins = np.zeros(40, int)
    for row in range(600):
        _, target = spans(LONG[:40], coins(row=row), 0.3, 3.0)
        assert len(target) == 12 + 3  # 4 spans of 3 tokens on average
        for held in pieces(target, SEP):
            begins[held[0] - 6] += 1
    assert begins[:38].min() > 0.4 * begins[:38].mean()
    assert begins[-1] > 0
    lengths = [len(held) for row in range(300) for held in pieces(spans(LONG, coins(row=row))[1], SEP)]
    assert np.mean(lengths) == pytest.approx(3.0)
    assert {1, 2, 3, 4, 5, 6} <= {*lengths}


# noise


@given(TEXT, SEEDS, SHARES, MEANS)
def test_noise_asks_for_the_text(window, seed, share, mean):
    ids = ids_of(window)
    source, target = noise(ids, coins(seed), share, mean)
    assert target.tolist() == ids.tolist()
    place = 0
    for number, part in enumerate(pieces(source, BLANK)):  # the kept parts stand in the text in this order
        while ids[place : place + len(part)].tolist() != part:
            assert number, "the first part is not where the text begins"
            place += 1
            assert place <= len(ids)
        place += len(part)
    assert source[source != BLANK][source[source != BLANK] < 6].tolist() == ids[ids < 6].tolist()
    assert (BLANK in source) == bool((ids >= 6).any())


def test_noise_hides_its_share_in_poisson_spans():
    holes, hidden = [], 0
    for row in range(200):
        source, _ = noise(LONG, coins(row=row), 0.3, 3.0)
        hidden += 2_000 - int((source != BLANK).sum())
        kept = pieces(source, BLANK)
        ends = [5, *(part[-1] if part else None for part in kept[:-1])]
        begins = [*(part[0] if part else None for part in kept[1:])]
        holes += [b - e - 1 for e, b in zip(ends[1:], begins, strict=True) if e is not None and b is not None]
    assert hidden == 200 * 600
    n = len(holes)
    for length in range(7):
        assert within(holes.count(length), n, math.exp(-3) * 3**length / math.factorial(length)), length


# batches


def windows(n, length=30):
    return [np.random.default_rng(row).integers(6, V, length) for row in range(n)]


@pytest.mark.parametrize("objective", BATCHES)
def test_a_row_is_drawn_alike_wherever_it_is_made(objective):
    """In a whole batch, alone on another process, and again: by (seed, step, row)."""
    how, every = Corruption(V), windows(5)
    whole = batch_of_windows(objective, every, how, seed=3, step=7).split(5)
    for row in (4, 0, 2):
        alone = batch_of_windows(objective, [every[row]], how, seed=3, step=7, rows=[row])
        for name in ("tokens", "source", "labels", "label_keep", "prefix"):
            one, other = getattr(whole[row], name), getattr(alone, name)
            assert (one is None and other is None) or torch.equal(one, other), (row, name)


@pytest.mark.parametrize("changed", [{"seed": 4, "step": 7}, {"seed": 3, "step": 8}], ids=["seed", "step"])
@pytest.mark.parametrize("objective", [name for name in BATCHES if name != "next_token"])
def test_other_seeds_and_steps_draw_otherwise(objective, changed):
    read = {"prefix": "prefix", "masked": "label_keep"}.get(objective, "source")
    one = getattr(batch_of_windows(objective, windows(5), Corruption(V), seed=3, step=7), read)
    assert not torch.equal(one, getattr(batch_of_windows(objective, windows(5), Corruption(V), **changed), read))


def test_batches_by_example():
    every = [np.array([BOS, 10, 11, EOS, BOS, 12]), np.array([20, 21, 22])]
    plain = batch_of_windows("next_token", every, Corruption(V, document_mask=True), seed=0, step=0)
    assert plain.tokens.tolist() == [[BOS, 10, 11, EOS, BOS, 12], [20, 21, 22, PAD, PAD, PAD]]
    assert plain.documents[0].tolist() == [1, 1, 1, 1, 2, 2]
    assert plain.documents[1, :3].tolist() == [0, 0, 0]
    assert batch_of_windows("next_token", every, Corruption(V), seed=0, step=0).documents is None
    result = batch_of_windows("masked", every, Corruption(V, mask_share=0.5), seed=0, step=0)
    assert result.labels[result.keep].tolist() == [*every[0], *every[1]]
    assert not result.label_keep[~result.keep].any()
    assert (result.tokens == result.labels)[result.keep & ~result.label_keep].all()
    pair = batch_of_windows("spans", every[1:], Corruption(V), seed=0, step=0)
    assert pair.tokens[0, 0] == BOS
    assert pair.tokens[0, -1] == pair.source[0, -1] == EOS
    assert pair.tokens.shape[1] == 3
    whole = batch_of_windows("noise", every[1:], Corruption(V), seed=0, step=0)
    assert whole.tokens.tolist() == [[BOS, 20, 21, 22, EOS]]


def test_a_prefix_leaves_something_to_ask_for():
    assert {prefix_length(5, coins(row=row)) for row in range(100)} == {1, 2, 3, 4}
    assert (prefix_length(1, coins()), prefix_length(0, coins())) == (1, 0)


def test_an_unknown_objective_is_refused():
    with pytest.raises(ConfigError, match=r"data\.objective='span' is not known.*Did you mean 'spans'"):
        batch_of_windows("span", windows(1), Corruption(V), seed=0, step=0)


@pytest.mark.parametrize("objective", BATCHES)
def test_windows_without_a_token_are_refused(objective):
    if objective in ("spans", "noise"):
        batch = batch_of_windows(objective, [np.zeros(0, int)], Corruption(V), seed=0, step=0)
        assert batch.tokens.tolist() == [[BOS, EOS]]
        return
    with pytest.raises(DataError, match="at least one token"):
        batch_of_windows(objective, [np.zeros(0, int)], Corruption(V), seed=0, step=0)


# --- The longest source and target of a window: none drawn is longer, and where none is special some are as long


def read_at_once(objective, window, share, mean, seed):
    """The longest that a stack reads of this window; a decoder does not read its last target."""
    batch = batch_of_windows(objective, [window], Corruption(40, share, mean), seed=seed, step=0)
    return max(batch.source.shape[1], batch.tokens.shape[1] - 1)


@given(
    st.sampled_from(["spans", "noise"]),
    st.lists(st.sampled_from([BOS, 7, 8, 9]), min_size=2, max_size=40).map(np.array),
    st.floats(0.01, 0.99),
    st.floats(1.0, 9.0),
    st.integers(0, 2**20),
)
def test_no_window_is_longer(objective, window, share, mean, seed):
    specials = int((window < len(SPECIALS)).sum())
    most = longest(objective, len(window), share, mean, specials)
    assert read_at_once(objective, window, share, mean, seed) <= most


@pytest.mark.parametrize(
    ("window", "share", "mean", "most"),
    # of 32 tokens 5 are hidden: in 2 spans 27 + 2 + <eos>, and in 5 of them 27 + 5 + <eos>; of half a decoder reads 24
    [(32, 0.15, 3.0, 30), (32, 0.15, 1.0, 33), (32, 0.5, 2.0, 25), (32, 0.9, 3.0, 33)],
)
def test_spans_of_text_alone_are_as_long(window, share, mean, most):
    assert longest("spans", window, share, mean) == most
    assert read_at_once("spans", np.arange(6, 6 + window), share, mean, seed=0) == most


def test_noise_reaches_a_window_and_one_in_the_decoder_and_more_in_the_source():
    assert longest("noise", 512, 0.3, 3.0) == 513
    text = np.arange(6, 38)
    seen = max(read_at_once("noise", text, 0.15, 1.0, seed) for seed in range(300))
    assert 33 < seen <= longest("noise", 32, 0.15, 1.0) < 2 * 32


@pytest.mark.parametrize("objective", ["next_token", "prefix", "masked"])
def test_of_others_the_window_is_all(objective):
    assert longest(objective, 32, 0.15, 3.0, specials=9) == 32
