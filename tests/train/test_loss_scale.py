"""float16: an update that overflows is skipped, counted (R11); twenty in a row are a divergence; resuming is exact."""

import pytest
import torch

from glassformer import Schedule, train_steps
from glassformer.base.errors import DivergedError
from glassformer.store.checkpoint import load
from glassformer.train.optimizer import build_optimizer
from glassformer.train.precision import MOST_SKIPPED, LossScale
from glassformer.train.records import Overflowed
from glassformer.train.run.session import resume, start
from glassformer.train.settings import OptimizerConfig, Update
from train.examples import assert_same, assert_same_end, batch, follow, killed_after, model, recipe, weights

CPU = torch.device("cpu")
DATA = [batch("encoder-decoder", [(3, 5), (1, 1), (6, 2)], seed) for seed in range(40)]


def steps(network, scale, data, *, start=0, optimizer=None, **settings):
    optimizer = optimizer or build_optimizer(network, OptimizerConfig(), learning_rate=1e-2)
    schedule = Schedule("constant", 1e-2, start + len(data))
    how = Update(**{"precision": "float16", "clip": 1.0} | settings)
    return train_steps(network, data, optimizer, schedule, how, loss_scale=scale, start=start)


def scaled_by(number: float) -> LossScale:
    scale = LossScale(CPU)
    scale.load(scale.state() | {"scale": number})
    return scale


def test_learns_as_in_float32_within_its_precision():
    narrow, wide = model().float(), model().float()
    ours = [each.loss for each in steps(narrow, scaled_by(1024.0), DATA[:1] * 20)]
    theirs = [each.loss for each in steps(wide, None, DATA[:1] * 20, precision="float32")]
    assert ours == pytest.approx(theirs, rel=0.02)
    assert ours[-1] < 0.8 * ours[0]


def test_gradients_are_of_the_loss_itself():
    """Their norm does not hang on the scale, a power of two."""
    one, other = (
        next(iter(steps(model().float(), scaled_by(number), DATA[:1], accumulate=2))).grad_norm for number in (1.0, 8.0)
    )
    assert other == pytest.approx(one, rel=0.01)


def test_what_overflows_is_skipped_and_counted():
    network, scale = model().float(), scaled_by(2.0**24)
    before, reports = weights(network), []
    for report in steps(network, scale, DATA):
        reports.append(report)
        if not report.overflowed:
            break
        assert_same(weights(network), before)
    assert len(reports) > 2
    assert (scale.skipped, scale.in_a_row) == (len(reports) - 1, 0)
    assert scale.scale == 2.0 ** (24 - scale.skipped)
    assert any(not torch.equal(after, before[name]) for name, after in weights(network).items())


def test_twenty_in_a_row_are_a_divergence():
    network, scale = model().float(), LossScale(CPU)
    with torch.no_grad():
        network.head.weight[3] = 1e30  # finite, but not in float16
    with pytest.raises(DivergedError, match="20th time in a row"):
        list(steps(network, scale, DATA, skip_nonfinite=5))  # a budget of its own, which overflows do not use
    assert scale.skipped == MOST_SKIPPED


def test_a_run_resumes_to_the_same_bits(tmp_path):
    events = follow(start(recipe(training__precision="float16", checkpoint__every=4), tmp_path / "whole"))
    follow(resume(killed_after(tmp_path / "whole", 4, tmp_path / "cut")))
    assert_same_end(tmp_path / "cut", tmp_path / "whole")
    overflows = [each for each in events if isinstance(each, Overflowed)]
    assert [each.so_far for each in overflows] == list(range(1, len(overflows) + 1))


def test_a_run_that_has_only_overflowed_resumes_to_the_same_bits(tmp_path):
    wanted = recipe(training__precision="float16")
    sessions = [start(wanted, tmp_path / name) for name in ("whole", "cut")]
    for each in sessions:
        each.loss_scale.load(each.loss_scale.state() | {"scale": 2.0**26})
    follow(sessions[0])
    follow(sessions[1], stop_after=1)
    assert load(tmp_path / "cut").state["loss_scale"]["skipped"] == 1
    follow(resume(tmp_path / "cut"))
    assert_same_end(tmp_path / "cut", tmp_path / "whole")
