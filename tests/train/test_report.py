"""What a run shows and keeps: the same files whether or not it was interrupted, and nothing that steers a terminal."""

import errno
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from glassformer.train.records import Evaluated, Finished, Progress, Sample, Started, Stopped
from glassformer.train.report import Reporter
from train.shown import STEPS, Terminal, evaluated, events, follow, report


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "JUPYTER_COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def content(run: Path, *names: str) -> dict[str, bytes]:
    files = (path for path in run.rglob("*") if path.is_file() and path.name in names + tuple(sample_names(run)))
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def sample_names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "samples").glob("*"))


def test_plain_lines(tmp_path):
    unmoved = "the same at all 3 evaluations: bleu 0.0000"
    finished = Finished(STEPS, 65.4, 30, {"exact_match": 0.75}, never_moved=unmoved)
    shown = report(tmp_path, io.StringIO(), *events(1, STEPS), finished)
    assert "\x1b" not in shown
    assert "device: cpu, as there is no other\n" in shown
    assert "step 20/40 50% 0:20 left, loss 0.1500, lr 2.0e-02, 12,346 tok/s, pad 6%\n" in shown
    assert "step 10: exact_match 0.5000, n 500 (best so far)\n" in shown
    assert "  source  a b\n  target  b a\n  output  b a   (right)\n" in shown
    assert "  output  c 10\n" in shown
    assert "step 10: saved checkpoints/step-000000010\n" in shown
    assert shown.endswith(f"done: step 40 after 1:05; best at step 30: exact_match 0.7500\n{unmoved}\n")
    assert [int(each) for each in re.findall(r"^step (\d+)/40", shown, re.M)] == [1, *range(2, STEPS + 1, 2)]


def test_metrics(tmp_path):
    report(tmp_path, io.StringIO(), *events(1, 10))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, 11), 10]
    assert lines[4] == {
        "kind": "train",
        "step": 5,
        "epoch": 0,
        "loss": 3 / 5,
        "learning_rate": 1e-3 * 5,
        "grad_norm": 1 / 3,
        "pad_share": 0.0625,
    }
    assert lines[10] == {
        "kind": "dev",
        "step": 10,
        "exact_match": 0.5,
        "n": 500,
        "bleu_signature": "nrefs:1",
        "best": True,
    }
    times = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert times[4] == {"step": 5, "tokens_per_second": 12345.6, "seconds": 5.0}


def test_every_line_is_on_disk_at_once(tmp_path):
    with Reporter(tmp_path, Console(file=io.StringIO())) as reporter:
        for event in events(1, 3):
            reporter(event)
        assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3
        assert (tmp_path / "timing.jsonl").read_text().count("\n") == 3
        assert "device: cpu" in (tmp_path / "log.txt").read_text()


def test_number_that_is_not_finite_is_null(tmp_path):
    report(tmp_path, io.StringIO(), Started(0, STEPS), evaluated(10, loss=float("inf")))
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=lambda name: pytest.fail(name))["loss"] is None


@pytest.mark.parametrize("saved", [0, 10, 20, 30])
@pytest.mark.parametrize("beyond", [0, 1, 9, 10])
def test_resumed_run_leaves_what_an_uninterrupted_one_leaves(tmp_path, saved, beyond):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    report(whole, io.StringIO(), *events(1, STEPS))
    report(parts, io.StringIO(), *events(1, saved + beyond, seconds=2.0))
    (parts / "samples").mkdir(exist_ok=True)
    (parts / "samples" / "step-mine.txt").touch()
    report(parts, io.StringIO(), *events(saved + 1, STEPS, seconds=3.0))
    (parts / "samples" / "step-mine.txt").unlink()
    assert content(parts, "metrics.jsonl") == content(whole, "metrics.jsonl")
    assert sample_names(parts) == [f"step-{step:09d}.txt" for step in (10, 20, 30, 40)]
    steps = [json.loads(line)["step"] for line in (parts / "timing.jsonl").read_text().splitlines()]
    assert steps == [*range(1, STEPS + 1)]


def test_time_left_is_counted_from_the_first_step(tmp_path):
    steps = [Progress(step, STEPS, 0, 1.0, 1e-3, 1.0, 1.0, 0.0, seconds) for step, seconds in ((31, 50.0), (32, 52.0))]
    shown = report(tmp_path, io.StringIO(), Started(30, STEPS), *steps)
    assert "step 31/40 78% ? left" in shown  # the first step also warms up, so it says nothing of the others
    assert "step 32/40 80% 0:16 left" in shown


