"""What `classify` asks of the session, and what it writes for each line."""

import json
from pathlib import Path

import pytest

from glassformer.train.recipe import Recipe, dumps_recipe, override


@pytest.fixture
def a_run(a_run: Path) -> Path:
    """A run on labelled text."""
    settings = {"data.task": "labelled", "data.layout": "label", "training.metric": "loss", "decode.batch_size": 3}
    (a_run / "recipe.toml").write_text(dumps_recipe(override(Recipe("old"), settings)))
    return a_run


def test_classify(run, session, a_run):
    """The number of each line is its own, however many are read together."""
    data = "\ufeffein Hund\r\n\n  \ngrün\nx?\ny".encode()
    for size in ("1", "2", "9"):
        answer = run("classify", "runs/old", "--batch-size", size, stdin=data)
        assert answer.out == "1:8\n\n\n4:4\n5:2\n6:1\n"
        assert answer.err.startswith("1 line (5): the vocabulary lacks a part of the line")
    assert session.calls == [("classify", a_run, size) for size in (1, 2, 9)]


def test_classify_with_probabilities(run, session, a_run):
    assert run("classify", "runs/old", "--probabilities", stdin=b"x\n\n").out == "1:1\t1:1=0.7500\té=0.2500\n\n"
    answer = run("classify", "runs/old", "--json", stdin=b"x\n\n")
    assert answer.out == '{"label": "1:1", "probabilities": {"1:1": 0.75, "é": 0.25}}\nnull\n'


def test_classify_tells_of_a_text_longer_than_those_in_training(run, session, a_run):
    answer = run("classify", "runs/old", "--json", stdin=b"x\n" + b"y" * 31)
    assert (
        answer.err
        == "1 line (2): longer than every source in training (1 to 30 tokens), so the answer is less reliable.\n"
    )
    first, second = map(json.loads, answer.out.splitlines())
    assert "untrained_length" not in first
    assert second["untrained_length"] == {"tokens": 31, "shortest": 1, "longest": 30}
