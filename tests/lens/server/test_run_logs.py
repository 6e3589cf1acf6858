"""What a run has logged, read while it is in training: its steps, and the newest samples in order."""

import json

from glassformer.lens.server.subject import LONGEST, MOST, figures, samples
from lens.server.requests_of import ask


def written(run, name, lines, rest=""):
    """A file of JSON lines, and the beginning of another one."""
    (run / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines) + rest)


def test_steps_have_their_speed(tmp_path):
    """Those of training; also where lines are asked for from a later one on, and a last line is half written."""
    train = [{"kind": "train", "step": step, "loss": 1 / step} for step in (1, 2, 3)]
    dev = {"kind": "dev", "step": 2, "loss": 0.4}
    written(tmp_path, "metrics.jsonl", [*train[:2], dev, train[2]], '{"kind": "tr')
    speeds = [{"step": step, "tokens_per_second": 10.0 * step, "seconds": step} for step in (1, 2, 3)]
    written(tmp_path, "timing.jsonl", speeds, '{"step": 4, "tok')
    fast = [each | {"tokens_per_second": 10.0 * each["step"]} for each in train]
    assert figures(tmp_path) == [*fast[:2], dev, fast[2]]
    assert figures(tmp_path, 2) == [dev, fast[2]]
    assert figures(tmp_path, 4) == []


def test_what_is_damaged_or_missing(tmp_path):
    assert figures(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\nnothing\n[1]\n{"step": 2, "loss": NaN}\n')
    damaged = {"kind": "damaged", "step": 0}
    assert figures(tmp_path) == [{"kind": "train", "step": 1}, damaged, damaged, {"step": 2, "loss": None}], (
        "no speeds, a line each, and no number that JSON lacks"
    )
    (tmp_path / "timing.jsonl").write_text('nothing\n{"step": 1, "tokens_per_second": 5.0}\n\n')
    assert figures(tmp_path)[0]["tokens_per_second"] == 5.0
    (tmp_path / "timing.jsonl").write_text('{"step": 1, "tokens_per_second": 5.0}\n{"step": null}\n{"step": "1"}\n')
    assert figures(tmp_path)[0]["tokens_per_second"] == 5.0, "a line of no step is of none"


def wrote(run, step, text):
    """A file as training writes it."""
    (run / "samples").mkdir(exist_ok=True)
    (run / "samples" / f"step-{step:09d}.txt").write_bytes(text.encode() if isinstance(text, str) else text)


def test_the_newest_in_order(tmp_path):
    assert samples(tmp_path) == []
    for step in range(MOST + 3, 0, -1):
        wrote(tmp_path, step, f"text {step}\n")
    (tmp_path / "samples" / "step-x.txt").write_text("another's")
    (tmp_path / "samples" / "step-000000099.txt").mkdir()
    found = samples(tmp_path)
    assert [each["step"] for each in found] == [*range(5, MOST + 4)], "a folder is no sample"
    assert found[-1] == {"step": MOST + 3, "text": f"text {MOST + 3}", "cut": False}


def test_a_long_one_is_cut_and_says_so_and_bytes_that_are_none_are_shown(tmp_path):
    wrote(tmp_path, 1, "x" * LONGEST)
    wrote(tmp_path, 2, "x" * (LONGEST + 1))
    wrote(tmp_path, 3, b"a\xffb")
    assert [(len(each["text"]), each["cut"]) for each in samples(tmp_path)[:2]] == [(LONGEST, False), (LONGEST, True)]
    assert samples(tmp_path)[2]["text"] == "a\ufffdb"


def test_they_are_told_of(app):
    assert ask(app, "GET", "/api/samples").json == {"samples": []}
    assert ask(app, "GET", "/api/samples", token="another").status == 403
