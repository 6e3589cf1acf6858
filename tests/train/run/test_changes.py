"""What may be another when a run goes on: nothing, unless it is named; a resume says what differs, with both values."""

from pathlib import Path

import pytest

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.folders import step_folder
from glassformer.train.recipe import dumps_recipe, load_recipe
from glassformer.train.records import Saved, Started
from glassformer.train.run.session import resume, start
from train.examples import assert_same, assert_same_end, follow, killed_after, recipe, texts, weights

LINES = {"source": ["a b", "b", "a", "b a"], "target": ["x y", "y", "x", "y x"]}


@pytest.fixture
def run(whole, tmp_path) -> Path:
    return killed_after(whole, 3, tmp_path / "run")


@pytest.mark.parametrize(("name", "value", "message"), [
    ("training.steps", 24, "training.steps 12 -> 24"),
    ("training.seed", 2, "training.seed 1 -> 2"),
    ("training.warmup", 4, "training.warmup 3 -> 4"),
    ("training.schedule", "linear", 'training.schedule "cosine" -> "linear"'),
    ("data.train_size", 60, "data.train_size 50 -> 60"),
    ("model.dropout", 0.1, "model.dropout 0.2 -> 0.1"),
    ("decode.max_new_tokens", None, "decode.max_new_tokens 4 -> none"),
], ids=lambda value: str(value) if isinstance(value, str) and "->" not in value else "")  # fmt: skip
def test_changed_setting_is_refused_with_both_values(run, name, value, message):
    before = (run / "recipe.toml").read_bytes()
    with pytest.raises(CheckpointError, match="trained with other settings") as caught:
        resume(run, requested={name: value})
    assert message in str(caught.value)
    typed = f" --{name.replace('_', '-')} {'none' if value is None else value}"
    assert f"--allow-change {name}{typed}." in str(caught.value)
    assert (run / "recipe.toml").read_bytes() == before
    (run / "recipe.toml").write_text(dumps_recipe(recipe(checkpoint__every=1, **{name.replace(".", "__"): value})))
    with pytest.raises(CheckpointError, match="trained with other settings"):  # edited by hand, it is the same
        resume(run)


def test_several_changes_are_told_together(run):
    options = {"training.steps": 24, "training.clip": 0.5}
    with pytest.raises(CheckpointError, match=r"\.steps 12 -> 24; training\.clip 1\.0 -> 0\.5\. Undo") as caught:
        resume(run, requested=options)
    words = "--allow-change training.steps --allow-change training.clip --training.steps 24 --training.clip 0.5."
    assert words in str(caught.value)
    with pytest.raises(CheckpointError, match=r"has now: training\.clip 1\.0 -> 0\.5\. Undo"):
        resume(run, ["training.steps"], options)


def test_an_end_that_lies_behind_is_refused(run):
    before = (run / "recipe.toml").read_bytes()
    with pytest.raises(ConfigError, match=r"has taken, 3; got 2\. Give at least 3"):
        resume(run, ["training.steps"], {"training.steps": 2})
    assert (run / "recipe.toml").read_bytes() == before
    assert resume(run, ["training.steps"], {"training.steps": 3}).step == 3


def test_allowed_change_is_made_and_kept(whole, run):
    """Told, written into the recipe, and into a checkpoint at once: the next resume needs no permission."""
    session = resume(run, ["training.steps"], {"training.steps": 14})
    assert "changed, as allowed: training.steps 12 -> 14" in session.notes
    events = session.train()
    assert (type(next(events)), type(next(events))) == (Started, Saved)
    events.close()
    assert load_recipe(run / "recipe.toml").training.steps == 14
    again = resume(run)
    assert (again.step, again.recipe.training.steps) == (3, 14)
    assert_same(weights(again.model), weights(load(step_folder(whole, 3)).model))
    *_, finished = follow(again)
    assert finished.step == 14


def test_change_is_on_the_disk_before_the_first_step(run):
    """Also where checkpoints are written in the background; killed before that, the same words do it again."""
    options = {"training.steps": 14, "checkpoint.background": True}
    resume(run, ["training.steps"], options).lock.release()  # as a kill does
    with pytest.raises(CheckpointError, match=r"training\.steps 12 -> 14.*--allow-change training\.steps"):
        resume(run)
    session = resume(run, ["training.steps"], options)
    assert any("give the same flags again" in note for note in session.notes)
    events = session.train()
    assert (type(next(events)), type(next(events))) == (Started, Saved)
    events.close()
    assert resume(run).recipe.training.steps == 14


@pytest.mark.parametrize("name", ["model.d_ff", "model.n_layers", "model.d_model", "model.tie_embeddings"])
def test_other_weights_are_refused_though_they_are_named(run, name):
    values = {"model.d_ff": 16, "model.n_layers": 2, "model.d_model": 16, "model.tie_embeddings": False}
    with pytest.raises(CheckpointError, match="A run keeps the model that it began with"):
        resume(run, [name], {name: values[name]})


