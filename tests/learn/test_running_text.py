"""A language model learns what there is to learn of a text, and no more: its loss comes to the source's entropy."""

import json
import math
import random
from pathlib import Path

import pytest

from glassformer.cli.main import main

LETTERS = "abcdef"
CHANCES = [[0.7, 0.2, 0.1, 0, 0, 0], [0, 0.6, 0.2, 0.2, 0, 0], [0, 0, 0.5, 0.3, 0.2, 0],
           [0, 0, 0, 0.4, 0.4, 0.2], [0.5, 0, 0, 0, 0.3, 0.2], [0.8, 0.1, 0, 0, 0, 0.1]]  # fmt: skip
"""A Markov chain: the chance of each letter behind each."""
TINY = (
    *("--model.d-model", "32", "--model.n-heads", "2", "--model.n-layers", "1", "--model.d-ff", "64"),
    *("--data.window", "32", "--training.batch-tokens", "512", "--training.steps", "150", "--training.warmup", "10"),
    *("--training.evaluate-every", "0", "--training.precision", "float32", "--training.threads", "1"),
    *("--training.device", "cpu", "--training.samples", "1", "--training.schedule", "linear"),
    *("--training.learning-rate", "2e-2", "--checkpoint.every", "0"),
)


def chain(n: int, seed: int) -> str:
    """Text of the chain."""
    draw, at, text = random.Random(seed), 0, []
    for _ in range(n):
        at = draw.choices(range(len(LETTERS)), CHANCES[at])[0]
        text.append(LETTERS[at])
    return "".join(text)


def entropy_rate() -> float:
    """Nats a letter: the entropy of each row of `CHANCES`, by how often its letter stands in the chain."""
    often = [1 / len(LETTERS)] * len(LETTERS)
    for _ in range(500):
        often = [sum(often[i] * CHANCES[i][j] for i in range(len(LETTERS))) for j in range(len(LETTERS))]
    rows = (-sum(p * math.log(p) for p in row if p) for row in CHANCES)
    return sum(p * row for p, row in zip(often, rows, strict=True))


def loss_of(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> float:
    """The loss on new text of the chain, of a model that was trained on some."""
    (folder / "train.txt").write_text(chain(60_000, 1), "utf-8")
    (folder / "test.txt").write_text(chain(40_000, 2), "utf-8")
    out = str(folder / "run")
    assert main(["train", "lm", "--data.text", str(folder / "train.txt"), *TINY, *words, "--out", out]) == 0
    capsys.readouterr()
    assert main(["evaluate", out, "--data.text", str(folder / "test.txt"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["loss"]


def test_the_loss_comes_to_the_entropy_rate(tmp_path, capsys):
    assert loss_of(tmp_path, capsys) == pytest.approx(entropy_rate(), rel=0.02)


def test_a_model_that_sees_the_future_goes_below_it(tmp_path, capsys):
    assert loss_of(tmp_path, capsys, "--break", "leaky-mask") < 0.9 * entropy_rate()


def test_labels_of_another_place_stay_above_it(tmp_path, capsys):
    assert loss_of(tmp_path, capsys, "--break", "shifted-labels") > 1.1 * entropy_rate()
