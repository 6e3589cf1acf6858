"""A beam that is wide enough finds what a search through all answers finds, on many models that all differ."""

import pytest

from decode.exhaustive import SMALL, assert_same, exhaustive, small
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.beam import beam_search, length_penalty
from train.examples import SCHEMES, sequences

LAYOUTS, ALPHAS = ("encoder-decoder", "decoder"), (0.0, 0.6, 2.0, -0.5)
PUSH, SLOW, PART = 40, 500, 10
"""Models of the push tier, models that only the slow tier has, and models of one test."""


def variant(number: int) -> tuple[str, float, str]:
    """Layout, alpha and positions of a model: all in turn, as the digits of its number."""
    rest, layout = divmod(number, len(LAYOUTS))
    rest, positions = divmod(rest, len(SCHEMES))
    return LAYOUTS[layout], ALPHAS[(rest + positions) % len(ALPHAS)], SCHEMES[positions]


def assert_exhaustive(number: int) -> None:
    """On the random model with this number: each number is a seed of its own.

    Several rows of unequal sources and limits at once; 3 tokens make 1 + 7 + 49 + 343 answers.
    """
    layout, alpha, positions = variant(number)
    network = small(layout, number, positions)
    limits = [3, 1, 2]
    sources = sequences([2, 4, 1], number, SMALL) if layout == "encoder-decoder" else None
    given = {"prompts": [[BOS]] * 3} if sources is None else {"sources": sources}
    found = beam_search(network, **given, max_new_tokens=limits, beam=400, n_best=5, lengths=length_penalty(alpha))
    for row, limit in enumerate(limits):
        expected = exhaustive(network, None if sources is None else sources[row], limit, alpha)
        assert_same(found[row], expected[:5])


@pytest.mark.parametrize("first", range(0, PUSH, PART))
def test_wide_enough_it_is_exhaustive(first):
    """On 40 random models; the slow tier has 500 others."""
    for number in range(first, first + PART):
        assert_exhaustive(number)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(PUSH, PUSH + SLOW, PART))
def test_on_many_models_it_is_exhaustive(first):
    for number in range(first, first + PART):
        assert_exhaustive(number)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_behind_a_prefix_it_is_exhaustive(positions):
    """Log-probabilities are those of the whole text read anew, with each prompt in both directions."""
    network, prompts = small("decoder", 3, positions, n_layers=2), [[BOS, 6, 7, 6], [BOS, 7]]
    found = beam_search(network, prompts=prompts, max_new_tokens=3, beam=400, n_best=3, prefix=True)
    for prompt, best in zip(prompts, found, strict=True):
        assert_same(best, exhaustive(network, None, 3, 0.6, prompt, prefix=True)[:3])
    causal = beam_search(network, prompts=prompts, max_new_tokens=3, beam=400, n_best=3)
    assert [each.score for each in causal[0]] != [each.score for each in found[0]]
