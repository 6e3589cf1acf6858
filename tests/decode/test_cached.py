"""Greedy decoding with cache and batch equals the naive loop: one row alone, all tokens anew at each step."""

import random

import pytest

from decode.naive import collected, naive
from glassformer import Transformer
from glassformer.data.tokens.vocabulary import BOS
from train.examples import SCHEMES, model, sequences

LAYOUTS = ["encoder-decoder", "decoder"]
PUSH, ALL = 12, 50
"""Models of each layout and scheme in the push tier, and in both tiers."""


def until(ids: list[int], eos: int) -> list[int]:
    """Up to the first `eos`, with it."""
    return ids[: ids.index(eos) + 1] if eos in ids else ids


def seeds(layout: str, positions: str, first: int, end: int) -> list[int]:
    """One for each model; no other layout or scheme has them, so that no combination of variants comes again."""
    cell = LAYOUTS.index(layout) * len(SCHEMES) + SCHEMES.index(positions)
    return [ALL * cell + i for i in range(first, end)]


def example(layout: str, positions: str, seed: int) -> Transformer:
    """A random model: grouped heads or not, a window or none, norms before or behind."""
    draw = random.Random(seed)
    return model(
        layout,
        seed=seed,
        positions=positions,
        n_layers=1 + (draw.random() < 0.2),
        n_kv_heads=draw.choice([1, 2]),
        norm_placement=draw.choice(["pre", "post"]),
        window=draw.choice([None, None, 2, 3]),
        dropout=0.5,
    )


def rows_for(layout: str, seed: int) -> dict:
    """Rows that differ in all that may differ, so the batch is padded on the left of prompts, and of sources."""
    draw = random.Random(seed + 10_000)
    n_rows = draw.choice([1, 2, 2, 3, 8])  # of four and less, who ended leaves at once
    prompts = [[BOS, *each] for each in sequences([draw.randint(0, 6) for _ in range(n_rows)], seed)]
    asked = {"prompts": prompts, "max_new_tokens": [draw.randint(1, 6) for _ in range(n_rows)]}
    if layout == "encoder-decoder":
        asked["sources"] = sequences([draw.randint(1, 6) for _ in range(n_rows)], seed + 20_000)
    if layout == "encoder-decoder" and draw.random() < 0.5:
        del asked["prompts"]
    return asked


def assert_naive(layout: str, positions: str, first: int, end: int) -> None:
    ended, answers = 0, set()
    for seed in seeds(layout, positions, first, end):
        network, asked = example(layout, positions, seed), rows_for(layout, seed)
        limits = asked["max_new_tokens"]
        network.eval()
        sources = asked.get("sources", [None] * len(limits))
        prompts = asked.get("prompts", [[BOS]] * len(limits))
        full = [naive(network, *row) for row in zip(sources, prompts, limits, strict=True)]
        eos = random.Random(seed).choice([token for ids in full for token in ids])
        expected = [until(ids, eos) for ids in full]
        network.train()
        assert collected(network, len(limits), **asked, eos=eos) == expected, seed
        ended += sum(len(short) < len(long) for short, long in zip(expected, full, strict=True))
        answers |= set(map(tuple, full))
    assert ended > (end - first) / 2, "few rows ended by themselves, so little was shown about rows that leave"
    assert len(answers) > end - first, "the models hardly read what they are given"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", SCHEMES)
def test_equals_the_naive_loop(layout, positions):
    assert_naive(layout, positions, 0, PUSH)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", SCHEMES)
def test_many_prompts_equal_the_naive_loop(layout, positions):
    assert_naive(layout, positions, PUSH, ALL)
