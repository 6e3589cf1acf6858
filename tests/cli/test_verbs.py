"""What each verb asks of the session, and what it makes of the answer."""

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cli.conftest import Input
from glassformer.base.errors import DataError
from glassformer.cli.demo import curve, milestones, scene
from glassformer.cli.lines import answers, lines_of, on_one_line
from glassformer.cli.main import main
from glassformer.train.recipe import load_recipe, override
from glassformer.train.records import Evaluated, Sample


def test_train(run, session):
    answer = run("train", "reverse", "--model.n-layers", "3", "--data.min-length=2")
    ((verb, recipe, out),) = session.calls
    assert (verb, out) == ("start", Path("runs/reverse"))
    assert recipe == override(load_recipe("reverse"), {"model.n_layers": 3, "data.min_length": 2})
    assert (answer.code, answer.out) == (0, "")
    for fact in ("device: none", "step 6/6 100%", "step 3: exact_match 0.5000", "done: step 6"):
        assert fact in answer.err
    assert "glassformer evaluate runs/reverse" in answer.err
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 8


def test_train_a_file_into_a_folder(run, session, tmp_path):
    (tmp_path / "mine.toml").write_text('[data]\ntrain = "t.tsv"\n')
    (tmp_path / "t.tsv").touch()
    assert run("train", "mine.toml", "--out", "deep/er").code == 0
    _, recipe, out = session.calls[0]
    assert (recipe.name, out) == ("mine", Path("deep/er"))
    assert recipe.data.train == str(tmp_path / "t.tsv")


def test_resume(run, session, a_run):
    answer = run("resume", "runs/old")
    assert session.calls == [("resume", a_run)]
    assert answer.code == 0
    steps = [json.loads(line)["step"] for line in (a_run / "metrics.jsonl").read_text().splitlines()]
    assert steps == [4, 5, 6, 6]


def test_resume_with_changes(run, session, a_run):
    words = ("--allow-change", "training.steps", "--allow-change=training.clip", "--training.steps", "9")
    assert run("resume", "runs/old", *words).code == 0
    assert session.calls == [("resume", a_run, ["training.steps", "training.clip"], {"training.steps": 9})]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("words", [("train", "reverse"), ("resume", "runs/old"), ("demo",)])
