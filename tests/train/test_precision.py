"""float32 or bfloat16: as asked, float32 where the processor lacks the other, else by the median of timings in turn."""

import pytest
import torch

from glassformer.train import precision
from glassformer.train.precision import AHEAD, KEPT, TIMED, WORTH_IT, choose_precision
from train.examples import assert_same, batch, model, weights

BATCHES = [batch("encoder-decoder", sizes) for sizes in ([(3, 5), (1, 1)], [(4, 4)])] * (TIMED // 2)


@pytest.fixture
def bfloat16(monkeypatch):
    """A processor that has bfloat16."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)


FIRST = 2 * 2  # each shape once in each arithmetic


def plant(monkeypatch, *ratios: float, first: int = FIRST) -> list[tuple[int, str]]:
    """Makes bfloat16 `ratios` times as fast, in turn, after `first` timings. What was timed."""
    timed: list[tuple[int, str]] = []

    def seconds(network, data, kind):
        timed.append((len(data.tokens), kind))
        if len(timed) <= first:
            return 1000.0 if kind == "bfloat16" else 0.001  # set-up, which must not count
        return 1.0 if kind == "float32" else 1.0 / ratios[(len(timed) - 1 - first) // 2 % len(ratios)]

    monkeypatch.setattr(precision, "_seconds", seconds)
    return timed


@pytest.mark.parametrize("requested", ["float32", "bfloat16"])
def test_as_asked(monkeypatch, requested):
    timed = plant(monkeypatch, 9.0)
    assert choose_precision(requested, model(), BATCHES) == (requested, f"{requested}, as asked")
    assert timed == []


def test_processor_without_bfloat16(monkeypatch):
    timed = plant(monkeypatch, 9.0)
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    chosen, why = choose_precision("auto", model(), BATCHES)
    assert (chosen, timed) == ("float32", [])
    assert "no bfloat16" in why


@pytest.mark.parametrize(("ratios", "chosen", "figure"), [
    ([2.0], "bfloat16", "2.00"),
    ([0.5], "float32", "0.50"),
    ([1.0], "float32", "1.00"),
    ([WORTH_IT + 0.01], "bfloat16", "1.16"),
    ([WORTH_IT - 0.01], "float32", "1.14"),
    ([2.0, 2.0, 2.0, 2.0, 2.0, 0.001, 0.001, 0.001], "bfloat16", "2.00"),
    ([100.0, 0.9, 0.9, 0.9, 0.9, 0.9, 100.0, 100.0], "float32", "0.90"),
    ([0.95, 1.1, 1.0, 1.1, 0.95, 1.04, 1.1, 1.0], "float32", "1.02"),  # as noise of equal speeds looks
])  # fmt: skip
def test_median_of_timings_decides(monkeypatch, bfloat16, ratios, chosen, figure):
    timed = plant(monkeypatch, *ratios)
    found, why = choose_precision("auto", model(), BATCHES)
    assert found == chosen
    assert f"bfloat16 is {figure} times as fast" in why
    measured = timed[FIRST:]
    assert len(measured) == 2 * len(BATCHES)
    assert ("may be chance" in why) == (chosen == "float32")
    turns = [[kind for _, kind in measured[2 * n : 2 * n + 2]] for n in range(len(measured) // 2)]
    both = ["float32", "bfloat16"]
    assert turns == [both, both[::-1]] * (TIMED // 2), "the first place is nobody's advantage"
    assert all(a == b for (a, _), (b, _) in zip(measured[::2], measured[1::2], strict=True))
    assert {rows for rows, _ in measured} == {1, 2}


@pytest.mark.parametrize("read", ["source", "target"])
@pytest.mark.parametrize(("sizes", "chosen"), [(KEPT - 1, "bfloat16"), (KEPT, "float32")])
def test_set_up_counts_where_there_are_too_many_sizes_to_be_kept(monkeypatch, bfloat16, sizes, chosen, read):
    """A bfloat16 that is quick, but for its first time with so many positions. One size is that of the other stack."""
    seen: set[tuple[int, int]] = set()

    def seconds(network, data, kind):
        size = data.tokens.numel(), data.source.numel()
        new, _ = size not in seen, kind == "bfloat16" and seen.add(size)
        return {"float32": 1.0, "bfloat16": 9.0 if new else 0.5}[kind]

    monkeypatch.setattr(precision, "_seconds", seconds)
    lengths = [(1 + n, 500) if read == "source" else (500, 1 + n) for n in range(sizes)]
    batches = (batch("encoder-decoder", [each]) for each in lengths)
    assert choose_precision("auto", model(), batches)[0] == chosen


def test_each_size_is_set_up_once_and_batches_far_ahead_are_not_asked_for(monkeypatch, bfloat16):
    timed = plant(monkeypatch, 2.0, first=0)
    one, other, longer = (batch("encoder-decoder", rows) for rows in ([(3, 5)], [(3, 5)] * 2, [(4, 5)] * 2))
    choose_precision("auto", model(), [one, other, one, longer])
    assert [n for n, _ in timed] == [1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2]
    ahead = iter([one] * (AHEAD + 1))
    choose_precision("auto", model(), ahead)
    assert len(list(ahead)) == 1
    ahead = iter([one])
    choose_precision("float32", model(), ahead)
    assert len(list(ahead)) == 1, "nothing is asked for where nothing is measured"


def test_measuring_leaves_weights_gradients_and_random_numbers(bfloat16):
    network = model(dropout=0.5).float()
    before, random = weights(network), torch.get_rng_state()
    choose_precision("auto", network, BATCHES)
    assert_same(weights(network), before)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_what_is_timed_is_a_forward_and_backward(monkeypatch, bfloat16):
    """By a clock that counts backward passes; in bfloat16 the matrices are multiplied in bfloat16."""
    network, seen = model().float(), []
    network.decoder.blocks[0].feed_forward.branch.up.register_forward_hook(
        lambda module, inputs, output: seen.append(str(output.dtype))
    )
    passes = [0]
    network.head.weight.register_hook(lambda gradient: passes.__setitem__(0, passes[0] + 1))
    monkeypatch.setattr(precision.time, "perf_counter", lambda: float(passes[0]))
    assert "1.00 times" in choose_precision("auto", network, BATCHES[::2])[1]
    assert passes == [2 + TIMED]
    narrow, wide = "torch.bfloat16", "torch.float32"
    assert seen == [wide, narrow] + [wide, narrow, narrow, wide] * (TIMED // 4)
