"""Saving, with everything going wrong at every moment: a complete checkpoint is always left, and it is found."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store import files as staging
from glassformer.store.checkpoint import load
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import MODEL, checkpoints, newest, read_state, rotate, step_folder
from store import disk_full, examples
from store.faults import CRASHES, Crash, Trap, trapped


class Scene(NamedTuple):
    """What is done to a run that has the checkpoints 5 and 10, and what newest may be at any moment of it."""

    act: Callable[[Path], object]
    newest: tuple[dict[str, object], ...]
    swaps: bool = True


OLD = {"step": 10, "text": "old"}
SCENES = {
    "the next step": Scene(lambda run: examples.save_step(run, 15), (OLD, {"step": 15})),
    "the same step": Scene(lambda run: examples.save_step(run, 10, text="new"), (OLD, {"step": 10, "text": "new"})),
    "the same step by two renames": Scene(
        lambda run: examples.save_step(run, 10, text="new"), (OLD, {"step": 10, "text": "new"}), swaps=False
    ),
    "rotation": Scene(lambda run: rotate(run, 1), (OLD,)),
    "the recipe": Scene(lambda run: write_text_atomically(run / "recipe.toml", "new"), (OLD,)),
}


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    """A run to copy; made once, which also warms everything up that is imported when it is first used."""
    run = tmp_path_factory.mktemp("start") / "run"
    examples.save_step(run, 5)
    examples.save_step(run, 10, text="old")
    write_text_atomically(run / "recipe.toml", "old")
    load(run)
    return run


class Stage:
    """Plays a scene again and again, each time on a fresh copy of the run."""

    def __init__(self, start: Path, folder: Path, scene: Scene) -> None:
        self.start, self.folder, self.scene, self.played = start, folder, scene, 0
        self.good = {self.content(start / "checkpoints" / name) for name in ("step-000000005", "step-000000010")}
        run, _ = self.play()
        done = newest(run).folder
        examples.assert_is_step(done, **read_state(done))  # the new content is right, so equal bytes are right
        self.good.add(self.content(done))

    def play(self, trap: Trap | None = None) -> tuple[Path, Trap]:
        self.played += 1
        run = shutil.copytree(self.start, self.folder / str(self.played))
        with trapped(trap and trap.at, trap.how if trap else "", trap and trap.error) as played:
            self.scene.act(run)
        return run, played

    def content(self, folder: Path) -> frozenset[tuple[str, bytes]]:
        return frozenset(examples.contents(folder).items())

    def check(self, run: Path) -> None:
        """A complete checkpoint is found, of the old content or the new; the others are untouched."""
        found = newest(run)
        assert read_state(found.folder) in self.scene.newest
        for folder in checkpoints(run).values():
            assert self.content(folder) in self.good, folder
        assert (run / "recipe.toml").read_text() in ("old", "new")

    def go_on(self, run: Path) -> None:
        """The next save works and leaves nothing of the dead behind."""
        before = read_state(newest(run).folder or run)
        examples.tiny_step(run, 20)
        write_text_atomically(run / "recipe.toml", "next")
        assert newest(run).folder == step_folder(run, 20)
        assert all(re.fullmatch(r"step-\d{9}", name) for name in examples.names(run / "checkpoints"))
        assert examples.names(run) == ["checkpoints", "recipe.toml"]
        assert read_state(step_folder(run, before["step"])) == before


FEW = ("the next step", "rotation")
"""The scenes of a push; `make test-all` plays all."""


@pytest.fixture(params=[pytest.param(each, marks=[pytest.mark.slow] * (each not in FEW)) for each in SCENES])
def stage(request, start, tmp_path, monkeypatch) -> Stage:
    scene = SCENES[request.param]
    if not scene.swaps:
        monkeypatch.setattr(staging, "exchange", lambda *_: False)
    return Stage(start, tmp_path, scene)


@pytest.mark.parametrize("how", CRASHES)
def test_crash_at_every_call(stage, how):
    """Process killed, or power lost, before, after or in the middle of each call that touches the disk."""
    total = len(stage.play()[1].log)
    assert total >= 5
    for at in range(total):
        with pytest.raises(Crash):
            stage.play(Trap(at, how))
        run = stage.folder / str(stage.played)
        stage.check(run)
        stage.go_on(run)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_error_at_every_call(stage, number):
    """The system refuses one call and lets the clean-up pass: an error of ours or success, and nothing lies around."""
    total = len(stage.play()[1].log)
    refused: list[Exception] = []
    for at in range(total):
        try:
            stage.play(Trap(at, error=OSError(number, os.strerror(number))))
        except (ResourceError, CheckpointError) as error:
            refused.append(error)
        run = stage.folder / str(stage.played)
        stage.check(run)
        stage.go_on(run)
    assert len(refused) >= total // 2 or stage.scene is SCENES["rotation"]
    for error in refused:  # the manifest reads the files again; what fails then is no lack of room
        full = isinstance(error, ResourceError)
        assert full == (number == errno.ENOSPC) or "cannot be read" in str(error)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of open files come from /proc")
def test_order_for_the_power_to_fail(stage):
    """Each file is on the disk before its folder gets its name, and the name before anything old is deleted."""
    log = stage.play()[1].log
    switches = [i for i, (name, _) in enumerate(log) if name in ("rename", "replace", "exchange")]
    deleted = [i for i, (name, _) in enumerate(log) if name in ("unlink", "rmdir")]
    if stage.scene is SCENES["rotation"]:
        assert deleted[0] > switches[0]
        return
    staged = Path(log[switches[-1]][1].split()[0])
    changed = {path: i for i, (name, path) in enumerate(log) if name in ("create", "save_file", "chmod", "mkdir")}
    assert set(changed) == {path for name, path in log if name == "fsync"} - {str(staged.parent)}
    last = {path: max(i for i, event in enumerate(log) if event == ("fsync", path)) for path in changed}
    assert all(changed[path] < last[path] < switches[0] for path in changed)
    assert all(last[path] <= last[str(staged)] for path in changed if staged.is_dir() or len(changed) > 1)
    parent = max(i for i, event in enumerate(log) if event == ("fsync", str(staged.parent)))
    assert parent > switches[-1]
    assert all(i > parent for i in deleted)


@pytest.mark.parametrize("changes", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_bit_rot(start, tmp_path, changes):
    """Random changes to the newest checkpoint: each is seen, named, and the one before is used."""
    run, chance = shutil.copytree(start, tmp_path / "run"), random.Random(5)
    folder = step_folder(run, 10)
    whole = examples.contents(folder)
    for _ in range(changes):
        name = chance.choice(sorted(whole))
        data, at = whole[name], chance.randrange(len(whole[name]))
        flipped = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        (folder / name).write_bytes(chance.choice([flipped, flipped, data[:at], data + data[at:] + b"\0"]))
        found = newest(run)
        assert found.folder == step_folder(run, 5)
        assert [skipped.folder for skipped in found.skipped] == [folder]
        assert str(folder) in found.skipped[0].reason
        (folder / name).write_bytes(whole[name])
    assert newest(run) == (folder, ())


# --- kill -9, at moments of the machine's choosing

CHILD = """
import sys
from pathlib import Path
from glassformer.store.files import write_new
from glassformer.store.folders import REQUIRED, rotate, step_folder
from glassformer.store.folders import write_manifest
from glassformer.store.files import staged_folder
run, first = Path(sys.argv[1]), int(sys.argv[2])
for step in range(first, first + 100_000):
    with staged_folder(step_folder(run, step), 0) as folder:
        for name in REQUIRED:
            write_new(folder / name, f"{name} {step} ".encode() * 1000)
        write_manifest(folder)
    print(step, flush=True)
    rotate(run, 2)
