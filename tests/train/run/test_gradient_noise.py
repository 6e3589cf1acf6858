"""The noise scale: by a quadratic whose answer is known, and by the gradients of a model."""

import pytest
import torch

from glassformer import train_steps
from glassformer.base.errors import ConfigError
from glassformer.train.objective import objective_for
from glassformer.train.run.trial import Norms, gradient_noise, noise_of
from glassformer.train.schedule import Schedule
from train.examples import assert_same, batch, model, weights


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
