"""Resuming where there is no checkpoint, no intact one, or one whose state was edited."""

import re
import shutil

import pytest
import torch

from glassformer.base.errors import CheckpointError, ConfigError, DataError
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.folders import checkpoints, step_folder
from glassformer.train.recipe import load_recipe
from glassformer.train.run import session as session_of
from glassformer.train.run.session import resume
from train.examples import assert_same_end, follow, killed_after


@pytest.mark.parametrize("step", [0, 3])
def test_killed_before_the_first_checkpoint(whole, tmp_path, step):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    if not step:  # as a kill between the recipe and the first line leaves it
        for name in ("metrics.jsonl", "timing.jsonl", "log.txt"):
            (run / name).unlink()
        shutil.rmtree(run / "samples")
    torch.manual_seed(99)
    session = resume(run)
    assert session.step == 0
    assert "there is no checkpoint yet, so training begins at step 0" in session.notes
    follow(session)
    assert_same_end(run, whole)


def without_checkpoint(whole, run):
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    return run


def test_before_the_first_checkpoint_changes_are_allowed_by_name_too(whole, tmp_path):
    run = without_checkpoint(whole, tmp_path / "run")
    asked = {"training.learning_rate": 0.5}
    with pytest.raises(CheckpointError, match=r"trained with other settings.*--training\.learning-rate 0\.5"):
        resume(run, asked=asked)
    with pytest.raises(ConfigError, match="its value is the same as in the run so far"):
        resume(run, ["training.seed"])
    with pytest.raises(CheckpointError, match="keeps the vocabulary"):
        resume(run, ["tokenizer.min_count"], {"tokenizer.min_count": 7})
    assert (run / "recipe.toml").read_bytes() == (whole / "recipe.toml").read_bytes()
    session = resume(run, ["training.learning_rate"], asked)
    assert any(note.startswith("changed, as allowed: training.learning_rate") for note in session.notes)
    assert load_recipe(run / "recipe.toml").training.learning_rate == 0.5


def test_a_resume_that_fails_leaves_the_recipe(whole, tmp_path, monkeypatch):
    run = without_checkpoint(whole, tmp_path / "run")

    def fails(_):
        raise DataError("no such file")

    monkeypatch.setattr(session_of, "begin", fails)
    with pytest.raises(DataError):
        resume(run, ["training.learning_rate"], {"training.learning_rate": 0.5})
    assert (run / "recipe.toml").read_bytes() == (whole / "recipe.toml").read_bytes()


def test_what_is_of_no_use_for_a_new_beginning_is_told(whole, tmp_path):
    run = without_checkpoint(whole, tmp_path / "run")
    (run / "checkpoints" / "kept-by-hand").mkdir(parents=True)
    notes = resume(run).notes
    assert any(note.startswith("left alone: kept-by-hand in ") for note in notes)
    assert any(
        re.fullmatch(r"dropped: [1-9]\d* lines of metrics\.jsonl, of steps that will be repeated", n) for n in notes
    )


def test_run_whose_checkpoints_are_all_damaged_is_refused(whole, tmp_path):
    run = killed_after(whole, 2, tmp_path / "run")
    for folder in checkpoints(run).values():
        (folder / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no intact checkpoint to resume from.*--overwrite") as refused:
        resume(run)
    told = str(refused.value)
    assert "another checkpoint" not in told  # there is none
    assert told.endswith(f"start over: glassformer train {run / 'recipe.toml'} --out {run} --overwrite")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"step": 5}, "step is 5, which differs from that in the folder's name"),
        ({"step": True}, "step is True"),
        ({"step": 10**25}, "step is 1000"),
        ({"best": 9}, "best is 9, but must be a step up to 4"),
        ({"best": 4, "best_metrics": {}}, "best_metrics has no number for 'loss'"),
        ({"best": 4, "best_metrics": {"loss": "1"}}, "best_metrics has no number for 'loss'"),
        ({"best": 4, "best_metrics": {"loss": 1.0, "exact_match": 1.0, "n": [3]}}, "best_metrics holds 'n'"),
        ({"since_best": -1}, "since_best is -1"),
    ],
    ids=str,
)
def test_edited_state_is_refused_when_it_is_loaded(whole, tmp_path, change, says):
    run = killed_after(whole, 4, tmp_path / "run")
    folder = step_folder(run, 4)
    loaded, moments = load(folder), load_optimizer(folder)
    save(folder, loaded.model, loaded.tokenizers, optimizer=moments, state={**loaded.state, **change})
    with pytest.raises(CheckpointError, match=rf"saved itself; in the state of .*step-000000004 .*{re.escape(says)}"):
        resume(run)
