"""The learning-rate range test: rates rise by one factor, the model stays as it is, what is recommended trains."""

import math

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.train.run.trial import Sweep, find_learning_rate
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
