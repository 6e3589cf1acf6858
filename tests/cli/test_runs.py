"""Run folders: found, refused, replaced; and never anything deleted that is not one."""

import os
import shutil
from pathlib import Path

import pytest

from glassformer.base.errors import CheckpointError, DataError
from glassformer.cli.runs import CONTENT, check_room, existing_run, free_name, room_for
from glassformer.store.files import beside
from glassformer.store.folders import RunLock, refuse_in_training


def a_run(path: Path) -> Path:
    (path / "checkpoints" / "step-000000003").mkdir(parents=True)
    (path / "samples").mkdir()
    (path / "run.lock").touch()
    (path / "recipe.toml").write_text('name = "old"\n')
    (path / "metrics.jsonl").write_text('{"step": 3}\n')
    return path


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_run_whose_path_is_no_text(tmp_path):
    run = a_run(tmp_path / "x").rename(tmp_path / "n\udcff")
    with pytest.raises(CheckpointError, match=r"must be valid UTF-8; got '.*n\\udcff'.*rename the folder: mv"):
        existing_run(str(run))


@pytest.mark.parametrize(("name", "message"), [
    ("fil", "fil is not a run folder: it does not exist"),
    ("file", "file is not a run folder: it is a file"),
    ("folder", "folder is not a run folder: it has no recipe.toml"),
    ("x/checkpoints/step-000000003", r"000003 is a checkpoint of the run .*/x\. Give the run: .*/x$"),
    ("bare", r"bare is a run folder without its recipe\.toml.*step-000000003/state\.json"),
])  # fmt: skip
def test_no_run(tmp_path, name, message):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    a_run(tmp_path / "x")
    (a_run(tmp_path / "bare") / "recipe.toml").unlink()
    with pytest.raises(CheckpointError, match=message):
        existing_run(str(tmp_path / name))


@pytest.mark.parametrize(
    ("verb", "message"), [("generate", "with --prompt or --file."), ("translate", "from standard input: < FILE.")]
)
def test_a_text_in_place_of_a_run(refused, verb, message):
    a_run(Path("runs/x"))
    assert refused(verb, "runs/x", "The class").endswith(f"{message}\n")
    assert message not in refused(verb, "The class")


def test_nearest_run_is_offered():
    a_run(Path("runs/reverse"))
    for typed in ("runs/revers", "reverse"):
        with pytest.raises(CheckpointError, match=r"Did you mean 'runs/reverse'\?"):
            existing_run(typed)


def test_free_name(tmp_path):
    wanted = tmp_path / "x"
    assert free_name(wanted) == wanted
    wanted.mkdir()
    assert free_name(wanted) == tmp_path / "x-2"
    (tmp_path / "x-2").touch()
    (tmp_path / "x-3").symlink_to("nowhere")
    assert free_name(wanted) == tmp_path / "x-4"


def test_existing_folder_is_refused_with_three_choices(refused, session):
    run = a_run(Path("runs/reverse"))
    before = everything(run)
    message = refused("train", "reverse")
    choices = ("glassformer resume runs/reverse", "--out runs/reverse-2", "--overwrite")
    assert all(choice in message for choice in choices), message
    assert (session.calls, everything(run)) == ([], before)


def test_choices_can_be_pasted(refused, session):
    a_run(Path("a run"))
    message = refused("train", "reverse", "--out", "a run")
    assert "glassformer resume 'a run'" in message
    assert "--out 'a run-2'" in message


@pytest.mark.parametrize("kind", ["file", "folder", "link", "broken link"])
def test_what_is_no_run_is_refused(refused, session, tmp_path, kind):
    out = tmp_path / "x"
    if kind == "file":
        out.write_text("mine")
    elif kind == "folder":
        out.mkdir()
        (out / "thesis.tex").write_text("mine")
    elif kind == "link":
        out.symlink_to(a_run(tmp_path / "target"))
    else:
        out.symlink_to("nowhere")
    before = everything(tmp_path)
    message = refused("train", "reverse", "--out", str(out))
    assert "--overwrite" not in message or kind == "link"
    message = refused("train", "reverse", "--out", str(out), "--overwrite")
    assert "--overwrite deletes run folders only" in message
    assert (session.calls, everything(tmp_path)) == ([], before)


def test_run_in_training_is_not_overwritten(refused, session):
    lock = RunLock(a_run(Path("runs/reverse")))
    lock.take()
    message = refused("train", "reverse", "--overwrite")
    assert "another process is training" in message
    with pytest.raises(CheckpointError, match="another process is training"):  # before torch is imported
        check_room(lock.run, True)
    assert session.calls == []
    lock.release()
    assert Path("runs/reverse/metrics.jsonl").exists()


