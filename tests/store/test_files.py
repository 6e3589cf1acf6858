"""Files and folders that are whole or not there, and what dead processes leave behind."""

import contextlib
import errno
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store import files, weights
from glassformer.store import files as json_file
from glassformer.store.files import (
    DEEPEST,
    alive,
    deeper_than,
    displaced,
    read_json,
    remove_leftovers,
    staged_folder,
    write_bytes,
    write_text_atomically,
)
from glassformer.store.folders import checkpoints, step_folder
from glassformer.store.weights import read_tensors, write_tensors
from store.examples import contents, names, same_bits, tiny_step


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


# --- single files


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_text_comes_back(tmp_path, text):
    """Every character, and line ends as they are."""
    write_text_atomically(tmp_path / "recipe.toml", text)
    assert (tmp_path / "recipe.toml").read_bytes() == text.encode()
    assert names(tmp_path) == ["recipe.toml"]


def test_bytes_replace_and_folders_are_made(tmp_path, monkeypatch):
    path = tmp_path / "a" / "b" / "x"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert contents(tmp_path) == {"a/b/x": b"two"}
    monkeypatch.chdir(tmp_path)
    write_bytes(files.Path("y"), b"three")
    write_bytes(files.Path("a/../z"), b"four")
    assert contents(tmp_path) == {"a/b/x": b"two", "y": b"three", "z": b"four"}


def test_threads_leave_each_other_alone(tmp_path, monkeypatch):
    """While one file is on its way, another of the family is written, and the same one is refused."""
    replace = files.Path.replace

    def meanwhile(self: files.Path, target: files.Path) -> files.Path:
        monkeypatch.undo()
        write_bytes(tmp_path / "sample-2", b"2")
        with pytest.raises(CheckpointError, match="another is writing"):
            write_bytes(tmp_path / "sample-1", b"other")
        return replace(self, target)

    monkeypatch.setattr(files.Path, "replace", meanwhile)
    write_bytes(tmp_path / "sample-1", b"1")
    assert contents(tmp_path) == {"sample-1": b"1", "sample-2": b"2"}


def test_path_through_a_link(tmp_path):
    """`link/..` is the folder above what the link points to, as the system has it."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    write_bytes(tmp_path / "link" / ".." / "x", b"1")
    fill(tmp_path / "link" / "folder", y="2")
    assert contents(tmp_path) == {"a/x": b"1", "a/b/folder/y": b"2"}


def test_new_inode_each_time(tmp_path):
    """Who has the old file open or mapped keeps the old content."""
    path = tmp_path / "x"
    write_bytes(path, b"old")
    with path.open("rb") as file:
        write_bytes(path, b"new")
        assert file.read() == b"old"


@pytest.mark.parametrize(("number", "kind", "message"), [
    (errno.ENOSPC, ResourceError, r"the disk is full .*Needed: 3 bytes; free: [\d,]+ bytes.*Free some space"),
    (errno.EDQUOT, ResourceError, "quota is used up"),
    (errno.EFBIG, ResourceError, r"the limit on the size of a file is reached.*Raise the limit.*ulimit -f"),
    (errno.EROFS, CheckpointError, "Read-only file system.*or choose another folder"),
    (errno.EACCES, CheckpointError, "Permission denied.*you may write in the folder"),
    (errno.EIO, CheckpointError, "Input/output error"),
])  # fmt: skip
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_errors_of_the_system(tmp_path, monkeypatch, call, number, kind, message):
    write_bytes(tmp_path / "x", b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(kind, match=message) as caught:
            write_bytes(tmp_path / "x", b"new")
    assert str(tmp_path / "x") in str(caught.value)
    assert caught.value.exit_code == (5 if kind is ResourceError else 2)
    assert contents(tmp_path) == {"x": b"old"}


def test_room_that_the_system_does_not_tell(tmp_path, monkeypatch):
    def fail(_: object) -> None:
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(files.shutil, "disk_usage", fail)
    assert "free: unknown" in files.no_room(tmp_path / "x", 5, OSError(errno.ENOSPC, "No space left on device"))


# --- folders


def fill(target, error: type[BaseException] | None = None, **texts: str) -> None:
    with staged_folder(target, 0) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text)
        if error is not None:
            raise error


@pytest.mark.parametrize("swap", [True, False], ids=["exchange", "two renames"])
def test_folder_replaces_folder(tmp_path, monkeypatch, swap):
    if not swap:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    fill(tmp_path / "x", a="1", b="2")
    fill(tmp_path / "x", c="3")
    assert contents(tmp_path) == {"x/c": b"3"}
    assert names(tmp_path) == ["x"]


def test_exchange_is_what_this_system_does(tmp_path):
    """On Linux the swap is one step; were it to fail, every test above would run the other way unnoticed."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("b")
    swapped = files.exchange(tmp_path / "a", tmp_path / "b")
    assert swapped == (tmp_path / "b").is_dir() == (tmp_path / "a").is_file()
    if sys.platform.startswith("linux"):
        assert swapped
    assert not files.exchange(tmp_path / "a", tmp_path / "nothing")


