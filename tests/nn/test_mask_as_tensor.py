"""A plain tensor as mask: a boolean one, 0 and 1, or numbers that are added mean what the rules of a `Mask` mean."""

import pytest
import torch

from glassformer import ATTEND, Attention, Mask
from glassformer.base.errors import ConfigError
from glassformer.nn.build import build_block
from glassformer.nn.config import StackConfig

AUTO = ATTEND["softmax"]["auto"]
B, H, T = 3, 2, 5
CAUSAL = torch.ones(T, T).tril().bool()
ADDED = torch.zeros(T, T, dtype=torch.float64).masked_fill(~CAUSAL, -torch.inf)
FORMS = {
    "a table": CAUSAL,
    "a table for each row": CAUSAL.expand(B, T, T),
    "a table for each head": CAUSAL.expand(B, H, T, T),
    "0 and 1": CAUSAL.long(),
    "0 and 1 as bytes": CAUSAL.to(torch.uint8),
    "added": ADDED,
    "added for each head": ADDED.expand(1, H, T, T),
}


def vectors(rows=B):
    return torch.rand(rows, T, 8, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_tensor_means_what_the_rule_means(form):
    attention, x = Attention(8, H, AUTO).double(), vectors()
    torch.testing.assert_close(attention(x, mask=form), attention(x, mask=Mask(causal=True)), rtol=0, atol=1e-12)


def test_keys_of_each_row():
    attention, x, keep = Attention(8, H, AUTO).double(), vectors(), torch.rand(B, T) > 0.4
    expected = attention(x, mask=Mask(keep=keep))
    for given in (keep, keep[:, None], keep.long()):
        torch.testing.assert_close(attention(x, mask=given), expected, rtol=0, atol=1e-12)


def test_numbers_are_added():
    attention, x, bias = Attention(8, H, AUTO).double(), vectors(), torch.randn(B, H, T, T, dtype=torch.float64)
    torch.testing.assert_close(attention(x, mask=bias), attention(x, mask=Mask(bias=bias)), rtol=0, atol=1e-12)


def test_a_block_understands_it():
    config = StackConfig(d_model=8, n_heads=H, n_layers=1, d_ff=16, dropout=0.0)
    block, x = build_block(config, reads_memory=True).double(), vectors()
    memory, keep = vectors(), torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
    given = block(x, mask=CAUSAL, memory=memory, memory_mask=keep)
    rules = block(x, mask=Mask(causal=True), memory=memory, memory_mask=Mask(keep=keep))
    torch.testing.assert_close(given, rules, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_of_0_and_1_have_two_meanings(dtype):
    """A table of 0 and 1 in floats could be a rule or a bias. Zeros alone, and a bias of other numbers, are added."""
    attention, x = Attention(8, H, AUTO).double(), vectors()
    for table in (CAUSAL.to(dtype), torch.ones(B, 1, T, T, dtype=dtype)):
        with pytest.raises(ConfigError, match=r"Give mask\.bool\(\) if 1 means .*Mask\(bias=mask\) to add it"):
            attention(x, mask=table)
    torch.testing.assert_close(attention(x, mask=torch.zeros(T, T, dtype=dtype)), attention(x), rtol=0, atol=1e-12)
    added = attention(x, mask=Mask(bias=CAUSAL.double()[None]))
    torch.testing.assert_close(added, attention(x, mask=CAUSAL.double() + 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, T, T), (H, 1, T), (1, 1, T, T), (B, 1, 1, T), (B, H, T, T)])
def test_a_bias_of_a_mask_may_be_the_same_for_rows_heads_and_queries(shape):
    attention, x, bias = Attention(8, H, AUTO).double(), vectors(), torch.randn(shape, dtype=torch.float64)
    whole = attention(x, mask=Mask(bias=bias.expand(B, H, T, T)))
    torch.testing.assert_close(attention(x, mask=Mask(bias=bias)), whole, rtol=0, atol=1e-12)


BACKENDS = [(rule, name) for rule, names in ATTEND.items() for name in names if name != "flex"]


@pytest.mark.parametrize(("rule", "backend"), BACKENDS)
def test_every_backend_reads_the_table(rule, backend):
    """Also a query that may read nothing: zeros, in value and gradient."""
    table = torch.rand(B, 1, T, T) > 0.4
    table[:, :, 2] = False
    q, k, v = (torch.rand(B, H, T, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = Mask.of(table, q, k)
    out, expected = (ATTEND[rule][name](q, k, v, mask, scale=0.5) for name in (backend, "reference"))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    assert out[:, :, 2].abs().max() == 0
    (gradient,) = torch.autograd.grad(out.square().sum(), q)
    assert gradient.isfinite().all()
    assert gradient[:, :, 2].abs().max() == 0


@pytest.mark.parametrize("given", [CAUSAL.to_sparse(), CAUSAL.to(torch.complex64)], ids=["sparse", "complex"])
def test_a_tensor_of_another_kind_is_refused(given):
    with pytest.raises(ConfigError, match=r"must be a dense tensor of real numbers.*Mask\(keep=keep\) for padding"):
        Attention(8, H, AUTO).double()(vectors(), mask=given)