def test_overwrite(run, session):
    old = a_run(Path("runs/reverse"))
    assert run("train", "reverse", "--overwrite").code == 0
    assert not (old / "checkpoints").exists()
    assert 'name = "reverse"' in (old / "recipe.toml").read_text()
    assert [path.name for path in Path("runs").iterdir()] == ["reverse"]


@pytest.mark.parametrize("failure", [DataError("line 3 is empty"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_overwrite_that_fails_gives_the_old_run_back(run, session, failure):
    old = a_run(Path("runs/reverse"))
    before = everything(Path("runs"))
    session.failure = failure
    if isinstance(failure, RuntimeError):
        with pytest.raises(RuntimeError):
            run("train", "reverse", "--overwrite")
    else:
        assert run("train", "reverse", "--overwrite").code in (2, 130)
    assert session.calls
    assert everything(Path("runs")) == before
    assert (old / "checkpoints").is_dir()


def test_run_that_is_replaced_is_locked(tmp_path):
    """From before it is put aside until the new one stands; one that a process trains in by then stays."""
    out = a_run(tmp_path / "x")
    with room_for(out):
        with pytest.raises(CheckpointError, match="another process is training"):
            refuse_in_training(beside(out, "old"))
        a_run(out)
    lock = RunLock(out)
    lock.take()
    before = everything(tmp_path)
    with pytest.raises(CheckpointError, match="another process is training"), room_for(out):
        pass
    assert everything(tmp_path) == before


DEAD = ".old-reverse-999999"


def test_overwrite_that_was_killed_gives_the_old_run_back(run, session):
    """To whoever asks for it, as --overwrite that fails does; and it is said."""
    for ask in (lambda: existing_run("runs/reverse"), lambda: run("train", "reverse").code == 2):
        before = everything(a_run(Path("runs/reverse")))
        Path("runs/reverse").rename(Path("runs", DEAD))
        assert ask()
        assert everything(Path("runs/reverse")) == before
        assert [path.name for path in Path("runs").iterdir()] == ["reverse"]
        shutil.rmtree("runs/reverse")
    assert session.calls == []


def test_what_was_put_back_is_told(capsys):
    a_run(Path("runs", DEAD))
    existing_run("runs/reverse")
    assert "the old run is restored" in capsys.readouterr().err


def test_run_that_is_being_replaced_is_nobodys(refused, session):
    a_run(Path(f"runs/.old-reverse-{os.getppid()}"))
    before = everything(Path())
    for words in (("resume", "runs/reverse"), ("train", "reverse"), ("train", "reverse", "--overwrite")):
        assert f"process {os.getppid()} was started with --overwrite" in refused(*words)
    assert everything(Path()) == before


def test_beginning_in_the_place_of_an_old_run_is_in_the_way(refused, session):
    a_run(Path("runs", DEAD))
    Path("runs/reverse").mkdir()
    Path("runs/reverse/run.lock").touch()
    before = everything(Path())
    assert "Delete runs/reverse" in refused("train", "reverse")
    assert everything(Path()) == before


def test_what_an_overwrite_left_goes_with_the_next(run, session):
    """Both that of one killed before it deleted the old run, and of one killed as it did."""
    a_run(Path("runs/reverse"))
    a_run(Path("runs", DEAD))
    Path("runs/.tmp-reverse-999998").mkdir()
    assert run("train", "reverse", "--overwrite").code == 0
    assert [path.name for path in Path("runs").iterdir()] == ["reverse"]


def test_leftovers_of_a_beginning_that_was_killed_are_in_nobodys_way(refused, session, tmp_path):
    out = tmp_path / "x"
    out.mkdir()
    (out / "run.lock").touch()
    (out / ".tmp-recipe.toml-999999").write_text("half")
    check_room(out, overwrite=False)
    (out / ".tmp-thesis.tex-999999").write_text("mine")
    assert "is not a run folder" in refused("train", "reverse", "--out", str(out))


def test_empty_folder_may_be_used(run, session, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("x")
    assert run("train", "reverse", "--out", "link").code == 0
    assert (tmp_path / "x" / "recipe.toml").exists()


def test_a_run_writes_nothing_that_overwrite_does_not_know(run, session):
    assert run("train", "reverse").code == 0
    assert {path.name for path in Path("runs/reverse").iterdir()} <= CONTENT