def test_system_without_exchange(tmp_path, monkeypatch):
    monkeypatch.setattr(files.sys, "platform", "darwin")
    assert not files.exchange(tmp_path, tmp_path)


@pytest.mark.parametrize("swap", [True, False], ids=["exchange", "two renames"])
def test_block_that_fails_leaves_nothing(tmp_path, monkeypatch, swap):
    monkeypatch.setattr(files, "exchange", files.exchange if swap else lambda *_: False)
    fill(tmp_path / "x", a="1")
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            fill(tmp_path / "x", error, b="2")
    assert contents(tmp_path) == {"x/a": b"1"}
    assert names(tmp_path) == ["x"]
    assert files.in_progress == set()


def test_second_rename_that_fails_is_undone(tmp_path, monkeypatch):
    fill(tmp_path / "x", a="1")
    rename = os.rename
    monkeypatch.setattr(files, "exchange", lambda *_: False)

    def fail(source: object, target: object) -> None:
        if ".tmp-" in str(source):
            raise OSError(errno.EIO, "x")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(CheckpointError, match="Files that were complete are unchanged"):
        fill(tmp_path / "x", b="2")
    assert contents(tmp_path) == {"x/a": b"1"}
    assert names(tmp_path) == ["x"]


def test_one_writer_at_a_time(tmp_path):
    with staged_folder(tmp_path / "step-1", 0) as folder:
        (folder / "a").write_text("1")
        with pytest.raises(CheckpointError, match="another is writing"):
            fill(tmp_path / "step-1", b="2")
        fill(tmp_path / "step-2", b="2")
        assert (folder / "a").exists()
    assert contents(tmp_path) == {"step-1/a": b"1", "step-2/b": b"2"}


# --- leftovers


def test_leftovers_of_dead_processes_are_removed(tmp_path, dead):
    living = os.getppid()
    (tmp_path / "elsewhere").write_text("precious")
    for name in (f".tmp-step-5-{dead}", f".tmp-step-7-{os.getpid()}", f".tmp-step-9-{living}", f".tmp-other-{dead}"):
        (tmp_path / name / "inner").mkdir(parents=True)
    for name in (".tmp-step-5", ".tmp-step-5-x", f"tmp-step-5-{dead}", f".tmp-step-5-{dead}.bak"):
        (tmp_path / name).mkdir()
    (tmp_path / f".tmp-step-6-{dead}").write_text("a file")
    (tmp_path / f".tmp-step-8-{dead}").symlink_to(tmp_path / "elsewhere")
    removed = {f".tmp-step-5-{dead}", f".tmp-step-7-{os.getpid()}", f".tmp-step-6-{dead}"}
    kept = set(names(tmp_path)) - removed
    fill(tmp_path / "step-10", a="1")
    assert set(names(tmp_path)) == kept | {"step-10"}


def test_leftovers_of_a_file(tmp_path, dead):
    (tmp_path / f".tmp-recipe.toml-{dead}").write_text("half")
    (tmp_path / f".tmp-recipe.toml-{os.getppid()}").write_text("of someone else")
    write_text_atomically(tmp_path / "recipe.toml", "whole")
    assert names(tmp_path) == [f".tmp-recipe.toml-{os.getppid()}", "recipe.toml"]


