"""The average of the weights: its closed form, that it leaves no trace, and that it is what is scored and kept."""

import pytest
import torch

from glassformer.base.errors import CheckpointError
from glassformer.store.checkpoint import load, load_optimizer
from glassformer.store.folders import step_folder
from glassformer.train import evaluate as evaluate_module
from glassformer.train.optimizer import Average
from glassformer.train.run.session import start
from train.examples import assert_close, assert_same, follow, model, recipe, weights

MEMORY = 0.7


def stepped(average: Average, network, steps: int) -> list[dict[str, torch.Tensor]]:
    """Random weights after each step, taken in."""
    seen = []
    for step in range(steps):
        torch.manual_seed(step)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_()
        average.update()
        seen.append(weights(network))
    return seen


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_closed_form(steps):
    """sum_i memory^(n - i) weights_i / sum_i memory^(n - i)."""
    network = model()
    average = Average(network, MEMORY)
    seen = stepped(average, network, steps)
    shares = [MEMORY ** (steps - i) for i in range(1, steps + 1)]
    expected = {
        name: sum(share * each[name] for share, each in zip(shares, seen, strict=True)) / sum(shares)
        for name in seen[0]
    }
    with average.in_place(steps):
        assert_close(weights(network), expected)
    assert_same(weights(network), seen[-1])


def test_own_weights_come_back_after_an_error_too():
    network = model()
    average = Average(network, MEMORY)
    (own,) = stepped(average, network, 1)
    stepped(average, network, 0)
    with pytest.raises(RuntimeError, match="in between"), average.in_place(1):
        raise RuntimeError("in between")
    assert_same(weights(network), own)


def test_before_the_first_step_the_model_keeps_its_own():
    network = model()
    before = weights(network)
    with Average(network, MEMORY).in_place(0):
        assert_same(weights(network), before)


def test_averaging_changes_no_step(tmp_path):
    plain, averaged = (start(recipe(optimizer__average=memory), tmp_path / str(memory)) for memory in (0.0, MEMORY))
    follow(plain)
    follow(averaged)
    assert_same(weights(plain.model), weights(averaged.model))
    kept = load(step_folder(averaged.run, averaged.step))
    with averaged.average.in_place(averaged.step):
        assert_same(weights(kept.model), weights(averaged.model))
    assert not torch.equal(*(each.head.weight for each in (kept.model, plain.model)))


def test_the_average_is_what_is_scored(tmp_path, monkeypatch):
    session = start(recipe(optimizer__average=MEMORY), tmp_path / "run")
    scored, evaluate = [], evaluate_module.evaluate_model

    def seen(network, *arguments, **settings):
        with session.average.in_place(session.step):
            average = weights(network)
        scored.append(all(torch.equal(each, average[name]) for name, each in weights(network).items()))
        return evaluate(network, *arguments, **settings)

    monkeypatch.setattr(evaluate_module, "evaluate_model", seen)
    follow(session)
    assert scored == [True, True, True]


def test_checkpoint_without_an_average_is_refused(tmp_path):
    session = start(recipe(), tmp_path / "run")
    follow(session)
    saved = load_optimizer(step_folder(session.run, session.step))
    with pytest.raises(CheckpointError, match="needs the average in its checkpoint"):
        Average(session.model, MEMORY).restore(saved)
