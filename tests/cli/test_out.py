"""Where a run may go: every `--out` that cannot be is refused before anything is read, and only runs are deleted."""

import os
from pathlib import Path

import pytest

from cli.test_runs import a_run, everything
from glassformer.base.errors import CheckpointError
from glassformer.cli.runs import IN_CHECKPOINT, check_room, foreign, not_a_run

VERBS = [("train", "reverse"), ("demo",)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda words: words[0])
@pytest.mark.parametrize(("out", "facts"), [
    ("", ["--out names the run folder to create; got ''", "runs/reverse"]),
    ("/", ["A run folder needs a name; got /, the root", "--out runs/reverse"]),
    ("//", ["got //, the root"]),
    (".", ["exists and is not a run folder. Choose another with --out "]),
    ("..", ["exists and is not a run folder. Choose another with --out "]),
    ("a/..", ["exists and is not a run folder. Choose another with --out "]),
    ("afile", ["afile exists and is a file. Choose another with --out afile-2"]),
    ("afile/x", ["afile/x cannot be created: afile is not a folder", "--out"]),
    ("afile/x/y", ["afile/x/y cannot be created: afile is not a folder"]),
    ("/dev/null", ["/dev/null exists and is not a folder"]),
    ("/dev/null/x", ["/dev/null/x cannot be created: /dev/null is not a folder"]),
    ("n" * 300, ["A name may have at most 255 bytes here; 'nnn", "would need one of 3", "a shorter --out"]),
    ("n" * 250, ["A name may have at most 255 bytes here", "would need one of 2"]),  # .old-NAME-PID
    ("ü" * 130, ["A name may have at most 255 bytes here"]),
    ("x/" + "n" * 300 + "/y", ["A name may have at most 255 bytes here", "would need one of 300"]),
    ("x/m\udcff", ["must be valid UTF-8; got '", "x/m\\udcff'", "Choose another name"]),
    ("x/" * 2020 + "y", ["A path may have at most 4096 bytes here"]),
], ids=lambda value: str(value)[:12] if isinstance(value, str) else "")  # fmt: skip
def test_out_that_cannot_be(refused, session, tmp_path, verb, out, facts):
    (tmp_path / "afile").write_text("mine")
    (tmp_path / "a").mkdir()
    before = everything(tmp_path)
    for words in ([*verb, "--out", out], [*verb, f"--out={out}"]):
        message = refused(*words)
        assert all(fact in message for fact in facts), message
    if verb[0] == "train" and "exists" in facts[0]:
        message = refused(*verb, "--out", out, "--overwrite")
        assert "--overwrite deletes run folders only" in message
    assert session.calls == []
    assert everything(tmp_path) == before


@pytest.mark.parametrize("out", ["x", "x/y"])
def test_folder_that_may_not_be_written(refused, session, monkeypatch, out):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path())
    message = refused("train", "reverse", "--out", out)
    assert message == f"glassformer: {out} cannot be created: . is not writable. Choose another with --out.\n"
    assert session.calls == []


def test_the_usual_place_is_looked_at_too(refused, session):
    Path("runs").write_text("mine")
    assert "runs/reverse cannot be created: runs is not a folder" in refused("train", "reverse")
    assert session.calls == []


def test_an_empty_folder_that_one_is_in_may_be_used(run, session, tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path / "x")
    assert run("train", "reverse", "--out", ".").code == 0
    assert (tmp_path / "x" / "recipe.toml").exists()


@pytest.mark.parametrize("where", [".", "checkpoints"])
def test_the_folder_that_one_is_in_is_not_deleted(refused, session, tmp_path, monkeypatch, where):
    old = a_run(tmp_path / "old")
    monkeypatch.chdir(old / where)
    message = refused("train", "reverse", "--out", str(old), "--overwrite")
    assert "--overwrite would delete the folder that you are in" in message
    assert session.calls == []


@pytest.mark.parametrize("path", [
    *("notes.md", "samples/notes.md", "checkpoints/notes.md", "checkpoints/step-000000003/notes.md"),
    *("checkpoints/step-3/model.safetensors", "samples/deep/step-000000003.txt", ".tmp-thesis-17", ".git/config"),
    *("checkpoints/step-000000003/checkpoints/x", "checkpoints/.old-mine-17/thesis.tex"),
])  # fmt: skip
def test_a_file_of_the_user_at_any_depth_makes_it_no_run(refused, session, path):
    run = a_run(Path("runs/reverse"))
    (run / path).parent.mkdir(parents=True, exist_ok=True)
    (run / path).write_text("mine")
    before = everything(run)
    message = refused("train", "reverse", "--overwrite")
    assert "--overwrite deletes run folders only; runs/reverse also holds" in message
    assert "which no run writes. Delete it by hand, or choose another with --out." in message
    assert (session.calls, everything(run)) == ([], before)


def test_a_folder_in_which_a_user_keeps_a_recipe_is_no_run(refused, session):
    """It may be the very recipe that is to be trained."""
    Path("mine").mkdir()
    Path("mine/recipe.toml").write_text("[data]\ntask = 'copy'\n")
    assert "mine has no run.lock" in refused("train", "mine/recipe.toml", "--out", "mine", "--overwrite")
    assert Path("mine/recipe.toml").read_text() == "[data]\ntask = 'copy'\n"
    assert session.calls == []


def test_all_that_a_run_writes_is_known():
    run = a_run(Path("runs/old"))
    (run / "samples" / "step-000000003.txt").touch()
    for name in IN_CHECKPOINT:
        (run / "checkpoints" / "step-000000003" / name).touch()
    for name in (".tmp-recipe.toml-17", "checkpoints/.tmp-step-000000004-17", "checkpoints/.old-step-000000003-9"):
        (run / name).mkdir() if "step" in name else (run / name).touch()
    (run / "checkpoints/.tmp-step-000000004-17/anything.safetensors").touch()
    assert (foreign(run), not_a_run(run)) == ([], None)
    check_room(run, overwrite=True)
    (run / "recipe.toml").unlink()
    with pytest.raises(CheckpointError, match=r"has no recipe\.toml"):
        check_room(run, overwrite=True)
