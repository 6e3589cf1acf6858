"""Runs on trajectories: resumed to the same bits, their data watched, begun from another run with its scales."""

import json

import pytest
import torch

from data.trajectories.episodes import made
from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.data.trajectories.episodes import Spaces
from glassformer.data.trajectories.windows import spaces_of
from glassformer.store.checkpoint import load
from glassformer.train.finished.use import evaluate
from glassformer.train.recipe import load_recipe, override
from glassformer.train.records import Finished, Progress
from glassformer.train.run.beginning import prepare
from glassformer.train.run.outlook import look_ahead
from glassformer.train.run.session import resume, start
from train.examples import STEPS, assert_resumed_to_the_same_bits, follow
from train.text_examples import text_recipe
from train.trajectory_examples import acting, log

RUNS = {
    "numbered": {},
    "vectors": {"discrete": False},
    "rooms": {"path": None},
    "discounted": {"data__discount": 0.9, "training__batch_warmup": 6},
    "muon": {"optimizer__name": "muon", "optimizer__average": 0.9},
    "wide": {"data__window": 100, "training__batch_tokens": 600, "model__positions": "learned", "model__max_len": 300},
}


def asked_for(folder, *, discrete=True, path="log.csv", **changes):
    return acting(None if path is None else log(folder, discrete=discrete), **changes)


OFTEN = ("numbered", "vectors")


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in RUNS]
)
def test_cut_and_resumed_to_the_same_bits(tmp_path, name):
    assert_resumed_to_the_same_bits(asked_for(tmp_path, **RUNS[name]), tmp_path)


@pytest.mark.parametrize("discrete", [True, False])
def test_pieces_of_a_batch_are_the_whole_batch(tmp_path, discrete):
    """The loss of the first step, before anything was learned, and what was learned from it at the second."""
    found = []
    for pieces in (1, 2, 3, 6):
        run = tmp_path / f"run-{pieces}"
        requested = asked_for(tmp_path, discrete=discrete, training__accumulate=pieces, model__dropout=0.0)
        events = follow(start(requested, run), stop_after=2)
        found.append([event.loss for event in events if isinstance(event, Progress)])
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize("discrete", [True, False])
def test_a_checkpoint_keeps_the_scales(tmp_path, discrete):
    session = start(asked_for(tmp_path, discrete=discrete), tmp_path / "run")
    follow(session)
    loaded = load(tmp_path / "run")
    spaces = loaded.tokenizers.target
    assert isinstance(spaces, Spaces)
    assert spaces is loaded.tokenizers.source
    assert spaces.scales == session.prepared.train.spaces.scales
    assert spaces.to_json() == session.prepared.train.spaces.to_json()


def test_a_run_that_starts_from_another_keeps_its_scales(tmp_path):
    (tmp_path / "other").mkdir()
    follow(start(asked_for(tmp_path), tmp_path / "first"))
    before = load(tmp_path / "first")
    other = acting(log(tmp_path / "other", seed=7), training__start_from=str(tmp_path / "first"))
    session = start(other, tmp_path / "second")
    kept, now = before.tokenizers.target.scales, session.prepared.train.spaces.scales
    assert all(getattr(now, name) == getattr(kept, name) for name in ("observed", "observed_spread", "to_go"))
    assert now.returns == prepare(acting(log(tmp_path / "other", seed=7))).train.spaces.scales.returns != kept.returns
    ours, theirs = session.model.state_dict(), before.model.state_dict()
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    follow(session)
    assert load(tmp_path / "second").tokenizers.target.scales == now


def test_a_run_that_starts_from_another_reaches_as_far_as_its_own_episodes():
    first, second = (made(lengths, discrete=False, seed=seed) for lengths, seed in (([3, 2], 0), ([9, 4], 1)))
    before, own = (spaces_of(each, each.returns_to_go()) for each in (first, second))
    now, kept = before.reaching(own.scales).scales, before.scales
    assert (now.acted, now.acted_spread, now.to_go) == (kept.acted, kept.acted_spread, kept.to_go)
    assert (now.acted_low, now.acted_high) == (own.scales.acted_low, own.scales.acted_high)
    assert (now.longest, now.returns) == (9, own.scales.returns)


def test_a_run_on_texts_does_not_start_from_one_on_trajectories(tmp_path):
    follow(start(asked_for(tmp_path), tmp_path / "first"))
    path = tmp_path / "book.txt"
    path.write_text("a b c d e f g " * 20, "utf-8")
    with pytest.raises(ConfigError, match=r"start_from .* that reads tokens, as data\.layout='decoder' does; .*first"):
        start(text_recipe(path, training__start_from=str(tmp_path / "first")), tmp_path / "second")


def test_blocks_that_read_text_may_learn_to_act(tmp_path):
    """Reid, Yamada and Gu 2022: what reads and predicts begins fresh, and the blocks between are taken over."""
    path = tmp_path / "book.txt"
    path.write_text("a b c d e f g " * 20, "utf-8")
    follow(start(text_recipe(path), tmp_path / "first"), stop_after=4)
    session = start(asked_for(tmp_path, training__start_from=str(tmp_path / "first")), tmp_path / "second")
    ours, theirs = session.model.state_dict(), load(tmp_path / "first").model.state_dict()
    blocks = [name for name in ours if ".blocks." in name]
    assert blocks
    assert all(torch.equal(ours[name], theirs[name]) for name in blocks)
    assert isinstance(follow(session)[-1], Finished)


def test_changed_episodes_are_refused_by_name_and_gone_on_with_where_allowed(tmp_path):
    run = tmp_path / "run"
    follow(start(asked_for(tmp_path), run), stop_after=5)
    path = log(tmp_path, seed=1)
    with pytest.raises(CheckpointError, match=rf"the training episodes \({path}\) have changed since.*data\.train"):
        resume(run)
    assert isinstance(follow(resume(run, ["data.train"]))[-1], Finished)


def test_other_data_are_scored(tmp_path):
    run = tmp_path / "run"
    follow(start(asked_for(tmp_path), run))
    own = load_recipe(run / "recipe.toml")
    kept = load(run).state["best_metrics"]
    dev = evaluate(run, own, "dev")
    assert {name: dev[name] for name in kept} == pytest.approx(kept, rel=1e-6)
    assert {"loss", "accuracy", "n"} <= dev.keys()
    with pytest.raises(ConfigError, match="no file for the test episodes"):
        evaluate(run, own)
    (tmp_path / "other").mkdir()
    test = log(tmp_path / "other", seed=3)
    assert evaluate(run, override(own, {"data.test": str(test)}))["n"] == 57


def test_figures_are_kept(tmp_path):
    run = tmp_path / "run"
    follow(start(asked_for(tmp_path, discrete=False), run))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, STEPS + 1))
    assert all({"loss", "error", "n"} <= line.keys() for line in lines if line["kind"] == "dev")


def test_the_outlook_counts_windows(tmp_path):
    outlook = look_ahead(asked_for(tmp_path, path=None), tmp_path / "run")
    assert outlook.data.what == "windows"
    assert outlook.data.batches == -(-outlook.data.samples // 6)
    assert not (tmp_path / "run").exists()
