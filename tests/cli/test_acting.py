"""What the verbs do with a run on trajectories: they work, or refuse it in one message that names another command."""

import io
import sys
from pathlib import Path

import pytest

from glassformer.cli.main import main
from glassformer.proof.doctor import probes_for
from glassformer.proof.doctor.case import case_of
from glassformer.proof.doctor.finding import FAILURE, OK, WARNING, examine
from glassformer.study.result import Arm, refuse_impossible_models, score
from glassformer.train.recipe import load_recipe, override, read_recipe
from glassformer.train.run.session import start
from glassformer.train.tasks import task_of
from train.examples import follow
from train.trajectory_examples import acting, log

TINY: dict[str, object] = {
    "model.d_model": 8, "model.n_heads": 2, "model.n_layers": 2, "model.d_ff": 8, "model.dropout": 0.0,
    "data.window": 3, "data.train_size": 20, "data.dev_size": 4, "data.test_size": 4, "training.batch_tokens": 36,
    "training.steps": 2, "training.warmup": 1, "training.threads": 1,
}  # fmt: skip

ACTING = task_of(load_recipe("decision").data)


def written(path: Path, episodes: int = 20, action: str = "") -> Path:
    lines = [
        f"{each},{t},{each * 0.1 + t},{(each + t) % 2}{action},1.0"
        for each in range(episodes)
        for t in range(2 + each % 3)
    ]
    path.write_text("\n".join(["episode,t,obs0,action,reward", *lines]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def actor(tmp_path_factory):
    """A run on episodes of the rooms."""
    run = tmp_path_factory.mktemp("acting") / "rooms"
    follow(start(override(load_recipe("decision"), TINY), run))
    return run


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    """A run on a file of episodes, the last fifth of them held out."""
    place = tmp_path_factory.mktemp("read")
    data = {"data.train": str(written(place / "episodes.csv")), "data.dev_share": 0.2, "data.environment": "Some-v1"}
    follow(start(override(load_recipe("decision"), TINY | data), place / "run"))
    return place / "run"


def errors_of(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a command that refuses."""
    assert main([str(each) for each in words]) == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("words", "cannot"), [
    (("translate",), "answers no lines"),
    (("generate", "--prompt", "a"), "writes no text from left to right"),
    (("serve", "--port", "0"), "writes no text from left to right"),
    (("classify",), "gives no labels"),
    (("heads",), "reads no tokens"),
    (("heads", "--checkpoints"), "reads no tokens"),
    (("heads", "--prune", "d.0.0"), "reads no tokens"),
    (("heads", "--attribute", "a"), "reads no tokens"),
    (("explore", "--export", "page.html"), "reads no tokens"),
])  # fmt: skip
def test_a_verb_for_texts_names_the_verb_for_acting(actor, tmp_path, capsys, monkeypatch, words, cannot):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\n")))
    verb, *rest = words
    output = errors_of(capsys, verb, actor, *rest)
    assert output == f"glassformer: {actor} acts in an environment and {cannot}. Use glassformer rollout {actor}."
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flags", "message"), [
    (("--by-length",), "acts in an environment. Remove --by-length"),
    (("--decode.beam", "3"), "acts in an environment, so --decode.beam would have no effect"),
    (("--data.discount", "0.5"), "--data.discount 1.0; got 0.5"),
    (("--data.text", "x"), "--data.text belongs to --data.task text"),
])  # fmt: skip
def test_evaluate_refuses_what_would_change_nothing_or_the_task(actor, capsys, flags, message):
    assert message in errors_of(capsys, "evaluate", actor, *flags)


def test_actors_are_no_ensemble(actor, reader, capsys):
    assert "Score each run by itself." in errors_of(capsys, "evaluate", actor, reader)


def test_the_dev_split_must_be_what_was_held_out(reader, tmp_path, capsys):
    output = errors_of(capsys, "evaluate", reader, "--split", "dev", "--data.dev-share", "0.5")
    assert "--data.dev-share is 0.5 and was 0.2" in output
    assert f"glassformer evaluate {reader} --data.test FILE" in output
    assert main(["evaluate", str(reader), "--split", "dev", "--json"]) == 0
    other = written(tmp_path / "other.csv")
    assert main(["evaluate", str(reader), "--split", "dev", "--data.dev", str(other), "--json"]) == 0


def test_a_changed_file_is_no_dev_split(tmp_path, capsys):
    file = written(tmp_path / "episodes.csv")
    recipe = override(load_recipe("decision"), TINY | {"data.train": str(file), "data.environment": "Some-v1"})
    follow(start(recipe, tmp_path / "run"))
    written(file, 30)
    assert f"the contents of {file} have changed" in errors_of(capsys, "evaluate", tmp_path / "run", "--split", "dev")
    probes = [each for each in probes_for(ACTING) if each.name == "data"]
    (found,) = examine(case_of(tmp_path / "run", recipe), probes)
    assert found.state == FAILURE
    assert "train and dev has changed" in found.evidence


def test_the_doctor_finds_an_actor_well(actor):
    probes = [each for each in probes_for(ACTING) if each.name != "overfit"]  # which takes long
    found = list(examine(case_of(actor, read_recipe(actor / "recipe.toml")), probes))
    assert {each.probe for each in found} >= {"data", "causality", "padding", "alike-heads", "gradient"}
    assert {each.state for each in found} <= {OK, WARNING}


def test_the_doctor_calls_a_squared_error_so(tmp_path):
    run = tmp_path / "run"
    follow(start(acting(log(tmp_path, discrete=False)), run))
    probes = [each for each in probes_for(ACTING) if each.name == "overfit"]
    (found,) = examine(case_of(run, read_recipe(run / "recipe.toml")), probes)
    assert " squared error after " in found.evidence
    assert "nats" not in found.evidence


@pytest.mark.parametrize("recipe", ["lm", "classify"])
def test_a_model_of_texts_cannot_start_from_an_actor(actor, tmp_path, capsys, recipe):
    files = written(tmp_path / "any.tsv")
    data = ("--data.text", files) if recipe == "lm" else ("--data.train", files, "--data.dev", files)
    output = errors_of(capsys, "train", recipe, "--training.start-from", actor, "--out", tmp_path / "new", *data)
    assert f"{actor} acts in an environment and has no vocabulary" in output
    assert not (tmp_path / "new" / "checkpoints").exists()


@pytest.mark.parametrize(("flags", "message"), [
    (("--tokenizer.kind", "byte"), "Episodes are numbers and have no tokens; got --tokenizer.kind byte"),
    (("--data.dev-share", "0.3"), "--data.dev-share holds out the end of --data.train"),
    (("--break", "shifted-labels"), "nothing is shifted"),
    (("--break", "no-embedding-scale"), "it reads numbers, which are not embedded"),
    (("--break", "cache-off-by-one"), "there is no cache"),
])  # fmt: skip
def test_train_refuses_what_would_change_nothing(tmp_path, capsys, flags, message):
    assert message in errors_of(capsys, "train", "decision", "--out", tmp_path / "new", *flags)
    assert not (tmp_path / "new").exists()


def test_label_smoothing_is_for_numbered_actions(tmp_path, capsys):
    file = written(tmp_path / "vectors.csv", action=".5")
    flags = ("--data.train", file, "--training.label-smoothing", "0.1", "--out", tmp_path / "new")
    assert "--training.label-smoothing is for numbered actions" in errors_of(capsys, "train", "decision", *flags)


def test_a_study_scores_an_actor_on_what_was_held_out(reader, tmp_path):
    refuse_impossible_models([Arm({}, 1, read_recipe(reader / "recipe.toml"))])
    found = score(reader, {}, {"data.test": str(written(tmp_path / "other.csv", 5))})
    assert (found.split, found.test["n"]) == ("dev", 12)  # the last four episodes
    assert found.other["n"] == 14


def test_the_next_command_can_be_typed(actor, reader):
    of_rooms, of_file = (read_recipe(run / "recipe.toml").data for run in (actor, reader))
    assert task_of(of_rooms).next_command(actor) == f"Let it act: glassformer rollout {actor}"
    nowhere = override(read_recipe(reader / "recipe.toml"), {"data.environment": None}).data
    assert of_file.environment == "Some-v1"
    assert task_of(nowhere).next_command(reader).endswith(f"glassformer evaluate {reader} --split dev")
