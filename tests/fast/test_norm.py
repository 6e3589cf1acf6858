"""RMS norm's gradient by hand against that of its steps."""

import pytest
import torch

from glassformer.fast.norm import FastRMSNorm
from glassformer.nn.norm import RMSNorm
from specimens import close, scramble

LAYOUTS = {
    "in order": lambda x: x,
    "heads before places": lambda x: x.transpose(1, 2),
    "one head of many": lambda x: x[:, :, 1],
    "one vector for all": lambda x: x[:1, :1].expand(3, 4, -1, -1),
}


def steps(x, weight):
    """The norm of `example`, differentiated by torch."""
    return torch.func.functional_call(RMSNorm(x.shape[-1], 1e-3), {"weight": weight}, x)


def example(width: int = 6, dtype: torch.dtype = torch.float64) -> tuple[FastRMSNorm, torch.Tensor]:
    """A norm with weights of its own, and vectors for it: large ones, small ones, and one of zeros."""
    torch.manual_seed(width)
    norm = scramble(FastRMSNorm(width, 1e-3).double()).to(dtype)
    x = (
        torch.randn(2, 5, 3, width, dtype=torch.float64)
        * torch.tensor([1e-4, 1.0, 300.0], dtype=torch.float64)[:, None]
    )
    x[0, 0, 1] = 0.0
    return norm, x.to(dtype).requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_by_hand_value_and_gradient_are_those_of_the_steps(layout):
    norm, x = example()
    seen = LAYOUTS[layout](x)
    given, wanted = norm(seen), steps(seen, norm.weight)
    torch.testing.assert_close(given, wanted, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(wanted)
    found, expected = (torch.autograd.grad(y, (x, norm.weight), upstream) for y in (given, wanted))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("frozen", ["nothing", "x", "weight"])
def test_it_can_be_differentiated_twice(frozen):
    norm, x = example(3)
    x = x.detach()[:1, :2].requires_grad_(frozen != "x")
    weight = norm.weight.detach().requires_grad_(frozen != "weight")
    assert torch.autograd.gradgradcheck(
        lambda x, weight: torch.func.functional_call(norm, {"weight": weight}, x), (x, weight)
    )


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_what_is_frozen_gets_no_gradient_and_the_other_its_own(frozen):
    norm, x = example()
    expected = dict(
        zip(("weight", "x"), torch.autograd.grad(norm(x).square().sum(), (x, norm.weight))[::-1], strict=True)
    )
    {"x": x, "weight": norm.weight}[frozen].requires_grad_(False)
    norm(x).square().sum().backward()
    found = {"x": x.grad, "weight": norm.weight.grad}
    assert found.pop(frozen) is None
    ((name, gradient),) = found.items()
    assert torch.equal(gradient, expected[name])


def test_each_sample_has_a_gradient_of_its_own():
    """torch.func differentiates and vectorises it as it does the steps."""
    norm, x = example()
    weight, samples = norm.weight.detach(), x.detach()

    def gradients(law):
        return torch.func.vmap(torch.func.grad(lambda weight, x: law(x, weight).pow(3).sum()), (None, 0))(
            weight, samples
        )

    def ours(x, weight):
        return torch.func.functional_call(norm, {"weight": weight}, x)

    close(gradients(ours), gradients(steps))


def test_no_rows_and_rows_that_are_no_numbers():
    norm, x = example()
    norm(x[:0]).sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()
    assert (norm.weight.grad == 0).all()
    with torch.no_grad():
        x[0, 0, 0, 0] = torch.nan
    y = norm(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    for each in (y, gradient):
        assert each[0, 0, 0].isnan().all()
        assert each.isfinite().sum() == each.numel() - each.shape[-1], "no other row is touched"


def test_other_devices_and_evaluation_read_the_steps():
    """The kernel has been tried on processors alone."""
    norm, x = example()
    assert "RMSNorm" in type(norm(x).grad_fn).__name__
    assert "RMSNorm" not in type(norm.eval()(x).grad_fn).__name__
    elsewhere, x = FastRMSNorm(6, 1e-3).to("meta"), torch.empty(2, 6, device="meta", requires_grad=True)
    assert "RMSNorm" not in type(elsewhere(x).grad_fn).__name__


def test_what_compiles_reads_the_steps(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    norm, x = example()
    assert "RMSNorm" not in type(norm(x).grad_fn).__name__


def test_a_weight_may_be_wider_than_what_it_multiplies():
    """Queries under autocast are in bfloat16, the weight in float32, and so is the answer."""
    norm, x = FastRMSNorm(6, 1e-3), example(6, torch.bfloat16)[1]
    y = norm(x)
    assert y.dtype == torch.float32
    found = torch.autograd.grad(y.square().sum(), (x, norm.weight))
    expected = torch.autograd.grad(steps(x, norm.weight).square().sum(), (x, norm.weight))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one.float(), other.float(), rtol=2**-7, atol=1e-4)


def test_between_narrow_numbers_the_gradient_is_computed_in_float32():
    """Only what comes out is rounded: by half a step of bfloat16, 1/256 of its size."""
    norm, x = example(64, torch.bfloat16)
    wide, upstream = RMSNorm(64, norm.eps).double(), torch.randn(x.shape).bfloat16()
    wide.load_state_dict(norm.state_dict())
    found = torch.autograd.grad(norm(x), (x, norm.weight), upstream)
    expected = torch.autograd.grad(wide(x.double()), (x, wide.weight), upstream.double())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.double(), other.double(), rtol=2**-8, atol=1e-6)


def test_under_autocast_the_gradient_is_that_of_float32():
    """Products within would be narrowed, if they were not kept from it."""
    norm, x = example(dtype=torch.float32)
    (expected,) = torch.autograd.grad(norm(x).sum(), x)
    with torch.autocast("cpu", torch.bfloat16):
        y = norm(x)
        (found,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
