"""The mask as a value: what it allows, when it says that nothing is hidden, and what it refuses."""

import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.base.errors import ConfigError
from glassformer.nn.lowered import lower
from specimens import normal

CPU = torch.device("cpu")


def table(mask, T, S):
    """'x' where a query (line) may read a key (column); sequences side by side."""
    allowed = mask.allowed(T, S, CPU)
    if allowed is None:
        return None
    return ["".join("x" if may else "." for may in row) for row in allowed[0, 0].expand(T, S)]


def test_causal():
    assert table(Mask(causal=True), 3, 3) == ["x..", "xx.", "xxx"]


def test_queries_are_the_last_of_the_keys():
    assert table(Mask(causal=True), 2, 4) == ["xxx.", "xxxx"]
    assert table(Mask(causal=True), 4, 2) == ["..", "..", "x.", "xx"]


def test_the_last_of_the_keys_alone_reads_all_of_them():
    assert table(Mask(causal=True), 1, 4) is None
    assert table(Mask(causal=True, prefix=torch.tensor([2])), 1, 4) is None
    assert table(Mask(causal=True, window=2), 1, 4) == ["..xx"]
    standing = Mask(causal=True, query_positions=torch.tensor([1]), key_positions=torch.tensor([0, 1, 2]))
    assert table(standing, 1, 3) == ["xx."]


def test_window():
    assert table(Mask(window=1), 3, 3) == ["x..", ".x.", "..x"]
    assert table(Mask(window=2), 4, 4) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert table(Mask(causal=True, window=2), 4, 4) == ["x...", "xx..", ".xx.", "..xx"]


def test_prefix():
    two = torch.tensor([2])
    assert table(Mask(causal=True, prefix=two), 4, 4) == ["xx..", "xx..", "xxx.", "xxxx"]
    assert table(Mask(causal=True, prefix=two), 2, 4) == ["xxx.", "xxxx"]
    assert table(Mask(causal=True, prefix=two, documents=torch.tensor([0, 1, 1])), 3, 3) == ["x..", ".x.", ".xx"]
    standing = Mask(causal=True, prefix=two, key_positions=torch.tensor([-1, 0, 1]), query_positions=torch.tensor([0]))
    assert table(standing, 1, 3) == [".xx"]


def test_a_prefix_is_refused_where_it_says_nothing_or_too_much():
    with pytest.raises(ConfigError, match=r"needs causal=True; got causal=False"):
        Mask(prefix=torch.tensor([1]))
    with pytest.raises(ConfigError, match=r"reads the whole prefix.* got Pattern\(window=2.* Remove the pattern"):
        Mask(causal=True, window=2, prefix=torch.tensor([1]))


def test_keep_and_positions():
    assert table(Mask(keep=torch.tensor([[True, False, True]])), 2, 3) == ["x.x", "x.x"]
    standing = Mask(causal=True, query_positions=torch.tensor([1, 0]), key_positions=torch.tensor([1, -1, 0]))
    assert table(standing, 2, 3) == ["x.x", "..x"]
    assert table(Mask(key_positions=torch.tensor([0, -1])), 2, 2) == ["x.", "x."]


def test_nothing_to_hide_keeps_the_fast_kernels():
    assert table(Mask(), 3, 3) is None
    assert Mask().hides_nothing
    assert Mask(causal=True).only_causal
    keep = torch.ones(1, 3, dtype=torch.bool)
    places = torch.arange(3)
    assert not Mask(causal=True, prefix=torch.tensor([1])).only_causal
    hiding = [{"window": 2}, {"keep": keep}, {"bias": torch.zeros(1, 3, 3)}, {"key_positions": places}]
    for rules in hiding:
        assert not Mask(**rules).hides_nothing, rules
        assert not Mask(causal=True, **rules).only_causal, rules
    assert not Mask(causal=True).hides_nothing
    assert not Mask(causal=True, query_positions=places).only_causal
    assert not Mask().only_causal


def test_lowered_once_for_all_layers_but_not_where_the_bias_learns():
    like = torch.zeros(1)
    mask = Mask(causal=True, bias=torch.zeros(2, 3, 3))
    assert lower(mask, 3, 3, like) is lower(mask, 3, 3, like)
    assert lower(mask, 3, 3, like) is not lower(mask, 3, 3, like.double())
    assert lower(mask, 3, 3, like.double()).added.dtype == torch.float64
    learned = Mask(causal=True, bias=normal(2, 3, 3))
    q, k, v = normal(1, 2, 3, 4), normal(1, 2, 3, 4), normal(1, 2, 3, 4)
    for _ in range(2):  # the second backward would meet the freed graph of the first
        ATTEND["softmax"]["matmul"](q, k, v, learned, scale=0.5).sum().backward()


@pytest.mark.parametrize("window", [0, -3])
def test_window_refused(window):
    with pytest.raises(ConfigError, match=rf"at least 1.* got {window}"):
        Mask(window=window)
