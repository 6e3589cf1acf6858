"""Rows come and go at any time, and each gets token for token what it would get alone."""

import random
from dataclasses import replace

import pytest
import torch

from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.choose import chooser, greedy
from glassformer.decode.engine import Engine
from glassformer.decode.filters import Context
from glassformer.decode.generate import generate
from glassformer.decode.requests import Limits, Request
from glassformer.decode.settings import Sampling
from glassformer.fast.decoding import for_decoding
from glassformer.nn.positions import POSITIONS
from specimens import ORDERS, PATTERNS, RULES, VOCAB, close, model, native_cpp

VARIANTS = [
    *ORDERS, {"n_kv_heads": 1}, {"n_kv_heads": 2, "positions": "rotary", "window": 3}, *RULES, *PATTERNS,
    *({"convolution": 3, **each} for each in ({}, {"window": 3}, {"attention_rule": "linear"})),
]  # fmt: skip
ACROSS = [*({"positions": name} for name in POSITIONS), {"n_kv_heads": 2}, {"convolution": 2}, *RULES]


def shown(settings: dict) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items()).replace(" ", "") or "plain"


shapes = pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])


class Recorded:
    """A choice that writes down the logits of each row by its number."""

    def __init__(self, choose=greedy):
        self.choose, self.seen = choose, {}

    def __call__(self, logits, context: Context):
        for row, number in zip(logits, context.numbers, strict=True):
            self.seen.setdefault(number, []).append(row)
        return self.choose(logits, context)


def ids(n: int) -> list[int]:
    return random.choices(range(3, VOCAB), k=n)


def request_of(shape: str, number: int, choose, **more) -> Request:
    """A random request; an encoder-decoder sometimes goes on from a prompt of its own."""
    source = ids(random.randint(0, 6)) if shape == "encoder-decoder" else None
    prompt = [BOS] if source is not None and random.random() < 0.5 else ids(random.randint(1, 7))
    n = random.choice([1, 1, 3])
    return Request(prompt, source, random.randint(1, 9), n, choose, first=number, **more)


def alone(made, request: Request, text: int, choose) -> list[int]:
    """What `generate` writes for one text of a request, in a batch of its own."""
    steps = generate(
        made,
        sources=None if request.source is None else [request.source],
        prompts=[request.prompt],
        max_new_tokens=request.max_new_tokens,
        choose=choose,
        numbers=[request.first + text],
    )
    return [step.tokens[0] for step in steps]


def served(engine: Engine, requests, arrival) -> dict[int, list[int]]:
    """All texts by number; request i comes before step `arrival[i]`."""
    texts: dict[int, list[int]] = {}
    waiting, step = sorted(zip(arrival, range(len(requests)), strict=True)), 0
    while waiting or engine.busy:
        while waiting and waiting[0][0] <= step:
            engine.submit(requests[waiting.pop(0)[1]])
        for each in engine.step():
            assert each.error is None, each.error
            texts.setdefault(each.ticket.request.first + each.text, []).append(each.id)
        step += 1
    return texts


def check(made, shape: str, n_requests: int, limits: Limits, sampling: Sampling | None = None) -> int:
    """Random requests at random times: tokens and logits are those of each text alone. Returns how many texts."""
    together = Recorded(greedy if sampling is None else chooser(sampling))
    requests = [request_of(shape, 10 * i, together, seed=i) for i in range(n_requests)]
    texts = served(Engine(made, limits), requests, [random.randint(0, 3 * n_requests) for _ in requests])
    for request in requests:
        for text in range(request.n):
            own = greedy if sampling is None else chooser(replace(sampling, seed=request.seed))
            by_itself = Recorded(own)
            number = request.first + text
            assert texts.pop(number) == alone(made, request, text, by_itself)
            close(torch.stack(together.seen[number]), torch.stack(by_itself.seen[number]), number)
    assert not texts
    return sum(request.n for request in requests)


@pytest.mark.parametrize("variant", VARIANTS, ids=shown)
def test_each_row_gets_what_it_gets_alone(variant):
    check(model("decoder", **variant), "decoder", 3, Limits(rows=4, reading=15))


@pytest.mark.parametrize("variant", ACROSS, ids=shown)
def test_each_answer_is_that_of_its_source_alone(variant):
    check(model("encoder-decoder", **variant), "encoder-decoder", 3, Limits(rows=4, reading=15))


@shapes
def test_drawn_rows_too(shape):
    sampling = Sampling(temperature=0.9, top_p=0.95, presence_penalty=0.3, repetition_penalty=1.2)
    check(model(shape, positions="rotary"), shape, 6, Limits(rows=5), sampling)


@pytest.mark.slow
@shapes
@pytest.mark.parametrize("variant", [{"positions": "alibi", "n_kv_heads": 2}, {"positions": "shaw"}, {}], ids=shown)
def test_hundreds_of_prompts(shape, variant):
    assert check(model(shape, **variant), shape, 300, Limits(rows=16, waiting=300)) > 400


@pytest.mark.parametrize(("positions", "prefix"), [("rotary", False), ("learned", True)])
def test_a_text_longer_than_its_context_goes_on_from_its_end(positions, prefix):
    made, context = model("decoder", positions=positions, max_len=9), {"max_context": 9, "drop": 3}
    engine = Engine(made, Limits(rows=3), prefix=prefix, **context)
    requests = [Request(ids(n), max_new_tokens=random.randint(8, 16), first=n) for n in (2, 7, 9, 12)]
    got = served(engine, requests, [0, 0, 3, 4])
    for request in requests:
        steps = generate(
            made, prompts=[request.prompt], max_new_tokens=request.max_new_tokens, prefix=prefix, **context
        )
        assert got[request.first] == [step.tokens[0] for step in steps]


# --- A text beside others as it is served: what is prepared for decoding gives it the numbers that it gets alone


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
