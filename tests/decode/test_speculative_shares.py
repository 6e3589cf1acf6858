"""Speculative decoding draws with the plain distribution, whoever guesses and whatever filters apply."""

import math

import pytest
import torch

from decode.test_speculative import written
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.choose import shares
from glassformer.decode.filters import Context, logit_bias
from glassformer.decode.settings import Sampling
from glassformer.decode.speculative import Guess, Tally, settle, speculative
from train.examples import model


def chi_square(counts: list[int], p: list[float]) -> float:
    """How far counts are from expected ones, in standard deviations of the chi-square; cells below 5 together."""
    n = sum(counts)
    cells = [(count, n * share) for count, share in zip(counts, p, strict=True) if n * share >= 5]
    rare = (n - sum(count for count, _ in cells), n - sum(share for _, share in cells))
    cells += [rare] if rare[1] > 1 else []
    total = sum((count - share) ** 2 / share for count, share in cells)
    return (total - (len(cells) - 1)) / math.sqrt(2 * (len(cells) - 1))


@pytest.mark.parametrize("kind", ["drawn", "certain"])
def test_over_all_random_numbers_what_settles_has_the_shares_of_p(kind):
    """Without chance: both numbers go through a grid, so every share is exact to 1/200, for any p and q."""
    coin, grid = torch.Generator().manual_seed(2), [(i + 0.5) / 200 for i in range(200)]
    for vocab in (2, 3, 4, 6, 6):
        p, q = torch.rand(2, vocab, generator=coin, dtype=torch.float64) ** 2
        p, q = p / p.sum(), q / q.sum()
        p = p if vocab != 6 else torch.where(torch.arange(6) == 1, 0.0, p) / (1 - p[1])
        total = torch.zeros(vocab, dtype=torch.float64)
        guesses = q.tolist() if kind == "drawn" else [0.0, 1.0]
        for x, share in enumerate(guesses):
            guess = Guess([x], q[None] if kind == "drawn" else None)
            stayed = sum(settle(guess, 0, p, stays, 0.5) == (x, True) for stays in grid) / len(grid)
            total[x] += share * stayed
            if stayed < 1:
                rest = [settle(guess, 0, p, math.nextafter(1, 0), drawn) for drawn in grid]
                assert not any(each for _, each in rest)
                found = torch.tensor([token for token, _ in rest]).bincount(minlength=vocab)
                total += share * (1 - stayed) * found / len(grid)
        torch.testing.assert_close(total, p, rtol=0, atol=1 / 200)


SHAPES = {
    "plain": (Sampling(temperature=1.4, top_k=6, seed=5), []),
    "penalty": (Sampling(temperature=1.4, repetition_penalty=1.6, presence_penalty=0.4, seed=5), []),
    "filters": (Sampling(temperature=1.4, min_p=0.02, no_repeat_ngram=3, seed=5), [logit_bias({7: 1.5, 6: -1.0})]),
}
"""Settings and filters under which guesses are made and checked."""


def draws(count: int, guesser: str, shape: str = "plain") -> float:
    """The chi-square of whole texts of two tokens beside their probabilities, as the settings and filters have them."""
    network, draft = (model("decoder", seed=seed, vocab=8) for seed in (3, 4))
    (asked, filters), prompt = SHAPES[shape], [BOS, 7, 6, 7]
    guess = {"draft": draft} if guesser == "draft" else {"lookup": 1}
    given = {"sampling": asked, "filters": filters, "prompts": [prompt] * count, "max_new_tokens": 2}
    tally = Tally()
    found = written(speculative(network, **guess, guesses=2, tally=tally, **given), count)
    assert 0 < tally.stayed < tally.guessed
    mass = shares(asked, filters)

    @torch.no_grad()
    def after(ids: list[int]) -> list[float]:
        return mass(network(torch.tensor([[*prompt, *ids]]))[:, -1], Context([0], [prompt], [ids]))[0].tolist()

    expected = {(EOS,): after([])[EOS]}
    for one, share in enumerate(after([])):
        if one != EOS:
            expected |= {(one, two): share * each for two, each in enumerate(after([one]))}
    counts = dict.fromkeys(expected, 0)
    for text in found:
        counts[tuple(text)] += 1
    assert all(expected[text] for text, n in counts.items() if n), "a text that no draw without guesses gives"
    return chi_square([*counts.values()], [*expected.values()])


@pytest.mark.parametrize("guesser", ["draft", "lookup"])
def test_drawn_texts_have_the_plain_distribution(guesser):
    """Enough to show a coarse fault of the rounds; what settles a token is shown without chance above."""
    assert draws(1_000, guesser) < 4


@pytest.mark.slow
@pytest.mark.parametrize("guesser", ["draft", "lookup"])
@pytest.mark.parametrize("shape", SHAPES)
def test_many_drawn_texts_have_the_plain_distribution(guesser, shape):
    """Also where a penalty, or filters and a forbidden n-gram, make what is drawn hang on what was guessed before."""
    assert draws(20_000, guesser, shape) < 4
