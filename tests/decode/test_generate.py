"""Decoding token by token: which rows go on, where each ends, what is left out at its front, what is refused."""

import math
import random

import pytest
import torch

from decode.naive import collected, naive
from glassformer import Transformer, generate
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP
from glassformer.decode.answer import fill_blanks
from glassformer.decode.choose import greedy
from glassformer.decode.filters import Context
from train.examples import SCHEMES, VOCAB, model, sequences


def test_rows_that_finished_leave_the_batch():
    network, sizes = model("decoder"), []
    network.head.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    prompts = sequences([1, 2, 3, 4, 5, 6, 7, 8])
    written = collected(network, 8, prompts=prompts, max_new_tokens=[1, 2, 3, 4, 5, 6, 7, 8], eos=-1)
    assert [len(ids) for ids in written] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sizes == [8, 8, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_every_row_may_go_to_max_len(layout, positions):
    """Also beside a long prompt that is finished already but has not left the batch."""
    network = model(layout, positions=positions, max_len=10)
    prompts = [[BOS, *each] for each in sequences([8, *[1] * 7])]
    sources = sequences(range(1, 9)) if layout == "encoder-decoder" else None
    limits = [2, *[9] * 7]
    written = collected(network, 8, sources=sources, prompts=prompts, max_new_tokens=limits, eos=-1)
    rows = zip(sources or [None] * 8, prompts, limits, strict=True)
    assert written == [naive(network, *row) for row in rows]
    with pytest.raises(DataError, match="max_len=10"):
        collected(network, 1, sources=sources and sources[:1], prompts=prompts[:1], max_new_tokens=3, eos=-1)


TWO = [[7, 8], [9]]


@pytest.mark.parametrize(("layout", "requested", "error", "message"), [
    ("encoder", {"prompts": TWO}, ConfigError, r"reads in both directions\. Use fill_blanks"),
    ("encoder-decoder", {"prompts": TWO}, ConfigError, "An encoder-decoder needs sources"),
    ("decoder", {"prompts": TWO, "sources": TWO}, ConfigError, "a model of one stack takes none; got sources"),
    ("decoder", {}, ConfigError, r"continues prompts; got none\. Give prompts; \[\[BOS\]\]"),
    ("encoder-decoder", {"sources": TWO, "prompts": TWO[:1]}, DataError, "2 sources and 1 prompts"),
    ("decoder", {"prompts": [[7], []]}, DataError, r"prompt 1 \(counted from 0\) is empty"),
    ("decoder", {"prompts": []}, DataError, "at least one token"),
    ("encoder-decoder", {"sources": []}, DataError, "at least one token"),
    ("decoder", {"prompts": TWO, "max_new_tokens": 0}, ConfigError, r"at least 1.*got \[0, 0\]"),
    ("decoder", {"prompts": TWO, "max_new_tokens": [3, 0]}, ConfigError, r"each of 2 rows; got \[3, 0\]"),
    ("decoder", {"prompts": TWO, "max_new_tokens": [3]}, ConfigError, r"each of 2 rows; got \[3\]"),
    ("decoder", {"prompts": [[7], [VOCAB]]}, DataError, f"row 1, column 0 .* holds {VOCAB}"),
    ("encoder-decoder", {"sources": [[7, -1]]}, DataError, "row 0, column 1 .* holds -1"),
])  # fmt: skip
def test_mistakes(layout, requested, error, message):
    with pytest.raises(error, match=message):
        list(generate(model(layout), **{"max_new_tokens": 2, **requested}))


@pytest.mark.parametrize("positions", SCHEMES)
def test_blanks_are_filled_as_alone(positions):
    network = model("encoder", positions=positions, dropout=0.5)
    sources, lengths = sequences([3, 1, 6, 2]), [2, 5, 1, 0]
    filled = fill_blanks(network, sources, lengths)
    assert network.training
    network.eval()
    assert [len(ids) for ids in filled] == lengths
    for source, length, ids in zip(sources, lengths, filled, strict=True):
        logits = network(torch.tensor([[*source, SEP, *[BLANK] * length]]))[0]
        assert ids == logits[len(logits) - length :].argmax(-1).tolist()


def rolling(network: Transformer, prompt: list[int], limit: int, most: int, drop: int, source=None) -> list[int]:
    """The definition: at each step all that may be read, without a cache."""
    ids = list(prompt)
    for _ in range(limit):
        left = 0
        while len(ids) - left > most:
            left += drop
        inputs = {} if source is None else {"source": torch.tensor([[*source, EOS]])}
        ids.append(int(network(torch.tensor([ids[left:]]), **inputs)[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("drop", [1, 2, 5])
def test_a_text_longer_than_its_context_is_read_from_its_end(layout, positions, drop):
    """Rows of any length side by side, some done early: each is read as its own length says."""
    network = model(layout, seed=3, positions=positions, max_len=6)
    prompts = [[BOS, *each] for each in sequences([0, 9, 3, 5, 1, 4])]
    sources = sequences([3, 1, 2, 5, 4, 1]) if layout == "encoder-decoder" else [None] * 6
    limits = [12, 3, 9, 1, 7, 12]
    options = {"sources": sources} if layout == "encoder-decoder" else {}
    most = 5
    written = collected(
        network, 6, **options, prompts=prompts, max_new_tokens=limits, eos=-1, max_context=most, drop=drop
    )
    rows = zip(prompts, limits, sources, strict=True)
    assert written == [rolling(network, prompt, limit, most, drop, source) for prompt, limit, source in rows]
    assert len({*map(tuple, written)}) > 3


def test_what_rolls_is_read_anew_as_seldom_as_asked():
    network, read = model("decoder", max_len=None), []
    network.decoder.embedding.register_forward_hook(lambda module, inputs, output: read.append(inputs[0].shape[1]))
    collected(network, 1, prompts=[[BOS]], max_new_tokens=12, eos=-1, max_context=6, drop=3)
    assert read == [1, 1, 1, 1, 1, 1, 4, 1, 1, 4, 1, 1]


def test_a_row_ends_where_it_wrote_a_stop_sequence():
    wanted = [9, 8, 7, 8, 9]
    for stop, length in (([8, 7], 3), ([8], 2), ([8, 9], 5), ([9, 9], 5)):
        steps = iter([torch.tensor([token]) for token in wanted])
        found = collected(
            model("decoder"),
            1,
            prompts=[[BOS, 8]],
            max_new_tokens=5,
            choose=lambda *_, steps=steps: next(steps),
            stop=lambda _, ids, stop=stop: ids[-len(stop) :] == stop,
        )
        assert found == [wanted[:length]]


@pytest.mark.parametrize(("requested", "message"), [
    ({"max_context": 25}, "max_context must be at most max_len=24; got 25"),
    ({"max_context": 0}, "drop must be from 1 to max_context=0"),
    ({"max_context": 4, "drop": 5}, "drop must be from 1 to max_context=4; got 5"),
    ({"max_context": 4, "drop": 0}, "drop must be from 1 to max_context=4"),
    ({"drop": 0}, "drop belongs to max_context"),
    ({"drop": 3}, "drop belongs to max_context.*got drop=3"),
    ({"numbers": [3]}, "one for each of the 2 rows; got 1"),
], ids=["too long", "none", "all leaves", "nothing leaves", "no context", "nor drop", "numbers"])  # fmt: skip
def test_contexts_and_numbers_that_cannot_be(requested, message):
    with pytest.raises(ConfigError, match=message):
        list(generate(model("decoder"), prompts=TWO, max_new_tokens=2, **requested))


# --- The most likely token, in every dtype


NOBODY = Context([], [], [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_it_is_the_most_likely_and_the_lowest_of_equals(dtype):
    logits = torch.randn(40, 77).to(dtype)
    logits[::2, 40:60] = 9.0
    logits[5] = -torch.inf
    found = greedy(logits.requires_grad_(), NOBODY)
    assert found.dtype == torch.int64
    assert torch.equal(found, logits.detach().double().argmax(-1))
    assert found[::2].tolist() == [40] * 20


def test_logits_that_are_a_part_of_others():
    """As those of the last position, or of the rows that go on."""
    logits = torch.randn(6, 3, 50)
    assert torch.equal(greedy(logits[:, -1], NOBODY), logits[:, -1].argmax(-1))


@pytest.mark.parametrize("place", [0, 3, 4])
@pytest.mark.parametrize(("value", "message"), [(math.nan, r"not numbers \(NaN\)"), (math.inf, "infinite")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_no_number_is_refused(dtype, value, message, place):
    """Wherever it stands, as elsewhere; -inf is a token that is forbidden, and may be the highest there is."""
    logits = torch.zeros(3, 5, dtype=dtype)
    logits[0] = -math.inf
    context = Context([4, 9, 8], [[1]] * 3, [[]] * 3)
    assert greedy(logits, context).tolist() == [0, 0, 0]
    logits[1:, place] = value
    with pytest.raises(DataError, match=message + r" in row 9 \(counted from 0\)"):
        greedy(logits, context)


# --- Greedy decoding with cache and batch equals the naive loop: one row alone, all tokens anew at each step


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
    options = {"prompts": prompts, "max_new_tokens": [draw.randint(1, 6) for _ in range(n_rows)]}
    if layout == "encoder-decoder":
        options["sources"] = sequences([draw.randint(1, 6) for _ in range(n_rows)], seed + 20_000)
    if layout == "encoder-decoder" and draw.random() < 0.5:
        del options["prompts"]
    return options


def assert_naive(layout: str, positions: str, first: int, end: int) -> None:
    ended, answers = 0, set()
    for seed in seeds(layout, positions, first, end):
        network, requested = example(layout, positions, seed), rows_for(layout, seed)
        limits = requested["max_new_tokens"]
        network.eval()
        sources = requested.get("sources", [None] * len(limits))
        prompts = requested.get("prompts", [[BOS]] * len(limits))
        full = [naive(network, *row) for row in zip(sources, prompts, limits, strict=True)]
        eos = random.Random(seed).choice([token for ids in full for token in ids])
        expected = [until(ids, eos) for ids in full]
        network.train()
        assert collected(network, len(limits), **requested, eos=eos) == expected, seed
        ended += sum(len(short) < len(long) for short, long in zip(expected, full, strict=True))
        answers |= set(map(tuple, full))
    assert ended > (end - first) / 2, "few rows ended by themselves, so little was shown about rows that leave"
    assert len(answers) > end - first, "the models hardly read what they are given"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize(("first", "end"), [(0, PUSH), pytest.param(PUSH, ALL, marks=pytest.mark.slow)])
def test_equals_the_naive_loop(layout, positions, first, end):
    assert_naive(layout, positions, first, end)