class Broken(io.StringIO):
    """A stream whose reader goes away after the first line."""

    def __init__(self, terminal: bool, error: int) -> None:
        super().__init__()
        self.terminal, self.error = terminal, error

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        if "\n" in self.getvalue():
            raise OSError(self.error, "gone")  # EPIPE: BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("error", [errno.EPIPE, errno.EIO])
def test_dead_console_ends_nothing(tmp_path, monkeypatch, terminal, error):
    monkeypatch.setattr("sys.stderr", Broken(terminal, error))
    with Reporter(tmp_path) as reporter:
        for event in (*events(1, 20), Stopped(20, "interrupted")):
            reporter(event)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 22
    assert (tmp_path / "log.txt").read_text().endswith("step 20: stopped, as asked\n")


def test_log_keeps_what_was_shown_over_both_runs(tmp_path):
    report(tmp_path, io.StringIO(), *events(1, 12), Stopped(12, "interrupted"))
    report(tmp_path, Terminal(), *events(11, 20))
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines)
    shown = [line[21:] for line in lines]
    assert shown.count("device: cpu, as there is no other") == 2
    assert "step 12: stopped, as asked" in shown
    assert any(line.startswith("step 20/40") for line in shown)


def test_log_names_the_error_that_ended_a_run(tmp_path):
    def broken():
        yield Started(0, STEPS)
        raise RuntimeError("the loss is nan")

    with pytest.raises(RuntimeError):
        follow(tmp_path, broken(), io.StringIO())
    assert "RuntimeError: the loss is nan" in (tmp_path / "log.txt").read_text()


def test_terminal_has_one_moving_line(tmp_path):
    shown = report(tmp_path, Terminal(), *events(1, STEPS))
    assert "\x1b[" in shown
    assert "step 40/40 100%" in plain(shown)
    assert "step 10: saved" in shown


@pytest.mark.parametrize(("variable", "value"), [("TERM", "dumb"), ("TERM", "unknown")])
def test_simple_terminal_gets_plain_lines(tmp_path, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    shown = report(tmp_path, Terminal(), *events(1, STEPS))
    assert "\x1b" not in shown
    assert "step 20/40" in shown


def test_no_color(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = report(tmp_path, Terminal(), *events(1, STEPS))
    codes = {code for sequence in re.findall(r"\x1b\[([0-9;]*)m", shown) for code in sequence.split(";")}
    assert not codes & {*map(str, range(30, 38)), "38", "48", *map(str, range(40, 48)), *map(str, range(90, 98))}


def test_moving_line_fits_80_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    late = [Progress(step, 4000, 9, 1.2345, 1.2e-4, 9.9, 12_345.0, 0.012, 9.0 + step) for step in (1, 3345)]
    shown = report(tmp_path, Terminal(), Started(0, 4000), *late)
    assert "step 3345/4000 84% 10:55 left, loss 1.2345, lr 1.2e-04, 12,345 tok/s, pad 1% \u2501" in plain(shown)
    assert "\u2026" not in shown


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("columns", [1, 20, 40])
def test_narrow_terminal(tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert report(tmp_path, Terminal(), *events(1, STEPS))


def test_samples_cannot_steer_the_terminal(tmp_path):
    sample = Sample("[red]a[/red] :smile: \x1b[2J", "ä\u202eb\r\n", "c\x07\u200b")
    shown = report(tmp_path, io.StringIO(), Started(0, STEPS), Evaluated(1, {}, [sample]))
    assert "  source  [red]a[/red] :smile: \ufffd[2J\n  target  ä\ufffdb\ufffd⏎\n  output  c\ufffd\ufffd\n" in shown
    kept = (tmp_path / "samples" / "step-000000001.txt").read_text("utf-8")
    assert kept == "  source  [red]a[/red] :smile: \ufffd[2J\n  target  ä\ufffdb\ufffd⏎\n  output  c\ufffd\ufffd\n"


def test_long_lines_are_not_broken(tmp_path):
    text = "word " * 100 + "end"
    shown = report(tmp_path, io.StringIO(), Started(0, STEPS), Evaluated(1, {}, [Sample(text, text, text)]))
    assert f"  source  {text}\n" in shown
