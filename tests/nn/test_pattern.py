"""Patterns as pictures, and the contradictions that they refuse."""

import re

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern
from glassformer.nn.mask import Mask

CPU = torch.device("cpu")


def table(mask, T):
    """'x' where a query (line) may read a key (column)."""
    return ["".join("x" if may else "." for may in row) for row in mask.allowed(T, T, CPU)[0, 0].expand(T, T)]


def test_a_window_is_a_pattern():
    assert Mask(window=3).sparse == Pattern(window=3)
    assert Mask(pattern=Pattern(window=3)).sparse == Pattern(window=3)
    assert Mask(pattern=Pattern()).sparse is None
    assert Mask(pattern=Pattern()).hides_nothing
    assert Mask(causal=True, pattern=Pattern()).only_causal


@pytest.mark.parametrize(("settings", "message"), [
    ({"window": 0}, "window must be at least 1"),
    ({"window": 2, "dilation": 0}, "dilation must be at least 1; got 0"),
    ({"stride": 0}, "stride must be at least 1; got 0"),
    ({"block": -1}, "block must be at least 1; got -1"),
    ({"block": 4, "summary": 0}, "summary must be at least 1; got 0"),
    ({"window": 2, "sinks": -1}, "sinks must be at least 0; got -1"),
    ({"window": 2, "global_tokens": -2}, "global_tokens must be at least 0; got -2"),
    ({"window": 2, "stride": 3}, r"only one of window, stride and block; got window=2 and stride=3\. Keep one"),
    ({"stride": 2, "block": 3}, "got stride=2 and block=3"),
    ({"dilation": 2}, r"dilation needs a window; got dilation=2 and window=None\. Try window=128"),
    ({"sinks": 2}, "sinks needs a window"),
    ({"stride": 3, "global_tokens": 1}, r"global_tokens needs a window.*Remove global_tokens"),
    ({"summary": 2}, r"summary needs a block; got summary=2 and block=None\. Try block=128"),
    ({"block": 16, "summary": 17}, r"must be at most block=16, .*; got 17\. Try summary=2"),
    ({"window": 2, "global_tokens": 1, "sinks": 1}, "got global_tokens=1 and sinks=1. Set sinks=0"),
])  # fmt: skip
def test_contradictions(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        Pattern(**settings)
    offered = {name: int(value) for name, value in re.findall(r"(?:Try|at) (\w+)=(\d+)\.", str(error.value))}
    if "Try" in message:
        Pattern(**{**settings, **offered})


@pytest.mark.parametrize("settings", [{"stride": 2}, {"block": 2}, {"window": 2, "sinks": 1}])
def test_what_looks_back_only_is_causal(settings):
    with pytest.raises(ConfigError, match=r"causal=False\. Set causal=True, or use window"):
        Mask(pattern=Pattern(**settings))
    Mask(causal=True, pattern=Pattern(**settings))


def test_window_and_pattern_are_one_thing():
    with pytest.raises(ConfigError, match=r"Put it into the pattern, Pattern\(window=2, \.\.\.\), or"):
        Mask(window=2, pattern=Pattern(window=2, dilation=2))


def test_documents():
    packed = torch.tensor([[7, 7, 3, 3, 3]])
    assert table(Mask(documents=packed), 5) == ["xx...", "xx...", "..xxx", "..xxx", "..xxx"]
    assert table(Mask(causal=True, documents=packed), 5) == ["x....", "xx...", "..x..", "..xx.", "..xxx"]
    assert not Mask(documents=packed).hides_nothing
    assert not Mask(causal=True, documents=packed).only_causal
    crossing = Mask(documents=packed, query_documents=torch.tensor([[3, 8, 7]]))
    assert [row.tolist() for row in crossing.allowed(3, 5, CPU)[0, 0].long()] == [
        [0, 0, 1, 1, 1],
        [0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
    ]
    with pytest.raises(ConfigError, match="got 6 queries and only 5 keys"):
        Mask(documents=packed).allowed(6, 5, CPU)
    with pytest.raises(ConfigError, match=r"got none\. Give documents="):
        Mask(query_documents=packed)