@pytest.mark.parametrize("replaced", [True, False])
def test_folder_that_was_moved_aside(tmp_path, dead, replaced):
    """Between the two renames, the old one is found under its other name; the next save puts it back or removes it."""
    folder = tiny_step(tmp_path, 5, "old")
    aside = folder.rename(folder.with_name(f".old-{folder.name}-{dead}"))
    assert checkpoints(tmp_path) == {5: aside}
    assert displaced(folder) == aside
    assert displaced(folder.with_name("step-000000006")) is None
    if replaced:
        tiny_step(tmp_path / "new", 5, "new")
        step_folder(tmp_path / "new", 5).rename(folder)
        assert checkpoints(tmp_path) == {5: folder}
        assert displaced(folder) is None
    remove_leftovers(step_folder(tmp_path, 6))
    assert names(tmp_path / "checkpoints") == [folder.name]
    assert (folder / "config.json").read_text() == f"config.json 5 {'new' if replaced else 'old'}"


def test_alive(dead, monkeypatch):
    assert alive(os.getppid())
    assert not alive(dead)
    assert not alive(os.getpid())
    assert not alive(9_999_999_999)

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert alive(1)


def test_no_thread_comes_between_looking_and_claiming(tmp_path, monkeypatch):
    class Watched(set):
        def __contains__(self, target):
            assert files.claiming.locked()
            return super().__contains__(target)

        def add(self, target):
            assert files.claiming.locked()
            super().add(target)

    monkeypatch.setattr(files, "in_progress", seen := Watched())
    with files.only_writer(tmp_path):
        assert not files.claiming.locked()
        assert list(seen) == [tmp_path]


