"""Safetensors files: what is written is read back, and nothing else is read."""

import contextlib
import errno
import json
import os
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store import weights
from glassformer.store.weights import read_tensors, write_tensors
from store.examples import names, same_bits


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


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ("I/O error: No space left on device (os error 28)", errno.ENOSPC),
        ("I/O error: File too large (os error 27)", errno.EFBIG),
        ("I/O error: No space left on device", errno.ENOSPC),
        ("something else", errno.EIO),
    ],
)
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
