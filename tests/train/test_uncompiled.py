"""The optimizers as torch has them, to the bit, and without its compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from glassformer.train.muon import Adafactor, AdamW


@pytest.mark.parametrize(
    ("ours", "theirs", "settings"),
    [
        (AdamW, torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.3, "betas": (0.8, 0.9), "fused": True}),
        (Adafactor, torch.optim.Adafactor, {"lr": 0.1, "weight_decay": 0.3}),
    ],
    ids=["AdamW", "Adafactor"],
)
def test_every_bit_is_torchs(ours, theirs, settings):
    def trained(kind):
        torch.manual_seed(1)
        layer = nn.Linear(3, 4)
        optimizer = kind([{"params": [layer.weight]}, {"params": [layer.bias], "weight_decay": 0.0}], **settings)
        for _ in range(5):
            optimizer.zero_grad(set_to_none=True)
            layer(torch.randn(2, 3)).square().sum().backward()
            optimizer.step()
        assert all(each.requires_grad for each in layer.parameters())
        return [each.detach() for each in layer.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(trained(ours), trained(theirs), strict=True))


TRAINING = """
import sys
from glassformer.cli.main import main
code = main(["train", "lm", "--out", "run", "--training.steps=1", "--training.samples=0", "--training.evaluate_every=0",
             "--optimizer.name=" + sys.argv[1], "--model.d-model=8", "--model.n-heads=1", "--model.n-layers=1",
             "--data.text=text.txt", "--training.precision=float32"])
code = code or main(["generate", "run", "--prompt", "a", "--max-new-tokens", "1"])
sys.exit("torch's compiler was imported" if "torch._dynamo" in sys.modules else code)
"""


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_training_and_generating_do_without_torchs_compiler(tmp_path, name):
    (tmp_path / "text.txt").write_text("a line of text\n" * 100, "utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", TRAINING, name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_a_step_keeps_no_graph_and_leaves_gradients_on():
    weight = nn.Parameter(torch.ones(2))
    optimizer = AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert torch.is_grad_enabled()
    assert weight.grad_fn is None