@pytest.mark.parametrize(("name", "value", "message"), [
    ("training.precision", "auto",
     r"precision that was chosen when it began; got training\.precision='auto'\. Set it to"),
    ("training.threads", 0, r"a fixed number of threads; got training\.threads=0\. Give a number"),
])  # fmt: skip
def test_what_is_decided_as_a_run_begins_is_not_decided_anew(run, name, value, message):
    before = (run / "recipe.toml").read_bytes()
    with pytest.raises(ConfigError, match=message):
        resume(run, [name], {name: value})
    assert (run / "recipe.toml").read_bytes() == before
    assert resume(run).step == 3


def test_the_memory_of_an_average_stays_though_it_is_named(run):
    with pytest.raises(
        CheckpointError,
        match=r"optimizer\.average cannot change .*; got optimizer\.average 0\.0 -> 0\.9\. Undo that change",
    ):
        resume(run, ["optimizer.average"], {"optimizer.average": 0.9})


def test_other_vocabulary_is_refused_though_it_is_named(run):
    with pytest.raises(CheckpointError, match=r'keeps the vocabulary .*tokenizer\.kind ".*" -> "character"'):
        resume(run, ["tokenizer.kind"], {"tokenizer.kind": "character"})


def test_settings_of_checkpoints_are_free(whole, run):
    follow(resume(run, requested={"checkpoint.every": 2, "checkpoint.keep": 1}))
    (run / "recipe.toml").write_bytes((whole / "recipe.toml").read_bytes())
    assert_same_end(run, whole)


def test_permission_that_nothing_needs_is_refused(run):
    with pytest.raises(ConfigError, match=r"training\.steps: its value is the same as in the run so far"):
        resume(run, ["training.steps"])
    with pytest.raises(ConfigError, match=r"training\.step: .* is no such setting\. Did you mean 'training\.steps'\?$"):
        resume(run, ["training.step"])


def test_before_the_first_checkpoint_a_model_of_another_size_may_be_asked_for(tmp_path):
    start(recipe(), tmp_path / "run")
    options = {"model.d_ff": 16, "training.steps": 2}
    session = resume(tmp_path / "run", [*options], options)
    assert (session.model.config.stack.d_ff, session.step) == (16, 0)
    assert load_recipe(tmp_path / "run" / "recipe.toml").training.steps == 2


def test_checkpoint_of_a_version_that_kept_no_recipe(whole, run):
    """It resumes as it did, by what can be compared."""
    folder = step_folder(run, 3)
    loaded, moments = load(folder), load_optimizer(folder)
    later = ("sides", "recipe", "skipped", "evaluation_due")
    old = {name: value for name, value in loaded.state.items() if name not in later}
    save(folder, loaded.model, loaded.tokenizers, optimizer=moments, state=old)
    follow(resume(run))
    assert_same_end(run, whole)


def on_files(folder, **more):
    """A run on files, of which dev has its own."""
    paths = texts(folder, **LINES) | texts(folder, dev_source=["a b", "b"], dev_target=["x y", "y"])
    named = {f"data__train_{side}": str(paths[side]) for side in LINES}
    named |= {f"data__dev_{side}": str(paths[f"dev_{side}"]) for side in LINES}
    return recipe(data__task="pairs", **named, **more), paths


@pytest.mark.parametrize(("file", "lines", "what"), [
    ("source", ["a b", "b", "a", "a a"], "training"),
    ("target", ["x y", "y", "x", "x x"], "training"),
    ("dev_target", ["x y", "x"], "dev"),
], ids=["source", "target", "dev_target"])  # fmt: skip
def test_changed_file_is_named(tmp_path, file, lines, what):
    requested, paths = on_files(tmp_path)
    follow(start(requested, tmp_path / "run"), stop_after=2)
    texts(tmp_path, **{file: lines})
    with pytest.raises(CheckpointError, match=f"the {what} pairs .* have changed since") as caught:
        resume(tmp_path / "run")
    assert f"({paths[file]})" in str(caught.value)
    setting = f"data.{file}" if file.startswith("dev") else f"data.train_{file}"
    assert f"--allow-change data.{'dev' if what == 'dev' else 'train'}_source" in str(caught.value)
    session = resume(tmp_path / "run", [setting])
    assert any("changed, as allowed" in note and str(paths[file]) in note for note in session.notes)


def test_file_that_moved_is_the_same(tmp_path):
    requested, paths = on_files(tmp_path)
    follow(start(requested, tmp_path / "run"), stop_after=2)
    moved = paths["source"].rename(tmp_path / "moved.txt")
    assert resume(tmp_path / "run", requested={"data.train_source": str(moved)}).step == 2
    assert load_recipe(tmp_path / "run" / "recipe.toml").data.train_source == str(moved)
