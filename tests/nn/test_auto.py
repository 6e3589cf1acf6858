"""`auto` runs what `pick` names."""

import sys

import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.nn.rules import MATMUL_UP_TO, pick

AUTO = sys.modules["glassformer.nn.rules"]  # the package shows the function under this name


@pytest.mark.parametrize(("device", "T", "S", "name"), [
    ("cpu", 1, MATMUL_UP_TO, "matmul"),
    ("cpu", 2, MATMUL_UP_TO, "sdpa"),
    ("cuda", 1, 1, "sdpa"),
    ("mps", 16, 16, "sdpa"),
])  # fmt: skip
def test_pick(device, T, S, name):
    picked, why = pick(device, T, S)
    assert picked == name
    assert device in why.format(device=device, T=T, S=S).lower()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_query_of_narrow_numbers_has_the_fused_kernel(dtype, monkeypatch):
    ran = []
    for name in ("matmul", "sdpa"):
        monkeypatch.setattr(AUTO, name, lambda q, *_, name=name, **__: ran.append(name) or q)
    for T in (1, 2):
        q, k = torch.randn(1, 1, T, 4, dtype=dtype), torch.randn(1, 1, 3, 4, dtype=dtype)
        AUTO.auto(q, k, k, Mask(), scale=0.5)
    assert ran == (["matmul", "matmul"] if dtype is torch.float32 else ["sdpa", "matmul"])


@pytest.mark.parametrize("name", ["matmul", "sdpa", "sparse", "flex"])
def test_auto_runs_what_was_picked(name, monkeypatch):
    q = torch.randn(2, 2, 3, 4)
    monkeypatch.setattr(AUTO, "pick", lambda device, T, S, mask, **_: (name, "as the test says"))
    marks = {each: torch.full_like(q, i) for i, each in enumerate(("matmul", "sdpa", "sparse", "flex"))}
    for each, mark in marks.items():
        monkeypatch.setattr(AUTO, each, lambda *_, mark=mark, **__: mark)
    assert ATTEND["softmax"]["auto"](q, q, q, Mask(), scale=0.5) is marks[name]


def test_what_no_fused_kernel_for_cpus_does_is_left_to_products():
    S = MATMUL_UP_TO
    learned = Mask(bias=torch.zeros(1, 2, 2, 1, requires_grad=True).expand(1, 2, 2, S))
    for mask, dropout, of in ((Mask(), 0.1, "dropout"), (learned, 0.0, "learns a bias")):
        name, why = pick("cpu", 2, S, mask, dropout=dropout)
        assert name == "matmul"
        assert of in why
        assert pick("cuda", 2, S, mask, dropout=dropout)[0] == "sdpa"
    assert pick("cpu", 2, S, Mask(bias=torch.zeros(1, 1, 1, S)))[0] == "sdpa"
