"""JSON from anywhere: bounded in size and depth, unambiguous, from regular files only."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.base.errors import CheckpointError
from glassformer.store import files as json_file
from glassformer.store.files import DEEPEST, deeper_than, read_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
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
    ],
)
def test_refused(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_largest(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('"' + "x" * 8 + '"')
    assert read_json(path, 10) == "x" * 8
    with pytest.raises(CheckpointError, match="has 10 bytes; at most 9"):
        read_json(path, 9)
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
