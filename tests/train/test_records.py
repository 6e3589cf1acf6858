"""The lines that a run keeps: cut short by a kill, damaged, or in the way of a folder."""

from __future__ import annotations

import io

import pytest

from glassformer.foundation.errors import CheckpointError
from glassformer.train.records import drop_beyond
from train.shown import events, report


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
    with pytest.raises(CheckpointError, match=rf"{name}:2: a line is a JSON object with a step, .*move the file away"):
        report(tmp_path, io.StringIO(), *events(2, 3))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "kind"),
    [("metrics.jsonl", "file"), ("timing.jsonl", "file"), ("log.txt", "file"), ("samples", "folder")],
)
def test_what_stands_in_the_way_is_named(tmp_path, name, kind):
    (tmp_path / name).mkdir() if kind == "file" else (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=rf"{name} must be a {kind}, .* Move it away"):
        report(tmp_path, io.StringIO(), *events(1, 2))
