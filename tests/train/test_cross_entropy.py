"""Cross-entropy with a backward of its own equals torch's, in value and gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.data.batch import Batch
from glassformer.fast import cross_entropy as native_cross_entropy
from glassformer.fast import native
from glassformer.train import cross_entropy as module
from glassformer.train import loss as losses
from glassformer.train.cross_entropy import PLAIN, cross_entropy, cross_entropy_of_vectors
from glassformer.train.objective import objective_for
from specimens import model

V = 7
ROWS = 4
"""Rows of a chunk here; what is right for four is right for the thousands of a real one."""
UPSTREAM = -0.37
"""What the loss is multiplied by afterwards, as by one over the number of targets; negative, so that a sign shows."""


def example(rows: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    logits = (3 * torch.randn(rows, V, dtype=torch.float64)).to(dtype).requires_grad_()
    return logits, torch.randint(V, (rows,))


@pytest.fixture(autouse=True, params=[True, False], ids=["C++", "torch"])
def kernel(request, monkeypatch):
    """What computes the rows, in C++ and in torch."""
    if request.param and not native.has_cpp(native_cross_entropy.SOURCE):
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(module, "PLAIN", native_cross_entropy.KERNEL if request.param else PLAIN)
    return module.PLAIN


def expected(logits: torch.Tensor, ids: torch.Tensor, smoothing: float) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's value, and its gradient, computed in float64 from the same numbers."""
    wide = logits.detach().double().requires_grad_()
    loss = F.cross_entropy(wide, ids, reduction="sum", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(loss * UPSTREAM, wide)
    return loss.detach(), gradient


@pytest.mark.parametrize("requested", [0, 1, ROWS, ROWS + 2])
def test_rows_behind_the_ids_take_no_part(requested):
    logits, ids = example(2 * ROWS + 1)
    objective, nll = cross_entropy(logits, ids[:requested], 0.1)
    (gradient,) = torch.autograd.grad(objective, logits)
    alone, nll_alone = cross_entropy(logits[:requested], ids[:requested], 0.1)
    assert objective == alone
    assert nll == nll_alone
    assert torch.equal(gradient[:requested], torch.autograd.grad(alone, logits)[0][:requested])
    assert not gradient[requested:].any()


@pytest.mark.parametrize("rows", [0, 1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_equals_torch(rows, smoothing):
    logits, ids = example(rows)
    objective, nll = cross_entropy(logits, ids, smoothing)
    (gradient,) = torch.autograd.grad(objective * UPSTREAM, logits)
    value, reference = expected(logits, ids, smoothing)
    torch.testing.assert_close(objective.detach(), value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, reference, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, expected(logits, ids, 0.0)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "of_gradient"), [(torch.float32, 2**-22), (torch.bfloat16, 2**-8)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_narrow_logits_are_summed_in_float32(dtype, of_gradient, smoothing):
    logits, ids = example(2 * ROWS + 3, dtype)
    objective, nll = cross_entropy(logits, ids, smoothing)
    (gradient,) = torch.autograd.grad(objective * UPSTREAM, logits)
    value, reference = expected(logits, ids, smoothing)
    assert (objective.dtype, nll.dtype, gradient.dtype) == (torch.float32, torch.float32, dtype)
    torch.testing.assert_close(objective.detach().double(), value, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(gradient.double(), reference, rtol=of_gradient, atol=1e-6)


def test_logits_of_any_layout():
    ids = torch.randint(V, (5,))
    turned = torch.randn(V, 5, dtype=torch.float64).t().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(turned, ids, 0.1)[0] * UPSTREAM, turned)
    torch.testing.assert_close(gradient, expected(turned, ids, 0.1)[1], rtol=1e-12, atol=1e-12)


def test_there_is_no_second_derivative():
    """One would be wrong in silence, as the backward reads log-sums that the graph does not know."""
    logits, ids = example(3)
    (gradient,) = torch.autograd.grad(cross_entropy(logits, ids)[0], logits, create_graph=True)
    assert not gradient.requires_grad


# from vectors, in chunks

D = 5


@pytest.fixture
def small_chunks(monkeypatch, kernel):
    """Of a few rows."""
    monkeypatch.setattr(module, "PLAIN", kernel._replace(chunk=ROWS * V))


def head(rows, dtype=torch.float64):
    """Vectors, a matrix and a bias."""
    shapes = ((rows, D), (V, D), (V,))
    return [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("requested", [0, 1, ROWS, 2 * ROWS + 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_chunks_give_the_loss_and_gradients_of_whole_logits(small_chunks, smoothing, requested, biased):
    x, weight, bias = head(2 * ROWS + 3)
    given = [x, weight, bias] if biased else [x, weight]
    ids = torch.randint(V, (requested,))
    plain = cross_entropy(F.linear(*given), ids, smoothing)
    ours = cross_entropy_of_vectors(x, weight, bias if biased else None, ids, smoothing)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
    assert not ours[1].requires_grad
    found = torch.autograd.grad(ours[0] * UPSTREAM, given)
    torch.testing.assert_close(found, torch.autograd.grad(plain[0] * UPSTREAM, given), rtol=1e-12, atol=1e-12)


def test_chunks_of_no_vectors(small_chunks):
    x, weight, _ = head(0)
    assert cross_entropy_of_vectors(x, weight, None, torch.zeros(0, dtype=torch.long))[0].item() == 0.0


def test_chunks_under_autocast_narrow_what_whole_logits_narrow(small_chunks):
    """Products in bfloat16, sums in float32, gradients in the weights' own float32."""
    x, weight, bias = head(2 * ROWS + 3, torch.float32)
    ids = torch.randint(V, (2 * ROWS + 3,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = cross_entropy(F.linear(x, weight, bias), ids, 0.1)
        ours = cross_entropy_of_vectors(x, weight, bias, ids, 0.1)
    assert ours[0].dtype == torch.float32
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=0.0)
    found = torch.autograd.grad(ours[0], (x, weight, bias))
    for one, other in zip(found, torch.autograd.grad(plain[0], (x, weight, bias)), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)


def test_no_more_logits_than_a_chunk_exist(small_chunks, monkeypatch):
    made = []
    linear = F.linear
    monkeypatch.setattr(module.F, "linear", lambda *given: made.append(linear(*given)) or made[-1])
    x, weight, _ = head(3 * ROWS)
    with torch.no_grad():
        loss, _ = cross_entropy_of_vectors(x, weight, None, torch.randint(V, (3 * ROWS,)))
    assert [len(each) for each in made] == [ROWS] * 3
    assert not loss.requires_grad


def test_the_gradient_of_the_matrix_is_made_once(small_chunks):
    """And not anew for each chunk, to be added: of a large vocabulary it is the largest matrix there is."""
    made = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            answer = func(*args, **(kwargs or {}))
            if isinstance(answer, torch.Tensor) and answer.shape == (V, D) and "addmm_" not in str(func):
                made.append(str(func))
            return answer

    x, weight, _ = head(3 * ROWS)
    with Watch():
        cross_entropy_of_vectors(x, weight, None, torch.randint(V, (3 * ROWS,)))
    assert [each for each in made if "mm" in each or "add" in each] == []
    assert sum("zeros_like" in each for each in made) == 1


# a prior of label smoothing


def uneven() -> torch.Tensor:
    """Shares of the tokens that sum to 1, one of them 0."""
    shares = torch.rand(V, dtype=torch.float64)
    shares[1] = 0
    return shares / shares.sum()


def test_smoothing_mixes_in_a_prior(small_chunks):
    logits, ids = example(2 * ROWS + 1)
    prior = uneven()
    logp = logits.detach().log_softmax(-1)
    right = 0.7 * logp[range(len(ids)), ids] + 0.3 * logp @ prior
    torch.testing.assert_close(cross_entropy(logits, ids, 0.3, prior)[0].detach(), -right.sum(), rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, ids, 0.3, prior)[0], logits)
    given = head(9)
    assert torch.autograd.gradcheck(lambda *them: cross_entropy_of_vectors(*them, ids, 0.3, prior)[0], given)


@pytest.mark.parametrize("whole", [0, 1 << 25], ids=["in chunks", "whole"])
def test_what_is_never_predicted_is_not_smoothed_in(whole, monkeypatch):
    monkeypatch.setattr(losses, "PLAIN", PLAIN._replace(whole=whole))
    network = model("decoder", vocab_size=V, silent="0,2").double()
    batch = Batch(torch.tensor([[1, 3, 4, 5, 1], [4, 4, 5, 1, 3]]))
    loss = losses.loss_of(network, batch, objective_for(network), label_smoothing=0.2)
    loss.objective.backward()
    assert loss.objective < 5 * loss.nll
    gradient = network.head.weight.grad
    assert not gradient[[0, 2]].any()
    assert gradient[[1, 3, 4, 5]].any(1).all()
