"""The command line on a real, tiny model: trained, interrupted, resumed, scored, asked; and real bad input."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from cli.conftest import TASK, TINY
from glassformer.cli.follow import Signals, follow
from glassformer.store.folders import newest
from glassformer.train.recipe import load_recipe
from glassformer.train.records import Event, Progress


def figures(run: Path) -> bytes:
    return (run / "metrics.jsonl").read_bytes()


def test_run_folder(trained):
    assert {path.name for path in trained.iterdir()} == {
        *("recipe.toml", "run.lock", "metrics.jsonl", "timing.jsonl", "log.txt", "samples", "checkpoints")
    }
    recipe = load_recipe(trained / "recipe.toml")
    assert (recipe.name, recipe.model.d_model, recipe.data.train_size) == ("reverse", 16, 64)
    lines = [json.loads(line) for line in figures(trained).splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [*range(1, 9)]
    assert [line["step"] for line in lines if line["kind"] == "dev"] == [4, 8]
    assert sorted(path.name for path in (trained / "samples").iterdir()) == ["step-000000004.txt", "step-000000008.txt"]
    assert "padding" in (trained / "log.txt").read_text()


def test_resuming_a_finished_run_changes_nothing(trained, run):
    before = figures(trained)
    assert run("resume", str(trained)).code == 0
    assert figures(trained) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("step", [1, 4, 7])
def test_interrupted_and_resumed_is_as_if_nothing_had_happened(trained, tmp_path, run, number, code, step):
    from glassformer.fast import for_training
    from glassformer.train.run.session import start

    def at_step(event: Event) -> None:
        if isinstance(event, Progress) and event.step == step:
            os.kill(os.getpid(), number)

    out = tmp_path / "run"
    with Signals() as signals:
        assert (
            follow(start(load_recipe(trained / "recipe.toml"), out, speed=for_training), out, signals, at_step) == code
        )
    assert newest(out).folder.name == f"step-{step:09d}"
    assert run("resume", str(out)).code == 0
    assert figures(out) == figures(trained)
    last = [path / "checkpoints" / "step-000000008" / "model.safetensors" for path in (out, trained)]
    assert last[0].read_bytes() == last[1].read_bytes()


def test_evaluate(trained, run):
    report = json.loads(run("evaluate", str(trained), "--json").out)
    assert report["n"] == 6
    assert {"exact_match", "token_accuracy", "loss"} <= report.keys()
    assert run("evaluate", str(trained), "--json").out == run("evaluate", str(trained), "--json").out
    assert json.loads(run("evaluate", str(trained), "--json", "--split", "dev").out)["n"] == 5
    assert json.loads(run("evaluate", str(trained), "--json", "--data.test-size", "3").out)["n"] == 3
    lengths = json.loads(run("evaluate", str(trained), "--json", "--by-length").out)["by_length"]
    assert sum(row["n"] for row in lengths.values()) == 6


def test_translate(trained, run):
    answer = run("translate", str(trained), "--batch-size", "2", stdin=b"a b c\n\nz a\n")
    assert answer.code == 0
    assert answer.out.count("\n") == 3
    assert answer.out.splitlines()[1] == ""
    assert "(3): the vocabulary lacks a part of the line" in answer.err


def test_translate_with_figures(trained, run, refused):
    def translated(*words: str):
        return run("translate", str(trained), *words, stdin=b"a b c\n\nb a\n").out.splitlines()

    plain, beam = translated(), ("--beam", "3", "--n-best", "3")
    scored = [line.split("\t") for line in translated("--scores", "--alignments")]
    assert [each[0] for each in scored] == plain
    assert [len(each) for each in scored] == [3, 3, 3]
    assert scored[1] == [""] * 3
    assert all(re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", each[2]) for each in scored)
    ranked = [line.split("\t") for line in translated(*beam, "--scores")]
    assert [each[0] for each in ranked] == ["1", "1", "1", "2", "3", "3", "3"]
    assert ranked[3] == ["2", "", ""]
    assert [each[1] for each in (ranked[0], ranked[4])] == [each for each in translated("--beam", "3") if each]
    assert all(float(one[2]) >= float(two[2]) for one, two in [ranked[:2], ranked[1:3], ranked[4:6], ranked[5:]])
    records = [json.loads(line) for line in translated(*beam, "--json", "--alignments")]
    assert [(each["line"], len(each["answers"])) for each in records] == [(1, 3), (2, 0), (3, 3)]
    assert records[0]["source_tokens"] == ["a", "b", "c"]
    first = records[0]["answers"][0]
    assert f"{first['score']:.6f}" == ranked[0][2]
    assert all(i < 3 and j < len(first["tokens"]) for i, j in first.get("alignment", []))
    same = ("--beam", "6", "--decode.beam-groups", "3", "--decode.diversity", "0", "--n-best", "6")
    fewer = [line.split("\t") for line in translated(*same)]
    assert [each[0] for each in fewer] == ["1", "1", "2", "3", "3"], "groups that search alike find the same answers"
    assert fewer[0] != fewer[1]
    records = [json.loads(line) for line in translated(*same, "--json")]
    assert [(each["line"], len(each["answers"])) for each in records] == [(1, 2), (2, 0), (3, 2)]
    given = ("translate", str(trained), "--n-best", "2")
    assert "got 2 with a beam of 1. Give --beam 2 or more" in refused(*given)
    assert "--n-best takes a whole number from 1 to 1024" in refused(*given[:3], str(10**9), "--beam", "2")
    needs = "--decode.coverage-penalty needs beam-search decoding; got --beam 1"
    assert needs in refused(*given[:2], "--decode.coverage-penalty", "0.2")


PAIRS = [("ein hund", "a dog"), ("eine katze", "a cat"), ("ein haus", "a house"), ("zwei", "two")]


def write(name: str, lines: list[str]) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return name


@pytest.fixture
def text_files() -> list[str]:
    """Flags that name parallel files in the present folder."""
    sides = [write("in.de", [pair[0] for pair in PAIRS]), write("out.en", [pair[1] for pair in PAIRS])]
    flags = ("--data.train-source", "--data.train-target", "--data.dev-source", "--data.dev-target")
    return [word for pair in zip(flags, sides * 2, strict=True) for word in pair]


def test_translations_from_two_text_files(run, text_files):
    words = [*TINY, *text_files, "--tokenizer.vocab-size", "270", "--out", "run"]
    assert run("train", "multi30k", *words).code == 0
    report = json.loads(
        run("evaluate", "run", "--json", *("--data.test-source", "in.de", "--data.test-target", "out.en")).out
    )
    assert report["n"] == 4
    assert report["bleu_signature"]
    tsv = write("test.tsv", ["\t".join(pair) for pair in PAIRS[:3]])
    assert json.loads(run("evaluate", "run", "--json", "--data.test", tsv).out)["n"] == 3


def test_run_goes_on_from_another_folder(run, text_files, tmp_path, monkeypatch):
    assert run("train", "multi30k", *TINY, *text_files, "--tokenizer.kind", "word", "--out", "run").code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run("resume", str(tmp_path / "run")).code == 0


@pytest.mark.parametrize(("name", "content", "facts"), [
    ("in.de", b"ein hund\neine katze\nein haus\n", ["in.de", "out.en", "3", "4"]),
    ("in.de", b"ein hund\n\nein haus\nzwei\n", ["in.de:2", "empty", "--data.skip-empty"]),
    ("out.en", b"a dog\na cat\na h\xf6use\ntwo\n", ["out.en:3", "byte 4", "UTF-8"]),
    ("out.en", b"", ["out.en", "empty"]),
])  # fmt: skip
def test_bad_files(refused, text_files, name, content, facts):
    Path(name).write_bytes(content)
    message = refused("train", "multi30k", *TINY, *text_files)
    assert all(fact in message for fact in facts), message
    assert not Path("runs").exists()


def test_loss_that_is_not_finite(run, tmp_path):
    answer = run("train", "reverse", *TINY, *TASK, "--training.learning-rate", "1e30", "--training.clip", "0")
    assert answer.code == 4
    assert answer.err.splitlines()[-1].startswith("glassformer: Training must stay finite; at step ")
    assert "Traceback" not in answer.err
    assert "Diverged" in Path("runs/reverse/log.txt").read_text()


@pytest.mark.parametrize("verb", ["evaluate", "params"])
def test_run_without_a_checkpoint(trained, tmp_path, run, verb):
    out = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(out / "checkpoints")
    answer = run(verb, str(out))
    assert (answer.code, answer.out) == (2, "")
    assert str(out) in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err


def test_pictures_of_the_demo(trained):
    from glassformer.cli.demo import gaze, untrained
    from glassformer.train.run.session import resume

    session = resume(trained)
    result = untrained(session.model, session.prepared)
    assert result.step == 0
    assert [sample[:2] for sample in result.samples] == [session.prepared.dev.pairs[0]]
    title, _, columns, *rows = gaze(session.model, session.prepared).splitlines()
    assert title.startswith("Where it looks: decoder.blocks.0.cross_attention, head ")
    assert columns.split() == [*session.prepared.dev.pairs[0].source.split(), "<eos>"]
    assert all(len(row) <= len(columns) for row in rows)
