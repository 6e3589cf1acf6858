"""The lines that a run keeps: cut short by a kill, damaged, or in the way of a folder."""

import errno
import io
import os
from pathlib import Path

import pytest

from glassformer.base.errors import CheckpointError
from glassformer.train.records import Lines, Progress, drop_beyond
from train.shown import events, follow, report


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_line_cut_short_by_a_kill_is_dropped(tmp_path, cut):
    path = tmp_path / "metrics.jsonl"
    whole = '{"step": 1, "loss": 1.5}\n{"step": 2, "loss": 1.25}\n'
    path.write_text(whole[:-cut])
    drop_beyond(path, 2)
    assert path.read_text() == "".join(whole[:-cut].rpartition("\n")[:2])


@pytest.mark.parametrize(
    "line", ["\x00\x00\x00\n", "[]\n", '{"loss": 1}\n', "3\n", '{"step": "x"}\n', "\udcff\n", "\n"]
)
@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_damaged_line_is_named_and_nothing_is_dropped(tmp_path, line, name):
    path = tmp_path / name
    content = f'{{"step": 1}}\n{line}{{"step": 2}}\n'.encode("utf-8", "surrogateescape")
    path.write_bytes(content)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(CheckpointError, match=rf"{name}:2: .* must be a JSON object with a step; .*move the file away"):
        report(tmp_path, io.StringIO(), *events(3, 4))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "junk",
    ["\x00" * 50 + '{"step": 3}\n', "\x00\n", '"step": 3}\n{"step": 3}\n'],
    ids=["nuls before a line", "nuls", "half a line"],
)
@pytest.mark.parametrize(
    ("before", "step"), [('{"step": 1}\n{"step": 2}\n', 2), ('{"step": 1}\n{"step": 2}\n', 1), ("", 0)]
)
def test_what_a_power_cut_left_beyond_the_checkpoint_is_dropped(tmp_path, junk, before, step):
    """With the good lines behind it: those of steps that are going to be trained again."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(before + junk + '{"step": 4}\n')
    drop_beyond(path, step)
    assert path.read_text() == before[: step * len('{"step": 1}\n')]


def test_damage_that_may_have_been_of_kept_steps_is_refused(tmp_path):
    """The file ends before the step of the checkpoint, or goes back behind the damage."""
    path = tmp_path / "metrics.jsonl"
    for content in ('{"step": 1}\n\x00\n', '{"step": 2}\n\x00\n{"step": 2, "kind": "dev"}\n'):
        path.write_text(content)
        with pytest.raises(CheckpointError, match=r"jsonl:2: each line must be"):
            drop_beyond(path, 2)
        assert path.read_text() == content


@pytest.mark.parametrize(
    ("name", "kind"),
    [("metrics.jsonl", "file"), ("timing.jsonl", "file"), ("log.txt", "file"), ("samples", "folder")],
)
def test_what_stands_in_the_way_is_named(tmp_path, name, kind):
    (tmp_path / name).mkdir() if kind == "file" else (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=rf"{name} must be a {kind}, .* Move it away"):
        report(tmp_path, io.StringIO(), *events(1, 2))


@pytest.fixture
def room(monkeypatch) -> list[int]:
    """How many bytes the disk still takes, where that is limited; tests change it."""
    left: list[int] = []
    write = io.FileIO.write

    class Limited(io.FileIO):
        def write(self, data: bytes) -> int:
            if not left:
                return write(self, data)
            if not left[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done = write(self, data[: left[0]])
            left[0] -= done
            return done

    opened = Path.open

    def limited(path: Path, *mode, **settings):
        return Limited(path, "a") if mode == ("ab",) else opened(path, *mode, **settings)

    monkeypatch.setattr(Path, "open", limited)
    return left


def test_figures_wait_for_room(tmp_path, room):
    """In memory, half a line and all; then they are what they would have been, and it was said once."""
    for name in ("whole", "run"):
        (tmp_path / name).mkdir()
    report(tmp_path / "whole", io.StringIO(), *events(1, 9))
    stream = io.StringIO()

    def parts():
        for event in events(1, 9):
            if isinstance(event, Progress) and event.step in (3, 7):
                room[:] = [30] if event.step == 3 else []
            yield event

    follow(tmp_path / "run", parts(), stream)
    for name in ("metrics.jsonl", "timing.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert stream.getvalue().count("cannot be written now: metrics.jsonl (the disk is full)") == 1


def test_figures_that_never_find_room_are_told_of(tmp_path, room):
    lines = Lines(tmp_path / "metrics.jsonl")
    room[:] = [0]
    lines.write(b"one\n")
    assert (lines.kept, (tmp_path / "metrics.jsonl").read_bytes()) == (b"one\n", b"")
    room.clear()
    lines.write(b"two\n")
    lines.file.close()
    assert (lines.kept, (tmp_path / "metrics.jsonl").read_bytes()) == (b"", b"one\ntwo\n")


def test_file_that_was_deleted_begins_anew(tmp_path):
    lines = Lines(tmp_path / "metrics.jsonl")
    lines.write(b"one\n")
    (tmp_path / "metrics.jsonl").unlink()
    lines.write(b"two\n")
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"two\n"
    lines.file.close()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_what_cannot_be_written_ends_nothing(tmp_path, monkeypatch, code):
    """A folder that is read-only for a while, with samples: told once, and all is there in the end."""
    for name in ("whole", "run"):
        (tmp_path / name).mkdir()
    report(tmp_path / "whole", io.StringIO(), *events(1, 25))
    stream, refuse = io.StringIO(), []

    class Refusing(io.FileIO):
        def write(self, data: bytes) -> int:
            if refuse:
                raise OSError(code, os.strerror(code))
            return super().write(data)

    opened, renamed = Path.open, Path.replace

    def replace(path: Path, target: Path) -> Path:
        if refuse:
            raise OSError(code, os.strerror(code))
        return renamed(path, target)

    monkeypatch.setattr(
        Path,
        "open",
        lambda path, *mode, **more: Refusing(path, "a") if mode == ("ab",) else opened(path, *mode, **more),
    )
    monkeypatch.setattr(Path, "replace", replace)

    def parts():
        for event in events(1, 25):
            if isinstance(event, Progress) and event.step in (8, 22):
                refuse[:] = [1] if event.step == 8 else []
            yield event

    follow(tmp_path / "run", parts(), stream)
    for name in ("metrics.jsonl", "timing.jsonl", "samples/step-000000010.txt", "samples/step-000000020.txt"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert stream.getvalue().count("cannot be written now") == 1
    assert os.strerror(code) in stream.getvalue()
