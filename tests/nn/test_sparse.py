"""Blocks of queries answer as the reference does, at lengths that no block divides, and never form all scores."""

import itertools

import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.base.schemes import Pattern
from glassformer.nn.rules import pick
from glassformer.nn.sparse import LEAST, ROWS, parts_of, pays
from nn.largest import largest
from specimens import close, normal

CPU = torch.device("cpu")
BOTH_WAYS = [
    Pattern(window=1), Pattern(window=5), Pattern(window=40), Pattern(window=3, dilation=4),
    Pattern(window=20, dilation=3), Pattern(window=3, dilation=400), Pattern(window=4, global_tokens=3),
    Pattern(window=4, dilation=2, global_tokens=1),
]  # fmt: skip
CAUSAL = [
    *BOTH_WAYS, Pattern(window=20, sinks=2), Pattern(window=3, dilation=3, sinks=4), Pattern(stride=1),
    Pattern(stride=6), Pattern(stride=20), Pattern(block=1), Pattern(block=7, summary=2), Pattern(block=100, summary=9),
]  # fmt: skip
CASES = [*((each, True) for each in CAUSAL), *((each, False) for each in BOTH_WAYS)]
cases = pytest.mark.parametrize(("pattern", "causal"), CASES, ids=str)


def both(S, rules, G=2):
    """Output and gradients of the reference and of blocks."""
    q, k, v = normal(2, 4, S, 3), normal(2, G, S, 3), normal(2, G, S, 3)
    inputs = [q, k, v, *([rules["bias"]] if "bias" in rules else [])]
    for backend in ("reference", "sparse"):
        output = ATTEND["softmax"][backend](q, k, v, Mask(**rules), scale=0.7)
        weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
        yield [output, *torch.autograd.grad((output * weights).sum(), inputs)]


@cases
@pytest.mark.parametrize("extra", ["nothing", "keep", "documents", "bias"])
def test_odd_lengths(pattern, causal, extra):
    for S, G in ((1, 4), (37, 2), (70, 1)):
        more = {
            "nothing": {},
            "keep": {"keep": torch.rand(2, S) < 0.6},
            "documents": {"documents": torch.arange(S).expand(2, -1) // 9},
            "bias": {"bias": normal(4, S, S)},
        }[extra]
        for theirs, ours in zip(*both(S, {"pattern": pattern, "causal": causal, **more}, G), strict=True):
            close(ours, theirs, (S, pattern))


def test_rows_that_stand_anywhere():
    """Positions are not columns then, so some queries at a time meet all keys."""
    S = ROWS + 9
    placed = {
        "query_positions": torch.randint(S, (2, S)),
        "key_positions": torch.where(torch.rand(2, S) < 0.8, torch.randint(S, (2, S)), -1),
    }
    for more in ({}, {"bias": normal(4, S, S)}, {"documents": torch.arange(S).expand(2, -1) // 50}):
        for theirs, ours in zip(*both(S, {"window": 7, "causal": True, **placed, **more}), strict=True):
            close(ours, theirs)


@cases
def test_each_pair_belongs_to_one_part(pattern, causal):
    """No key is met twice, none is left out, and the parts name the columns that they meet."""
    for S in (1, 23, 60):
        queries, counted = torch.arange(S)[:, None], torch.zeros(S, S, dtype=torch.long)
        for part in parts_of(pattern, S, causal=causal):
            columns = part.columns(S, CPU)
            assert columns.shape == (S, part.met)
            read = (columns >= 0) & part.reads(queries, columns) & ((columns <= queries) | (not causal))
            counted.scatter_add_(1, columns.clamp(min=0), read.long())
        wanted = Mask(causal=causal, pattern=pattern).allowed(S, S, CPU)[0, 0].long()
        first = pattern.global_tokens if not causal else 0  # these queries read everything, by themselves
        assert torch.equal(counted[first:], wanted[first:])


@pytest.mark.parametrize(
    "pattern", [Pattern(window=8, dilation=10**6), Pattern(window=8, dilation=30), Pattern(block=10**6)]
)
def test_what_is_longer_than_the_text_is_not_padded_to(pattern):
    [part] = parts_of(pattern, 70, causal=True)
    assert part.step * part.size < 2 * 70


@pytest.mark.parametrize("pattern", [
    Pattern(window=16), Pattern(window=16, dilation=4), Pattern(window=16, sinks=4), Pattern(stride=32),
    Pattern(block=32),
])  # fmt: skip
@pytest.mark.parametrize("backend", ["sparse", "auto"])
def test_all_scores_are_never_formed(pattern, backend):
    T = 1024
    q = torch.randn(1, 1, T, 2, requires_grad=True)
    attend = ATTEND["softmax"][backend]
    assert largest(lambda: attend(q, q, q, Mask(causal=True, pattern=pattern), scale=1.0)) <= T * T / 8


def test_where_it_pays():
    window, S = {"window": LEAST // 16}, LEAST
    assert pays(Mask(**window), S, S)
    assert pick("cpu", S, S, Mask(**window))[0] == "sparse"
    places = torch.arange(S)
    others = [{}, {"window": S}, {**window, "query_positions": places}, {**window, "bias": torch.zeros(1, S, S)}]
    assert not any(pays(Mask(**rules), S, S) for rules in others)
    for T, keys in itertools.product((S - 1, S), (S - 1, S)):
        assert pays(Mask(**window), T, keys) == (T == keys == S)
