"""A text beside others as it is served: what is prepared for decoding gives it the numbers that it gets alone."""

import random
from dataclasses import replace

import pytest
import torch

from decode.test_batching import Recorded, served
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose import chooser
from glassformer.decode.engine import Engine
from glassformer.decode.requests import Limits, Request
from glassformer.decode.settings import Sampling
from glassformer.fast.decoding import for_decoding
from specimens import VOCAB, model, native_cpp

SHAPES = pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
DRAWN = chooser(Sampling(temperature=1.0))


def apart(shape: str, precision: str, lengths: list[int], seed: int, **settings) -> tuple[int, float]:
    """How many texts differ beside others from themselves alone, and the largest difference of a logit until then."""
    random.seed(seed)
    torch.manual_seed(seed)
    made = model(shape, positions="rotary", head_bias=True, max_len=400, dtype=torch.float32, **settings)
    made.head.bias.data[EOS] = -1e3
    engine_of, together = for_decoding(made, precision), Recorded(DRAWN)
    requests = []
    for number, length in enumerate(lengths):
        ids = random.choices(range(4, VOCAB), k=length)
        reads = {"prompt": ids} if shape == "decoder" else {"source": ids}
        requests.append(Request(max_new_tokens=12, choose=together, first=number, seed=seed, **reads))
    texts = served(Engine(engine_of, Limits(rows=4)), requests, [0, 0, 0, 3, 5, 9][: len(requests)])
    others, largest = 0, 0.0
    for request in requests:
        by_itself, number = Recorded(DRAWN), request.first
        [own] = served(Engine(engine_of, Limits(rows=4)), [replace(request, choose=by_itself)], [0]).values()
        others += own != texts[number]
        for a, b, *ids in zip(together.seen[number], by_itself.seen[number], texts[number], own, strict=True):
            largest = max(largest, float((a - b).abs().max()))
            if ids[0] != ids[1]:
                break
    return others, largest


@native_cpp
@SHAPES
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_cpp_gives_a_text_beside_longer_ones_the_same_bits(shape, precision, seed):
    """Prompts read together with longer ones, and rows that others join and leave."""
    assert apart(shape, precision, [2, 90, 7, 120, 30, 3], seed) == (0, 0.0)


@pytest.mark.parametrize(("lengths", "settings"), [([2, 7, 300], {}), ([2, 90, 7, 30], {"window": 8})])
@pytest.mark.parametrize("seed", range(3))
def test_torch_gives_it_the_same_but_for_last_bits(lengths, settings, seed):
    """A prompt that padding makes as long as one of 300 tokens, and patterns that C++ does not know."""
    assert apart("decoder", "float32", lengths, seed, **settings)[1] < 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_bfloat16_rounds_by_how_much_is_read_together(seed):
    """One text may differ from itself alone, which the documents say; each number is still near."""
    assert apart("decoder", "bfloat16", [20, 25, 30], seed)[1] < 0.2