"""


def kill(run: Path, chance: random.Random) -> None:
    """Let a child save step after step, kill it somewhere, and look."""
    first = int((newest(run).folder or step_folder(run, 0)).name.removeprefix("step-")) + 1
    command = [sys.executable, "-c", CHILD, str(run), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        steps = [int(child.stdout.readline()) for _ in range(chance.randrange(2, 6))]
        for _ in range(chance.randrange(30_000)):
            pass
        child.kill()
        steps += [int(line) for line in child.stdout]
    assert child.returncode == -signal.SIGKILL
    found = newest(run)
    step = int(found.folder.name.removeprefix("step-"))
    assert step in (steps[-1], steps[-1] + 1), "what it said was saved is saved"
    assert (found.folder / MODEL).read_bytes() == f"{MODEL} {step} ".encode() * 1000
    assert found.skipped == ()


def test_kill(tmp_path):
    chance = random.Random(3)
    for _ in range(8):
        kill(tmp_path, chance)


@pytest.mark.slow
def test_kill_200_times(tmp_path):
    chance = random.Random(4)
    for _ in range(200):
        kill(tmp_path, chance)


# --- no room


def no_room(folder: Path, kind: str, levels: int, *prefix: str) -> list[dict[str, object]]:
    """What `disk_full.py` says in a process of its own."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*prefix, sys.executable, disk_full.__file__, str(folder), kind, str(levels)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    if answer.returncode and "unshare" in answer.stderr + answer.stdout:
        pytest.skip(f"this system allows no file system of its own: {answer.stderr}")
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def check_no_room(tries: list[dict[str, object]]) -> None:
    assert {message["saved"] for message in tries} == {True, False}
    for message in tries:
        assert message["intact"]
        assert message["newest"] == "step-000000001"
        assert message["left"] == ["step-000000001"]
        if not message["saved"]:
            assert message["exit_code"] == 5
            found = re.search(r"Needed: ([\d,]+) bytes; free: ([\d,]+) bytes", str(message["message"]))
            assert found, message["message"]
            assert int(found[1].replace(",", "")) == pytest.approx(message["needed"], rel=0.1)


@pytest.mark.parametrize("levels", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_file_size_limit(tmp_path, levels):
    check_no_room(no_room(tmp_path, "limit", levels))


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, of util-linux")
@pytest.mark.parametrize("levels", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_full_disk_and_read_only_disk(tmp_path, levels):
    mount = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'
    *tries, last = no_room(tmp_path, "tmpfs", levels, "unshare", "-rm", "sh", "-c", mount, str(tmp_path))
    check_no_room(tries)
    assert "Read-only file system" in str(last["read_only"])
    assert last["left"] == ["step-000000001"]
