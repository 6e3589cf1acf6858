"""The learning-rate range test: rates rise by one factor, the model stays as it is, what is recommended trains."""

import math

import pytest
import torch

from glassformer import train_steps
from glassformer.base.errors import ConfigError
from glassformer.train.objective import objective_for
from glassformer.train.run.trial import Norms, Sweep, find_learning_rate, gradient_noise, noise_of
from glassformer.train.schedule import Schedule
from train.examples import assert_same, batch, model, weights

DATA = [batch("encoder-decoder", [(3, 5), (1, 1), (6, 2)])] * 60


def descent(network):
    return torch.optim.SGD(network.parameters(), lr=1.0)


def test_rates_rise_by_one_factor():
    rates = [Sweep("constant", 1.0, 7, least=1e-6)(step) for step in range(1, 8)]
    assert rates == pytest.approx([10.0**n for n in range(-6, 1)], rel=1e-12)


def test_what_is_found():
    network = model()
    before = weights(network)
    found = find_learning_rate(network, DATA, descent, lowest=1e-4, highest=1e3, steps=60)
    assert_same(weights(network), before)
    lowest = min(each.smoothed for each in found.tried)
    assert [each.rate for each in found.tried if each.smoothed == lowest] == [found.lowest]
    assert found.recommended == found.lowest / 10
    assert 1e-4 < found.lowest < 1e3
    assert len(found.tried) < 60, "it ends where the loss explodes"
    first, second = found.tried[:2]
    assert first.smoothed == pytest.approx(first.loss, rel=1e-12)
    assert second.smoothed == pytest.approx((0.09 * first.loss + 0.1 * second.loss) / 0.19, rel=1e-12)


@pytest.mark.parametrize("wrong", [{"lowest": 0.0}, {"lowest": 2.0}, {"highest": math.inf}, {"steps": 1}])
def test_bounds(wrong):
    with pytest.raises(ConfigError, match=r"Try 1e-6"):
        find_learning_rate(model(), DATA, descent, **wrong)


# --- The noise scale: by a quadratic whose answer is known, and by the gradients of a model


@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [2, 3, 11, 16]], ids=["equal", "unequal"])
def test_a_quadratic_with_a_known_answer(sizes):
    """|w - x|^2 / 2 with x ~ N(0, s^2 I): the gradient is w, the variance s^2 a dimension."""
    torch.manual_seed(3)
    w, s, n = torch.full((50,), 0.3, dtype=torch.float64), 2.0, sum(sizes)
    seen = []
    for _ in range(4000):
        pieces = (w - s * torch.randn(n, 50, dtype=torch.float64)).split(sizes)
        norms = [float(piece.mean(0).square().sum()) for piece in pieces]
        seen.append(Norms(float(torch.cat(pieces).mean(0).square().sum()), n, norms, sizes))
    noise = noise_of(seen)
    assert noise.squared_gradient == pytest.approx(50 * 0.3**2, rel=0.05)
    assert noise.variance == pytest.approx(50 * s**2, rel=0.01)
    assert noise.scale == pytest.approx((s / 0.3) ** 2, rel=0.05)


def test_norms_are_those_of_training():
    """The gradient of the whole is that of an update, and equal pieces without noise have a scale of 0."""
    network, row = model(), (4, 5)
    data = batch("encoder-decoder", [row])
    before = weights(network)
    twice = type(data)(*(None if each is None else torch.cat([each, each]) for each in
                         (data.tokens, data.keep, data.source, data.source_keep)))  # fmt: skip
    noise = gradient_noise(network, [twice], objective_for(network), pieces=2)
    assert_same(weights(network), before)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    norm = next(iter(train_steps(network, [twice], optimizer, Schedule("constant", 1e-9, 1)))).grad_norm
    assert noise.squared_gradient == pytest.approx(norm**2, rel=1e-9)
    assert noise.variance == pytest.approx(0.0, abs=1e-9 * norm**2)


def test_it_takes_pieces():
    network = model()
    for pieces, data in ((1, batch("encoder-decoder", [(2, 2)] * 4)), (4, batch("encoder-decoder", [(2, 2)]))):
        with pytest.raises(ConfigError, match=r"comparing (at least 2 )?pieces"):
            gradient_noise(network, [data], objective_for(network), pieces=pieces)