def test_signal_saves_and_stops(run, session, a_run, number, code, words):
    session.at = {5: lambda: os.kill(os.getpid(), number)}
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    answer = run(*words)
    assert answer.code == code
    out = {"train": "runs/reverse", "resume": "runs/old", "demo": "runs/reverse"}[words[0]]
    assert "step 5: stopped, as asked" in answer.err
    assert f"Continue with: glassformer resume {out}" in answer.err
    assert "step 6" not in answer.err
    assert "Traceback" not in answer.err
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_second_signal_quits_at_once(run, session, number, code):
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), number)

    session.at = {5: twice}
    answer = run("train", "reverse")
    assert answer.code == code
    assert "step 5" not in answer.err
    assert "saved" not in answer.err
    assert answer.err.endswith("glassformer: Stopped.\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_before_there_is_anything_to_save(run, session, monkeypatch, number, code):
    monkeypatch.setattr(session, "fail", lambda: os.kill(os.getpid(), number))
    assert run("train", "reverse").code == code


def test_signal_is_answered_at_once(session, capfd):
    session.at = {5: lambda: os.kill(os.getpid(), signal.SIGINT)}
    assert main(["train", "reverse"]) == 130
    assert "Saving a checkpoint after this step. Press Ctrl-C again to quit at once" in capfd.readouterr().err


def test_evaluate_json(run, session, a_run):
    session.metrics["loss"] = float("inf")
    answer = run("evaluate", "runs/old", "--json")
    assert answer.out.count("\n") == 1
    report = json.loads(answer.out, parse_constant=lambda name: pytest.fail(name))
    assert report == {"exact_match": 0.5, "loss": None, "n": 1000, "signature": "13a"}
    assert session.calls == [("evaluate", a_run, load_recipe(a_run / "recipe.toml"), "test")]


def test_evaluate_table(run, session, a_run):
    answer = run("evaluate", "runs/old")
    assert answer.out == "exact_match  0.5000\nloss         0.2500\nn            1000\nsignature    13a\n"
    assert "runs/old" in answer.err


def test_evaluate_other_data(run, session, a_run):
    run("evaluate", "runs/old", "--data.test-source", "a", "--data.test-target=b", "--decode.max-new-tokens", "9")
    run("evaluate", "runs/old", "--data.dev", "t.tsv", "--split", "dev")
    (_, _, first, split), (_, _, second, other) = session.calls
    assert (first.data.test_source, first.data.test_target, first.decode.max_new_tokens) == ("a", "b", 9)
    assert (second.data.dev, split, other) == ("t.tsv", "test", "dev")


def test_evaluate_unknown_split(refused, session, a_run):
    assert "Did you mean 'test'?" in refused("evaluate", "runs/old", "--split", "tset")


def test_translate(run, session, a_run):
    answer = run("translate", "runs/old", stdin="\ufeffein Hund\r\n\n  \ngrün\nx\ny\n\nz".encode())
    assert answer.out == "EIN HUND\n\n\nGRÜN\nX\nY\n\nZ\n"
    assert (answer.code, answer.err) == (0, "")
    assert session.calls == [("translate", a_run, 3)]


def test_translate_with_other_decoding(run, session, a_run):
    run(
        "translate",
        "runs/old",
        "--decode.temperature",
        "0.5",
        "--decode.top-k=3",
        "--decode.batch-size",
        "2",
        stdin=b"x\n",
    )
    assert session.calls == [("translate", a_run, 2)]
    assert (session.recipe.decode.temperature, session.recipe.decode.top_k) == (0.5, 3)
    assert run("translate", "runs/old", "--scores", "--decode.length-penalty", "2", stdin=b"").code == 0, (
        "of a score, too"
    )


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n \n"])
def test_translate_nothing(run, session, a_run, data):
    assert run("translate", "runs/old", stdin=data).out == "\n" * data.count(b"\n")


def test_translate_batch_size(run, refused, session, a_run):
    run("translate", "runs/old", "--batch-size", "7", stdin=b"x\n")
    assert session.calls == [("translate", a_run, 7)]
    for wrong in ("0", "-1", "x", "1.5", "²"):
        assert f"got {wrong!r}" in refused("translate", "runs/old", "--batch-size", wrong)


def test_translate_at_a_terminal_answers_each_line(run, session, a_run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Input(b"x\n", terminal=True))
    answer = run("translate", "runs/old")
    assert session.calls == [("translate", a_run, 1)]
    assert answer.out == "X\n"
    assert "Ctrl-D" in answer.err


def test_translate_invalid_utf8(run, session, a_run):
    answer = run("translate", "runs/old", stdin=b"x\ngr\xfcn\n")
    assert answer.code == 2
    assert "Standard input, line 2: byte 3 of the line (0xfc) is not valid UTF-8" in answer.err


def test_lines():
    text = "\ufeffa\u2028b\r\nc\x0bd\n\ufeff\r\n\ne".encode()
    assert list(lines_of(io.BytesIO(text))) == ["a\u2028b", "c\x0bd", "\ufeff", "", "e"]
    with pytest.raises(DataError, match="line 1: byte 1"):
        list(lines_of(io.BytesIO(b"\xef\xbb\xbf\xff")))


@given(lines=some.lists(some.sampled_from(["", " ", "a", "b c", "\t", "d"])), size=some.integers(1, 4))
def test_one_answer_for_each_line_whatever_the_batches(lines, size):
    def translated(requested):
        batch = []
        for number, line in requested:
            assert line == lines[number - 1]
            batch.append(f"<{line}>")
            if len(batch) == size:
                yield from batch
                batch = []
        yield from batch

    assert list(answers(lines, translated)) == [f"<{line}>" if line.strip() else None for line in lines]


def test_answer_stays_on_its_line():
    assert on_one_line("x\r\n1\n2\r3\u2028") == "x  1 2 3\u2028"


def test_translate_tells_what_is_not_right(run, session, a_run):
    answer = run("translate", "runs/old", stdin=b"a?\n\nb\nlong, long\nlong, long, long\n" + b"?\n" * 6)
    assert answer.code == 0
    assert answer.err == (
        "1 line (4): the answer was cut before its end, by decode.max_new_tokens=4.\n"
        "1 line (5): the answer was cut before its end, by model.max_len=9.\n"
        "7 lines (1, 6, 7, 8, 9, ...): the vocabulary lacks a part of the line, '?' (U+003F, 7 times); "
        "the model read <unk> in its place.\n"
    )


def test_translate_tells_of_lines_longer_than_those_in_training(run, session, a_run):
    data = b"x" * 30 + b"\n" + (b"y" * 31 + b"\n") * 2
    output = run("translate", "runs/old", stdin=data).err.splitlines()[-1]
    assert (
        output
        == "2 lines (2, 3): longer than every source in training (1 to 30 tokens), so the answers are less reliable."
    )
    records = [json.loads(line) for line in run("translate", "runs/old", "--json", stdin=data).out.splitlines()]
    new = {"tokens": 31, "shortest": 1, "longest": 30}
    assert [each.get("untrained_length") for each in records] == [None, new, new]


def test_evaluate_shows_tables_of_labels(run, session, a_run):
    session.metrics = {"accuracy": 0.5, "n": 2, "labels": {"no": {"n": 1, "f1": 0.0}, "maybe": {"n": 1, "f1": 1.0}}}
    assert run("evaluate", "runs/old").out == (
        "accuracy  0.5000\nn         2\n\nlabels  n      f1\nno      1  0.0000\nmaybe   1  1.0000\n"
    )
    assert json.loads(run("evaluate", "runs/old", "--json").out) == session.metrics


def test_demo(run, session):
    answer = run("demo")
    reverse = load_recipe("reverse")
    often = override(reverse, {"training.evaluate_every": reverse.training.steps // 10})
    assert session.calls == [("start", often, Path("runs/reverse"))]
    assert answer.code == 0
    story = [
        "backwards",
        "The loss, from 1.00 to 0.1667",
        "Before training:\n  a b  ->  a 0\n",
        "After 3 steps, 50.0% of the answers are right:\n  a b  ->  a 3\n",
        "After 6 steps, 100.0% of the answers are right:\n  a b  ->  b a\n",
        "Where it looks: nowhere.\n",
        "open runs/reverse/explorer.html\n",
        "glassformer explore runs/reverse\n",
        "glassformer translate runs/reverse\n",
        "glassformer evaluate runs/reverse\n",
    ]
    places = [answer.out.index(part) for part in story]
    assert places == sorted(places)


def test_second_demo_leaves_the_first_alone(run, session):
    run("demo")
    first = (Path("runs/reverse") / "metrics.jsonl").read_bytes()
    answer = run("demo")
    assert answer.code == 0
    assert "runs/reverse exists and stays as it is; this run goes to runs/reverse-2" in answer.out
    assert "glassformer evaluate runs/reverse-2\n" in answer.out
    assert (Path("runs/reverse") / "metrics.jsonl").read_bytes() == first
    assert run("demo", "--out", "x").code == 0
    assert Path("x/metrics.jsonl").exists()


def test_demo_into_a_folder_that_exists(refused, session, a_run):
    assert "glassformer resume runs/old" in refused("demo", "--out", "runs/old")


@pytest.mark.parametrize(("scores", "steps"), [
    ([], []),
    ([0.0], [0]),
    ([0.0, 1.0], [0, 1]),
    ([0.5, 0.9, 1.0], [0, 1, 2]),
    ([0.5, 0.0, 0.6, 0.3, 0.5], [0, 2, 4]),
])  # fmt: skip
def test_milestones(scores, steps):
    seen = [Evaluated(step, {"exact_match": score}) for step, score in enumerate(scores)]
    assert [event.step for event in milestones(seen)] == steps


def test_scene_with_an_empty_answer():
    assert scene(Evaluated(0, {}, [Sample("a b", "b a", "")])) == "Before training:\n  a b  ->  (nothing)\n"


def test_curve():
    assert curve([8.0, 4.0, 0.0], 3) == "█▅▁"
    assert curve([1.0] * 100 + [0.0] * 100, 4) == "██▁▁"
    assert len(curve([3.0, 1.0])) == 2
    assert curve([0.0, 0.0]) == "▁▁"
