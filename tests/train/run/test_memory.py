"""The memory of training: what is counted is exact, what a forward keeps is what it keeps, the rest is as defined."""

import pytest
import torch

from glassformer import Schedule, train_steps
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from glassformer.train.optimizer import build_optimizer
from glassformer.train.run.outlook import FIRST_PRODUCT, PRODUCT, Stretch, estimate, fullest_moment, in_groups, kept_by
from glassformer.train.settings import OptimizerConfig, Update
from train.examples import batch, kept, model

ROWS = [(6, 9), (5, 8), (6, 7), (2, 3)]
LAYOUTS = ("encoder-decoder", "encoder", "decoder", "classify")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_forward_keeps_is_seen(layout):
    network, data = model(layout, n_layers=3, dropout=0.1), batch(layout, ROWS)
    stretches = kept_by(network, data, objective_for(network), "float32")
    truly = kept(network, 0, lambda: loss_of(network.train(), data, objective_for(network)))
    assert sum(sum(each.kept) for each in stretches) == truly
    blocks = [each for each in stretches if each.stack is not None]
    assert len(blocks) == 3 * len(layout.split("-"))
    assert all(each.kept for each in blocks)


def test_what_is_weighed_is_as_before():
    network, data = model(n_layers=2).float().eval(), batch("encoder-decoder", ROWS)
    random = torch.get_rng_state()
    kept_by(network, data, objective_for(network), "bfloat16")
    assert not network.training
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in network.modules())
    assert all(each.grad is None for each in network.parameters())


def test_weights_gradients_and_optimizer_are_counted():
    network, data = model().float(), batch("encoder-decoder", ROWS)
    optimizer, bytes_of_weights = (
        build_optimizer(network, OptimizerConfig(), learning_rate=0.1),
        4 * sum(map(torch.numel, network.parameters())),
    )
    before = estimate(network, data, objective_for(network), optimizer)
    assert (before.weights, before.gradients, before.optimizer) == (*[bytes_of_weights] * 2, 2 * bytes_of_weights)
    list(train_steps(network, [data], optimizer, Schedule("constant", 0.1, 1)))
    steps = 4 * len(list(network.parameters()))
    assert estimate(network, data, objective_for(network), optimizer).optimizer == 2 * bytes_of_weights + steps
    assert before.peak == before.weights + before.gradients + before.optimizer + before.activations


def test_what_is_held_besides_is_counted():
    network, data = model().float(), batch("encoder-decoder", ROWS)
    optimizer, objective = build_optimizer(network, OptimizerConfig(), learning_rate=0.1), objective_for(network)
    plain = estimate(network, data, objective, optimizer)
    both = estimate(network, data, objective, optimizer, average=True, background=True)
    assert (plain.average, plain.snapshot) == (0, 0)
    assert both.average == 2 * plain.weights, "the average, and the weights while it is evaluated"
    assert both.snapshot == plain.weights + plain.optimizer + both.average
    assert both.peak == plain.peak + both.average + both.snapshot


def test_narrow_products_are_compiled_once_for_each_shape():
    network, data = model().float(), batch("encoder-decoder", ROWS)
    optimizer, objective = build_optimizer(network, OptimizerConfig(), learning_rate=0.1), objective_for(network)
    plain = estimate(network, data, objective, optimizer)
    narrow = estimate(network, data, objective, optimizer, Update(precision="bfloat16"))
    shapes = len({each.shape for each in network.parameters() if each.ndim == 2})
    assert plain.kernels == 0
    assert narrow.kernels == FIRST_PRODUCT + (3 * shapes + 6) * PRODUCT
    assert narrow.peak == narrow.weights + narrow.gradients + narrow.optimizer + narrow.activations + narrow.kernels


def test_what_saves_memory_is_estimated_to():
    network, data = model(n_layers=6, d_ff=64).float(), batch("encoder-decoder", [(9, 9)] * 32)
    optimizer, objective = build_optimizer(network, OptimizerConfig(), learning_rate=0.1), objective_for(network)
    plain = estimate(network, data, objective, optimizer).activations
    assert estimate(network, data, objective, optimizer, Update(recompute=1)).activations < 0.5 * plain
    assert estimate(network, data, objective, optimizer, Update(accumulate=4)).activations < 0.5 * plain
    assert estimate(network, data, objective, optimizer, Update(precision="bfloat16")).activations < 0.9 * plain


OUTSIDE, BLOCKS, HEAD = Stretch(None, [5]), [Stretch(0, [4, 10], 4), Stretch(0, [4, 20], 4)], Stretch(None, [30])


def test_the_fullest_moment_by_hand():
    every = [OUTSIDE, *BLOCKS, HEAD]
    assert fullest_moment(every, 0, 0, 0) == 5 + 14 + 24 + 30 + 30, "at the head, with its own gradient"
    assert fullest_moment(every[:3], 0, 0, 0) == 5 + 14 + 24 + 2 * 20, "in a block one comes in and one goes out"
    assert fullest_moment(every[:3], 0, 0, 1) == 5 + 4 + 24 + 2 * 20, "of the first block its input alone is kept"
    assert fullest_moment(every, 0, 7, 0) == 103 + 7, "gradients of the pieces before"
    assert fullest_moment([OUTSIDE, HEAD], 70, 0, 0) == max(5 + 30 + 30, 5 + 5 + 70 * 30 // 35)


def test_groups():
    every = [OUTSIDE, *BLOCKS, Stretch(None), Stretch(1, [7], 7), Stretch(1, [8], 7), Stretch(1, [9], 7), HEAD]
    assert [each.kept for each in in_groups(every, 2)] == [[5], [4, 10, 4, 20], [], [7, 8], [9], [30]]
    assert [each.kept for each in in_groups(every, 0)] == [each.kept for each in every]