# --- Safetensors files: what is written is read back, and nothing else is read


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def f32(shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


HOSTILE = {
    "nothing": b"",
    "short": b"1234567",
    "pickle 2": pickle.dumps({"a": 1}, protocol=2),
    "pickle 5": pickle.dumps(np.zeros(100), protocol=5),
    "zip, as torch.save": b"PK\x03\x04" + bytes(100),
    "huge header": raw(b"{}", length=2**62),
    "header past the end": raw(b"{}", length=100),
    "header over 16 MiB": raw(b"{" + b" " * (16 * 2**20) + b"}"),
    "no JSON": raw(b"{'a': 1}"),
    "no UTF-8": raw(b'{"\xff": 1}'),
    "deep JSON": raw(b"[" * 100_000),
    "a list": raw([]),
    "shape over 2^64": raw({"a": f32([2**62, 2**62], 0, 4)}, bytes(4)),
    "shape that wraps to 4 bytes": raw({"a": f32([4194305, 4194305, 4194305], 0, 4)}, bytes(4)),
    "negative shape": raw({"a": f32([-1], 0, 4)}, bytes(4)),
    "offsets past the end": raw({"a": f32([2], 0, 8)}, bytes(4)),
    "offsets that overlap": raw({"a": f32([1], 0, 4), "b": f32([1], 0, 4)}, bytes(4)),
    "offsets backwards": raw({"a": f32([1], 4, 0)}, bytes(4)),
    "hole": raw({"a": f32([1], 4, 8)}, bytes(8)),
    "data left over": raw({"a": f32([1], 0, 4)}, bytes(5)),
    "unknown dtype": raw({"a": {"dtype": "PY", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path, name):
    path = tmp_path / "model.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(CheckpointError, match="is not a safetensors file") as caught:
        read_tensors(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))
    assert ("looks like a pickle" in str(caught.value)) == ("pickle" in name or "zip" in name)


def test_sparse_terabyte(tmp_path):
    """A file that claims a terabyte and is as long, but empty: looking at it costs nothing, or is refused."""
    path = tmp_path / "x"
    path.write_bytes(raw({"a": f32([2**38], 0, 2**40)}))
    os.truncate(path, path.stat().st_size + 2**40 - 8)
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        read_tensors(path)
    os.truncate(path, path.stat().st_size + 8)
    with contextlib.suppress(ResourceError):
        assert read_tensors(path)["a"].shape == (2**38,)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.data())
def test_mutated_files(tmp_path, data):
    """Any byte anywhere: a dict of tensors or a CheckpointError, and nothing else."""
    path = tmp_path / "x"
    path.unlink(missing_ok=True)
    write_tensors(path, {"a": torch.ones(2, 3), "b.weight": torch.zeros(1, dtype=torch.int64)})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content)[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(CheckpointError):
        assert all(isinstance(tensor, torch.Tensor) for tensor in read_tensors(path).values())


def test_no_other_reader_is_tried(tmp_path, monkeypatch):
    """Whatever the safe reader raises, no unsafe one follows."""
    path = tmp_path / "x"
    write_tensors(path, {"a": torch.ones(1)})
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch.load"))
    monkeypatch.setattr(pickle, "loads", lambda *_, **__: pytest.fail("pickle"))
    panic = type("PanicException", (BaseException,), {})
    for error in (SafetensorError("x"), OSError(errno.EIO, "x"), panic("x")):

        def fail(path: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(weights, "load_file", fail)
        with pytest.raises(CheckpointError, match="x"):
            read_tensors(path)


def test_interrupt_is_not_swallowed(tmp_path, monkeypatch):
    write_tensors(tmp_path / "x", {"a": torch.ones(1)})

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "load_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_tensors(tmp_path / "x")


@pytest.mark.parametrize(("message", "number"), [
    ("I/O error: No space left on device (os error 28)", errno.ENOSPC),
    ("I/O error: File too large (os error 27)", errno.EFBIG),
    ("I/O error: No space left on device", errno.ENOSPC),
    ("something else", errno.EIO),
])  # fmt: skip
def test_errors_of_the_library_are_errors_of_the_system(tmp_path, monkeypatch, message, number):
    def fail(*_: object) -> None:
        raise SafetensorError(message)

    monkeypatch.setattr(weights, "save_file", fail)
    with pytest.raises(OSError) as caught:
        write_tensors(tmp_path / "x", {"a": torch.ones(1)})
    assert caught.value.errno == number


def test_shared_memory(tmp_path):
    """Views of one tensor are written as tensors of their own, whatever part they are."""
    base = torch.randn(6, 4)
    given = {"all": base, "rows": base[:3], "columns": base[:, 1], "turned": base.t(), "one": base[2, 2]}
    write_tensors(tmp_path / "x", given)
    read = read_tensors(tmp_path / "x")
    assert all(same_bits(read[name], value) for name, value in given.items())
    assert names(tmp_path) == ["x"]


def test_file_must_be_new(tmp_path):
    write_tensors(tmp_path / "x", {"a": torch.ones(1)})
    with pytest.raises(FileExistsError):
        write_tensors(tmp_path / "x", {"a": torch.zeros(1)})
    assert read_tensors(tmp_path / "x")["a"].item() == 1


# --- JSON from anywhere: bounded in size and depth, unambiguous, from regular files only


@pytest.mark.parametrize(("text", "message"), [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"{} {}", "not JSON"),
    (b'{"a": NaN}', "NaN is not a JSON number"),
    (b"[-Infinity]", "-Infinity is not"),
    (b'{"a": {"b": 1, "c": 2, "b": 1}}', "key 'b' is given twice"),
    (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    (b"\xef\xbb\xbf{}", "not JSON"),
    (b"1" * 5000, "not JSON"),
    (b"[" * 100_000, "nested too deeply"),
    (b"[" * 65 + b"]" * 65, "nested more than 64 levels deep"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "nested more than 64 levels deep"),
])  # fmt: skip
def test_refused(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_largest(tmp_path):
    path = tmp_path / "x.json"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(CheckpointError, match=r"1,099,511,627,776 bytes; at most 33,554,432"):
        read_json(path)


def test_only_regular_files(tmp_path):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "folder", "pipe"):
        with pytest.raises(CheckpointError, match="must be a regular file"):
            read_json(tmp_path / name)
    with pytest.raises(CheckpointError, match="cannot be read: Not a directory"):
        read_json(tmp_path / "secret" / "x")
    with pytest.raises(CheckpointError, match="is missing"):
        read_json(tmp_path / "x")


def test_link_that_takes_the_place_of_a_file_after_the_look(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "x").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(json_file, "regular_size", lambda path: 2)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json(tmp_path / "x")


plain = st.none() | st.integers() | st.text(max_size=3)
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values)
def test_round_trip(tmp_path, value):
    (tmp_path / "x").write_text(json.dumps(value))
    assert read_json(tmp_path / "x") == value


def depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(values, st.integers(0, 5))
def test_depth(value, limit):
    assert deeper_than(value, limit) == (depth(value) > limit)


def test_deepest_allowed(tmp_path):
    (tmp_path / "x").write_text("[" * DEEPEST + "]" * DEEPEST)
    assert depth(read_json(tmp_path / "x")) == DEEPEST
