"""Muon against its equations in NumPy and against torch's own."""

import numpy as np
import pytest
import torch

from glassformer.train.optimizer import build_optimizer
from glassformer.train.settings import OptimizerConfig
from train.examples import model, weights

RATE, MOMENTUM, DECAY = 0.01, 0.9, 0.3
SHAPES = [(5, 5), (3, 8), (8, 3)]


def turned(gradient: np.ndarray) -> np.ndarray:
    """Jordan et al. 2024, the function newtonschulz5, on a matrix no taller than wide."""
    x = gradient / np.linalg.norm(gradient)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def muon(theta: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """The momentum with Nesterov's look ahead, turned; the size of Liu et al. 2025, equation 4."""
    memory = np.zeros_like(theta)
    for gradient in gradients:
        memory = MOMENTUM * memory + (1 - MOMENTUM) * gradient
        ahead = MOMENTUM * memory + (1 - MOMENTUM) * gradient
        step = turned(ahead.T).T if theta.shape[0] > theta.shape[1] else turned(ahead)
        theta = theta - RATE * (0.2 * max(theta.shape) ** 0.5 * step + DECAY * theta)
    return theta


def build(network):
    config = OptimizerConfig("muon", momentum=MOMENTUM, weight_decay=DECAY)
    return build_optimizer(network, config, learning_rate=RATE)


def test_twenty_steps_equal_numpy_for_matrices_and_adamw_for_the_rest():
    one, two = model(), model()
    two.load_state_dict(one.state_dict())
    optimizer, plain = build(one), build_optimizer(two, OptimizerConfig(weight_decay=DECAY), learning_rate=RATE)
    before, seen = weights(one), {name: [] for name in weights(one)}
    for _ in range(20):
        for (name, first), second in zip(one.named_parameters(), two.parameters(), strict=True):
            first.grad = torch.randn_like(first) * 10 ** torch.randn(())
            second.grad = first.grad.clone()
            seen[name].append(first.grad.numpy().copy())
        optimizer.step()
        plain.step()
    matrices = {id(p) for group in optimizer.matrices for p in group["params"]}
    assert 0 < len(matrices) < len(before)
    for (name, parameter), (_, other) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        expected = muon(before[name].numpy(), seen[name]) if id(parameter) in matrices else other.detach().numpy()
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_step_is_that_of_torchs_own(shape):
    """Which turns in bfloat16 only, so a step of size 0.2 is theirs to the last of its eight bits, times the turns."""
    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.zeros(shape))
    weight.grad = torch.randn(shape)
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw").step()
    layer = torch.nn.Linear(shape[1], shape[0])
    layer.weight.data.zero_()
    layer.weight.grad = weight.grad
    build_optimizer(torch.nn.Sequential(layer), OptimizerConfig("muon"), learning_rate=1.0, dtype=torch.bfloat16).step()
    torch.testing.assert_close(layer.weight.detach(), weight.detach(), rtol=0.05, atol=0.02)


def test_no_gradient_and_a_gradient_of_zeros_move_nothing():
    network = model()
    optimizer = build_optimizer(network, OptimizerConfig("muon"), learning_rate=RATE)
    before = weights(network)
    optimizer.step()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in weights(network).items():
        assert torch.equal(parameter, before[name]), name


def test_a_rate_beyond_float32_makes_weights_that_are_not_finite():
    """As with any other optimizer, so that training says that it has diverged."""
    layer = torch.nn.Linear(3, 4)
    layer.weight.grad = torch.randn(4, 3)
    muon = build_optimizer(torch.nn.Sequential(layer), OptimizerConfig("muon"), learning_rate=1e39)
    muon.step()
    assert layer.weight.abs().max() > 1e37
    muon.step()
    assert not layer.weight.isfinite().all()
