"""Linear attention: chunks answer as written-out weights do, at a cost that grows with the length alone."""

import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.nn.linear import CHUNK, auto, features, from_features
from glassformer.nn.sparse import ROWS
from nn.largest import largest
from specimens import close, normal, production

SUMS, REFERENCE = ATTEND["linear"]["sums"], ATTEND["linear"]["reference"]


def test_features_and_back():
    x = torch.tensor([-700.0, -3, -1e-9, 0, 1e-9, 0.5, 40], dtype=torch.float64, requires_grad=True)
    y = features(x)
    close(y, torch.nn.functional.elu(x) + 1)
    torch.testing.assert_close(from_features(y), x, rtol=1e-12, atol=1e-15)
    assert y[0] > 0
    assert from_features(torch.zeros(1)).item() == -torch.inf
    empty = torch.full((1,), -torch.inf, requires_grad=True)
    features(empty).sum().backward()
    assert (features(empty).item(), empty.grad.item()) == (0.0, 0.0)


@pytest.mark.parametrize(("T", "S"), [(1, 1), (CHUNK - 1, CHUNK - 1), (CHUNK, CHUNK), (2 * CHUNK + 1, 2 * CHUNK + 1),
                                      (1, 70), (CHUNK + 3, 150), (5, 3)])  # fmt: skip
@pytest.mark.parametrize("rules", ["causal", "causal and keep", "keep", "documents"])
def test_any_length(T, S, rules):
    q, k, v = normal(2, 4, T, 3), normal(2, 2, S, 3), normal(2, 2, S, 3)
    keep = torch.rand(2, S) < 0.7
    packed = {"documents": torch.arange(S).expand(2, -1) // 20, "query_documents": torch.arange(T).expand(2, -1) // 9}
    mask = Mask(
        causal="causal" in rules, keep=keep if "keep" in rules else None, **(packed if rules == "documents" else {})
    )
    outputs = [backend(q, k, v, mask, scale=0.3) for backend in (SUMS, REFERENCE)]
    weights = torch.linspace(-1, 2, outputs[0].numel(), dtype=q.dtype).view_as(outputs[0])
    close(*outputs)
    for ours, theirs in zip(*(torch.autograd.grad((y * weights).sum(), (q, k, v)) for y in outputs), strict=True):
        close(ours, theirs)


def test_many_queries_that_stand_anywhere():
    T = ROWS + 5
    q, k, v = normal(1, 2, T, 3), normal(1, 2, 9, 3), normal(1, 2, 9, 3)
    mask = Mask(causal=True, query_positions=torch.randint(9, (T,)), key_positions=torch.randperm(9))
    close(SUMS(q, k, v, mask, scale=1.0), REFERENCE(q, k, v, mask, scale=1.0))


def test_the_scale_cancels():
    q = normal(1, 1, 5, 3)
    close(REFERENCE(q, q, q, Mask(), scale=0.1), REFERENCE(q, q, q, Mask(), scale=7.0), tolerance=0)


def test_auto_writes_few_weights_out_and_sums_many(monkeypatch):
    for name in ("reference", "sums"):
        monkeypatch.setattr(f"glassformer.nn.linear.{name}", lambda *_, name=name, **__: name)
    monkeypatch.setattr("glassformer.nn.linear.WRITTEN_OUT_UP_TO", 12)
    q, k = torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 5, 2)
    with production():
        assert auto(q, k[:, :, :4], k[:, :, :4], Mask(), scale=1.0) == "reference"
        assert auto(q, k, k, Mask(), scale=1.0) == "sums"


@pytest.mark.parametrize("causal", [True, False])
def test_memory_grows_with_the_length(causal):
    def spent(T):
        q = torch.randn(1, 1, T, 4, requires_grad=True)
        return largest(lambda: SUMS(q, q, q, Mask(causal=causal), scale=1.0))

    assert spent(2048) == 2 * spent(1024) <= 2048 * CHUNK
