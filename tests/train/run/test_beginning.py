"""A run that starts from another one: which weights it takes over, which begin fresh, and what it says of both."""

import shutil

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.store.checkpoint import load
from glassformer.store.folders import step_folder
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.beginning import OWN, begin
from glassformer.train.run.session import resume, start
from train.examples import assert_same, follow, weights

TINY = {
    "model.d_model": 16, "model.n_heads": 2, "model.n_layers": 1, "model.d_ff": 16, "training.steps": 2,
    "training.warmup": 1, "training.evaluate_every": 0, "training.precision": "float32", "training.threads": 1,
    "training.device": "cpu",
}  # fmt: skip
TEXT = "the cat sat on the mat and the dog sat on the log\n" * 40
LABELS = "".join(f"the cat sat\tgood\nthe {word} log\tbad\n" for word in ("dog", "mat", "log"))


def trained(recipe, out):
    follow(start(recipe, out))
    return out


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A masked language model of two steps, and files with labels."""
    folder = tmp_path_factory.mktemp("before")
    (folder / "text.txt").write_text(TEXT, "utf-8")
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(LABELS, "utf-8")
    options = {
        "data.text": str(folder / "text.txt"),
        "data.window": 16,
        "tokenizer.kind": "character",
        "training.batch_tokens": 64,
    }
    return trained(override(load_recipe("mlm"), TINY | options), folder / "mlm")


def classifier(before, **more):
    files = {f"data.{name}": str(before.parent / f"{name}.tsv") for name in ("train", "dev")}
    sizes = {name: value for name, value in TINY.items() if name.startswith("training.")}
    return override(load_recipe("classify"), sizes | files | {"training.start_from": str(before)} | more)


def test_a_classifier_begins_with_the_encoder_of_a_masked_model(before):
    data, model, notes, _ = begin(classifier(before))
    theirs, ours = load(before).model.state_dict(), model.state_dict()
    taken = [name for name in ours if name.startswith("encoder.")]
    assert all(torch.equal(ours[name], theirs[name]) for name in taken)
    assert {name for name in ours if name not in taken} == {name for name in ours if name.startswith("head.")}
    assert data.tokenizers.source.to_json() == load(before).tokenizers.source.to_json()
    assert [*data.tokenizers.target.entries] == ["bad", "good"]
    text = "\n".join(notes)
    assert str(before) in text
    assert f"weights taken over: {len(taken)} of {len(ours)}" in text
    assert "begin fresh: head." in text
    assert "model.d_model=16" in text


def test_a_damaged_checkpoint_that_is_passed_over_is_told(before, tmp_path):
    """Else other weights than the best would be begun with, without a word."""
    run = tmp_path / "mlm"
    shutil.copytree(before, run)
    [good] = (run / "checkpoints").iterdir()
    damaged = step_folder(run, 9)
    shutil.copytree(good, damaged)
    (damaged / "model.safetensors").write_bytes(b"")
    notes = begin(override(classifier(before), {"training.start_from": str(run)})).notes
    assert [note for note in notes if note.startswith("skipped: ") and str(damaged) in note]
    assert f"starts from {good}" in notes
    assert not [note for note in begin(classifier(before)).notes if note.startswith("skipped: ")]


def test_its_settings_are_those_of_the_run_before_but_for_its_own(before):
    recipe = classifier(before)
    resolved, theirs = begin(recipe).data.recipe, load_recipe(before / "recipe.toml")
    assert resolved.tokenizer == theirs.tokenizer
    for name in type(theirs.model).__dataclass_fields__:
        whose = recipe if name in OWN else theirs
        assert getattr(resolved.model, name) == getattr(whose.model, name), name


def test_settings_that_its_layout_does_not_use_are_not_taken(before, tmp_path):
    text = {"data.text": str(before.parent / "text.txt"), "data.window": 16, "tokenizer.kind": "character"}
    sizes = {"training.batch_tokens": 64, "model.decoder_layers": 2}
    run = trained(override(load_recipe("denoise"), TINY | text | sizes), tmp_path / "spans")
    begun = begin(override(classifier(before), {"training.start_from": str(run)}))
    assert begun.data.recipe.model.decoder_layers is None
    assert "weights left behind: decoder." in "\n".join(begun.notes)


def test_a_run_that_started_from_another_resumes_without_it(before, tmp_path):
    run = tmp_path / "run"
    follow(start(classifier(before), run), stop_after=1)
    assert f'start_from = "{before}"' in (run / "recipe.toml").read_text("utf-8")
    away = before.rename(before.parent / "away")
    try:
        follow(resume(run))
    finally:
        away.rename(before)
    whole = trained(classifier(before), tmp_path / "whole")
    assert_same(weights(load(run).model), weights(load(whole).model))


def test_other_labels_begin_with_a_fresh_head(before, tmp_path):
    run = trained(classifier(before), tmp_path / "run")
    files = {f"data.{name}": str(before.parent / f"{name}.tsv") for name in ("train", "dev")}
    same = begin(classifier(run, **files)).model.state_dict()
    assert torch.equal(same["head.weight"], load(run).model.state_dict()["head.weight"])
    other = tmp_path / "other.tsv"
    other.write_text(LABELS.replace("good", "fine"), "utf-8")
    model, notes = begin(classifier(run, **{"data.train": str(other), "data.dev": str(other)}))[1:3]
    assert not torch.equal(model.state_dict()["head.weight"], load(run).model.state_dict()["head.weight"])
    assert "begin fresh: head." in "\n".join(notes)


def test_a_run_of_other_stacks_is_refused(before):
    decoder = override(
        load_recipe("lm"),
        {"data.text": str(before.parent / "text.txt"), "data.window": 16, "training.batch_tokens": 64},
    )
    with pytest.raises(ConfigError, match=r"names and shapes, but .* has none that fit: .*encoder for an enc"):
        begin(override(decoder, {"training.start_from": str(before)}))


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"must be a run folder with a recipe\.toml; .* has none"):
        begin(override(load_recipe("reverse"), {"training.start_from": str(tmp_path)}))
    with pytest.raises(ConfigError, match="got ''"):
        override(load_recipe("reverse"), {"training.start_from": ""})


def test_running_text_does_not_start_with_two_vocabularies(before, tmp_path):
    files = {f"data.{name}": str(before.parent / f"{name}.tsv") for name in ("train", "dev")}
    two = trained(override(load_recipe("seq2seq"), TINY | files | {"tokenizer.shared": False}), tmp_path / "two")
    options = {"data.text": str(before.parent / "text.txt"), "data.window": 16, "training.start_from": str(two)}
    with pytest.raises(ConfigError, match=r"one vocabulary, but .*two, which .* has one for each side"):
        begin(override(load_recipe("denoise"), TINY | options))
