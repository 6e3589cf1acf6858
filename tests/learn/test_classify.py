"""From a labelled file to labels, by the commands a user types, until the model knows every text."""

import json
import random
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
    report = json.loads(capsys.readouterr().out)
    assert (report["accuracy"], report["macro_f1"], report["n"]) == (1.0, 1.0, 36)
    assert report["confusion"] == {"no": {"no": report["labels"]["no"]["n"], "yes": 0},
                                 "yes": {"no": 0, "yes": report["labels"]["yes"]["n"]}}  # fmt: skip
