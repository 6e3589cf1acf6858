"""Updates that would not be finite: refused with step, batch and module, or left out where a budget allows it."""

import json
import math

import pytest
import torch

from glassformer.base.errors import DivergedError
from glassformer.store.checkpoint import load
from glassformer.train.records import Finished, Progress, Skipped
from glassformer.train.run.session import Session, resume, start
from train.examples import assert_same, assert_same_end, follow, recipe, texts, weights


def spoiled(session: Session, *steps: int) -> Session:
    """The gradient of one weight is NaN in the updates of these steps, and the weights are as they should be."""
    parameter = session.model.get_parameter("decoder.norm.weight")
    parameter.register_hook(lambda gradient: gradient * math.nan if session.step + 1 in steps else gradient)
    return session


@pytest.mark.parametrize("accumulate", [1, 2])
def test_error_names_step_module_and_batch(tmp_path, accumulate):
    session = spoiled(start(recipe(training__accumulate=accumulate), tmp_path / "run"), 3)
    epoch, rows = session.prepared.sampler.at(2)
    with pytest.raises(DivergedError) as caught:
        follow(session)
    message = str(caught.value)
    assert "at step 3 the loss is " in message
    assert "the gradient of decoder.norm.weight is not" in message
    numbers = sorted(row + 1 for row in rows.tolist())
    assert f"Its batch, in epoch {epoch}, is made of the training pairs {', '.join(map(str, numbers[:16]))}" in message
    assert f"{numbers[0]}, {numbers[1]}" in message


def test_pairs_of_a_file_have_a_line(tmp_path):
    paths = texts(tmp_path, source=["a b", "b", "a", "b a"], target=["x y", "y", "x", "y x"])
    named = {f"data__{split}_{side}": str(path) for split in ("train", "dev") for side, path in paths.items()}
    session = spoiled(start(recipe(data__task="pairs", **named), tmp_path / "run"), 2)
    with pytest.raises(DivergedError, match=rf"pairs 1, 2, 3, 4; the first is {paths['source']}:1\."):
        follow(session)


def test_budget_leaves_updates_out(tmp_path):
    session = spoiled(start(recipe(training__skip_nonfinite=2), tmp_path / "run"), 3, 7)
    events, at = [], {}
    for event in session.train():
        events.append(event)
        if isinstance(event, Progress):
            at[event.step] = weights(session.model)
    assert_same(at[3], at[2])
    assert_same(at[7], at[6])
    skips = [event for event in events if isinstance(event, Skipped)]
    assert [(each.step, each.number, each.allowed) for each in skips] == [(3, 1, 2), (7, 2, 2)]
    assert all("Its batch" in each.reason and "decoder.norm.weight" in each.reason for each in skips)
    assert isinstance(events[-1], Finished)


def test_what_was_left_out_is_counted_and_shown(tmp_path):
    follow(spoiled(start(recipe(training__skip_nonfinite=1), tmp_path / "run"), 3))
    assert "step 3: skipped, 1 of 1 allowed. Training must stay finite" in (tmp_path / "run" / "log.txt").read_text()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train" and line["loss"] is None] == [3]


def test_budget_is_of_the_whole_run(tmp_path):
    """Used up before a stop, it is used up after it."""
    follow(spoiled(start(recipe(training__skip_nonfinite=1), tmp_path / "run"), 3), stop_after=5)
    assert load(tmp_path / "run").state["skipped"] == 1
    with pytest.raises(DivergedError, match=r"at step 7 .* All 1 skips of training\.skip_nonfinite are used up"):
        follow(spoiled(resume(tmp_path / "run"), 7))


def test_weights_that_are_not_finite_are_no_matter_of_a_batch(tmp_path):
    session = start(recipe(training__skip_nonfinite=9), tmp_path / "run")
    with torch.no_grad():
        next(session.model.parameters()).fill_(math.nan)
    with pytest.raises(DivergedError, match="at step 1 "):
        follow(session)
    assert session.skipped == 0


def test_skipped_run_resumes_to_the_same_bits(tmp_path):
    requested = recipe(training__skip_nonfinite=2)
    follow(spoiled(start(requested, tmp_path / "whole"), 3, 7))
    follow(spoiled(start(requested, tmp_path / "run"), 3, 7), stop_after=5)
    session = spoiled(resume(tmp_path / "run"), 3, 7)
    follow(session)
    assert_same(weights(session.model), weights(load(tmp_path / "whole" / "checkpoints" / "step-000000012").model))


@pytest.mark.parametrize("average", [0.0, 0.9], ids=["last", "average"])
def test_stopped_before_the_first_update_that_was_made(tmp_path, average):
    """The optimizer has kept nothing yet, which is no fault of the checkpoint."""
    requested = recipe(training__skip_nonfinite=2, optimizer__average=average)
    follow(spoiled(start(requested, tmp_path / "whole"), 1, 2))
    follow(spoiled(start(requested, tmp_path / "run"), 1, 2), stop_after=1)
    follow(spoiled(resume(tmp_path / "run"), 1, 2))
    assert_same_end(tmp_path / "run", tmp_path / "whole")
