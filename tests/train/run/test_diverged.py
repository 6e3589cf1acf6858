"""A loss or gradient that is no number: stopped before the update, with the step and the module to blame."""

import math

import pytest
import torch

from glassformer import train_steps
from glassformer.base.errors import DivergedError
from glassformer.train.optimizer import build_optimizer
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OptimizerConfig, Update
from train.examples import VOCAB, batch, model, weights

DATA = batch("encoder-decoder", [(3, 5), (1, 1), (6, 2)])


def refused(network, batches, *, rate=0.01, start=0, **settings) -> str:
    """Train, with AdamW; the error must come, and the weights must be those before the update that it is about."""
    optimizer = build_optimizer(network, OptimizerConfig(weight_decay=0.1), learning_rate=0.01)
    schedule = Schedule("constant", rate, 99)
    steps = train_steps(network, batches, optimizer, schedule, Update(clip=1.0, **settings), start=start)
    before: list[dict[str, torch.Tensor]] = [weights(network)]
    with pytest.raises(DivergedError) as caught:
        before.extend(weights(network) for _ in steps)
    before, after = before[-1], weights(network)
    assert [name for name in before if not torch.equal(before[name].nan_to_num(7), after[name].nan_to_num(7))] == []
    assert "The weights were not updated. Try a lower training.learning_rate" in str(caught.value)
    assert caught.value.exit_code == 4
    return str(caught.value)


@pytest.mark.parametrize("name", ["encoder.blocks.0.feed_forward.branch.up.weight", "decoder.norm.bias"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weight_that_is_no_number(name, value):
    network = model()
    with torch.no_grad():
        network.get_parameter(name).view(-1)[3] = value
    message = refused(network, [DATA])
    assert "at step 1 the loss is " in message
    assert f"The weight {name} is not finite." in message


@pytest.mark.parametrize("pieces", [1, 3])
def test_weights_that_overflow(pieces):
    network = model().float()
    with torch.no_grad():
        network.decoder.blocks[0].feed_forward.branch.up.weight.fill_(3e38)
    message = refused(network, [DATA], accumulate=pieces)
    assert "The first module whose output is not finite is decoder.blocks.0.feed_forward.branch.up." in message


@pytest.mark.parametrize("name", ["decoder.norm.weight", "encoder.blocks.0.self_attention.branch.value.weight"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradient_alone(name, value):
    network = model()
    network.get_parameter(name).register_hook(lambda gradient: gradient * value)
    message = refused(network, [DATA], start=41)
    assert "at step 42 the loss is " in message
    assert f"The outputs are finite; the gradient of {name} is not." in message


def test_loss_alone():
    """Logits that are finite, but so far apart that their difference is not."""
    network = model().float()
    apart = torch.where(torch.arange(VOCAB) % 2 == 0, 3e38, -3e38)
    network.head.register_forward_hook(lambda module, inputs, output: apart + 0.0 * output)
    message = refused(network, [DATA])
    assert "at step 1 the loss is inf and the gradient's norm 0" in message
    assert "No single module is to blame: the sum overflowed." in message


def test_update_of_the_optimizer_does_not_happen_either():
    network = model()
    optimizer = build_optimizer(network, OptimizerConfig(), learning_rate=0.01)
    network.head.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(DivergedError):
        list(train_steps(network, [DATA], optimizer, Schedule("constant", 0.01, 9)))
    assert len(optimizer.state) == 0


def test_mode_and_hooks_are_left_as_they_were():
    network = model().float()
    with torch.no_grad():
        network.decoder.blocks[0].feed_forward.branch.up.weight.fill_(3e38)
    refused(network, [DATA])
    assert network.training
    assert not any(module._forward_hooks for module in network.modules())
