"""The rows of a cross-entropy in C++: those of torch, for vocabularies of any size, whatever the logits are in."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.fast import cross_entropy as native_cross_entropy
from glassformer.fast import native
from glassformer.fast.cross_entropy import KERNEL
from glassformer.train.cross_entropy import PLAIN, cross_entropy

pytestmark = pytest.mark.skipif(not native.has_cpp(native_cross_entropy.SOURCE), reason="needs a C++ compiler")

SIZES = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 70]
"""Below, at and beyond one vector, and several: of eight, or sixteen, numbers."""


def found(logits, ids, prior, smoothing=0.1, kernel=KERNEL):
    """The two sums, and the gradient of the first."""
    objective, nll = cross_entropy(logits, ids, smoothing, prior, kernel)
    return objective.detach(), nll, *torch.autograd.grad(-0.3 * objective, logits)


def both(logits, ids, prior):
    """What C++ finds, and what torch does."""
    logits = logits.requires_grad_()
    assert native_cross_entropy.serves(logits, prior)
    return zip(found(logits, ids, prior), found(logits, ids, prior, kernel=PLAIN), strict=True)


def share_of(V, weighed):
    """A prior, or none."""
    return torch.rand(V, dtype=torch.float64).softmax(0) if weighed else None


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("V", SIZES)
def test_it_is_what_torch_computes(V, weighed):
    logits, ids = 4 * torch.randn(9, V, dtype=torch.float64), torch.randint(V, (9,))
    for ours, theirs in both(logits, ids, share_of(V, weighed)):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 2e-6), (torch.bfloat16, 2**-7)])
@pytest.mark.parametrize("V", SIZES)
def test_narrow_numbers_are_widened_and_rounded_once(V, dtype, near):
    logits, ids = (4 * torch.randn(9, V)).to(dtype), torch.randint(V, (9,))
    (*sums, slopes) = both(logits, ids, share_of(V, True).float())
    for ours, theirs in sums:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*slopes, rtol=near, atol=1e-6)
    assert slopes[0].dtype == dtype


def test_gradients_in_bfloat16_are_the_nearest():
    """Of two logits, p and -p in float32, rounded half to even, as torch rounds."""
    apart = torch.linspace(-30, 30, 4001)
    narrow = torch.stack([apart, torch.zeros(4001)], dim=1).bfloat16().requires_grad_()
    wide = narrow.detach().float().requires_grad_()
    ids = torch.ones(4001, dtype=torch.long)
    losses = [cross_entropy(each, ids, kernel=KERNEL)[0] for each in (narrow, wide)]
    (ours,), (exact,) = (torch.autograd.grad(*pair) for pair in zip(losses, (narrow, wide), strict=True))
    assert torch.equal(ours, exact.bfloat16())


def test_the_number_of_threads_changes_no_bit(threads):
    logits, ids = torch.randn(37, 50).requires_grad_(), torch.randint(50, (37,))
    results = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        results.append(found(logits, ids, None))
    for ours in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(ours, results[0], strict=True))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_spoils_its_row_only(wrong):
    logits, ids = torch.randn(4, 20), torch.randint(20, (4,))
    logits[2, 19] = wrong
    objective, _, slopes = found(logits.requires_grad_(), ids, None)
    assert not objective.isfinite()
    assert [bool(row.isfinite().all()) for row in slopes] == [True, True, False, True]


def test_ids_of_32_bits():
    logits, ids = torch.randn(9, 5, dtype=torch.float64, requires_grad=True), torch.randint(5, (9,))
    for one, other in zip(found(logits, ids.int(), None), found(logits, ids, None), strict=True):
        assert torch.equal(one, other)


def test_a_label_beyond_the_logits_is_refused_before_anything_is_written():
    with pytest.raises(RuntimeError, match="out of bounds"):
        cross_entropy(torch.randn(2, 5).requires_grad_(), torch.tensor([1, 5]), kernel=KERNEL)


def test_what_it_leaves_to_others():
    logits = torch.randn(3, 5)
    assert native_cross_entropy.serves(logits, None)
    assert not native_cross_entropy.serves(logits.half(), None)
    assert not native_cross_entropy.serves(logits.t(), None)
    assert not native_cross_entropy.serves(logits[:0], None)
    assert not native_cross_entropy.serves(logits.to("meta"), None)
    assert not native_cross_entropy.serves(logits, torch.ones(5, device="meta"))
    assert not native_cross_entropy.serves(logits, torch.ones(4))
    with TorchDispatchMode():
        assert not native_cross_entropy.serves(logits, None)
