"""From a labelled file to labels, by the commands a user types, until the model knows every text."""

import io
import json
import random
import sys
from pathlib import Path

import pytest

from glassformer.cli.main import main
from glassformer.nn.heads import POOLINGS

TINY = (
    *("--model.d-model", "16", "--model.n-heads", "2", "--model.d-ff", "16", "--model.dropout", "0"),
    *("--model.init", "xavier", "--model.scale-embeddings", "true"),
    *("--model.token-dropout", "0", "--model.head-dropout", "0", "--tokenizer.min-count", "1"),
    *("--training.threads", "1", "--training.device", "cpu", "--training.precision", "float32"),
    *("--training.steps", "120", "--training.warmup", "10", "--training.learning-rate", "1e-2"),
    *("--training.batch-tokens", "600", "--training.evaluate-every", "120", "--training.samples", "1"),
)
WORDS = ("the", "a", "film", "was", "really", "so")
TEXTS = [f"{one} film was {'not ' if no else ''}{how} {two}" for one in WORDS for two in WORDS
         for no in (False, True) for how in ("good", "bad")]  # fmt: skip
ROWS = [(text, "yes" if ("not" in text) != ("good" in text) else "no") for text in TEXTS]


def as_tsv(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("class\tid\tsentence\n" + "".join(f"{label}\t0\t{text}\n" for text, label in rows), "utf-8")
    return str(path)


def trained(folder: Path, *words: str) -> str:
    rows = random.Random(0).sample(ROWS, len(ROWS))
    train, dev = as_tsv(folder / "train.tsv", rows[36:]), as_tsv(folder / "dev.tsv", rows[:36])
    files = ("--data.train", train, "--data.dev", dev, "--data.test", dev)
    columns = ("--data.text-column", "sentence", "--data.label-column", "class")
    out = str(folder / "run")
    assert main(["train", "classify", *TINY, *files, *columns, *words, "--out", out]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return trained(tmp_path_factory.mktemp("classify"))


@pytest.mark.parametrize(
    "pooling", [pytest.param(each, marks=[pytest.mark.slow] * (each != "attention")) for each in sorted(POOLINGS)]
)
def test_a_rule_of_two_words_is_learned(tmp_path, capsys, pooling):
    """No single word tells the label: it is good or not good, bad or not bad."""
    out = trained(tmp_path, "--model.pooling", pooling)
    capsys.readouterr()
    assert main(["evaluate", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["accuracy"], told["macro_f1"], told["n"]) == (1.0, 1.0, 36)
    assert told["confusion"] == {"no": {"no": told["labels"]["no"]["n"], "yes": 0},
                                 "yes": {"no": 0, "yes": told["labels"]["yes"]["n"]}}  # fmt: skip


def test_table(run, capsys):
    assert main(["evaluate", run, "--split", "dev"]) == 0
    told = capsys.readouterr().out
    assert "accuracy  1.0000\n" in told
    assert "labels   n  given  precision  recall      f1\n" in told
    assert "confusion  no  yes\n" in told


def answered(monkeypatch, capsys, run: str, text: str, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capsys.readouterr()
    code = main(["classify", run, *words])
    return code, *capsys.readouterr()


def test_lines_are_labelled(run, capsys, monkeypatch):
    lines = "so film was not bad the\r\n\nreally film was bad a\nzebra film was good so"
    for size in ("1", "2", "64"):
        code, out, err = answered(monkeypatch, capsys, run, lines, "--batch-size", size)
        assert (code, out) == (0, "yes\n\nno\nyes\n")
        assert (
            err == "1 line (4): the vocabulary lacks a part of the line, 'zebra'; the model read <unk> in its place.\n"
        )
    _, out, _ = answered(monkeypatch, capsys, run, lines, "--probabilities")
    assert out.splitlines()[0].startswith("yes\tno=0.0")
    assert out.splitlines()[1] == ""
    _, out, _ = answered(monkeypatch, capsys, run, lines, "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert told[1] is None
    assert told[2]["label"] == "no"
    assert sum(told[0]["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)


def test_invalid_utf8_is_named_by_line(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\nb\xe4d\n")))
    assert main(["classify", run]) == 2
    assert "line 2: byte 2 of the line (0xe4)" in capsys.readouterr().err
