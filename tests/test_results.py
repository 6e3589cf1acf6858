"""The benchmark of expected results: files in the form that a row needs, and rows that start from another's run."""

from __future__ import annotations

import importlib
import json

import pytest

from documents import ROOT

PARAGRAPH = ' Robert <unk> is a well @-@ known actor . He didn \'t earn 1 @,@ 200 or 3 @.@ 5 " pounds " . \n'
REVIEW = 'robert is a well known actor . he did n\'t earn 1,200 or 3.5 " pounds " .'


@pytest.fixture
def module(monkeypatch):
    """A file of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_articles_are_written_as_the_reviews_are(module):
    lines = [" \n", " = Robert <unk> = \n", " \n", PARAGRAPH, " = = Career = = \n"]
    assert [*module("files").as_reviews(lines)] == [REVIEW]


@pytest.fixture
def rows(module, monkeypatch, tmp_path):
    """The module of experiments with a row and one behind it, the folder of the runs, and what was trained."""
    experiments = module("experiments")
    trained = []

    def train_run(recipe, settings, run, wanted):
        trained.append((recipe, settings))
        return None if recipe != "sort" else "it broke"

    def glassformer(*words):
        return 0, json.dumps({"exact_match": 1.0, "n": 3}), ""

    monkeypatch.setattr(experiments, "train_run", train_run)
    monkeypatch.setattr(experiments, "glassformer", glassformer)
    monkeypatch.setattr(experiments, "training_seconds", lambda run: 1.0)
    first = experiments.Experiment("the first", "copy", "")
    then = experiments.Experiment("then", "reverse", "", after="the first")
    monkeypatch.setattr(experiments, "ROWS", {"the first": first})
    return experiments, then, tmp_path, trained


def test_a_row_behind_another_starts_from_its_run_of_the_same_seed(rows):
    experiments, then, runs, trained = rows
    result = experiments.run_experiment(then, 7, runs, None, ["--training.steps=5"])
    both = ["--training.steps=5", "--training.seed=7"]
    assert trained == [
        ("copy", both),
        ("reverse", [*both, f"--training.start-from={runs / 'the-first-seed-7'}"]),
    ]
    assert result.train == ["reverse", *trained[1][1]]


def test_what_was_trained_before_stays_until_the_run_before_is_another(rows, monkeypatch):
    experiments, then, runs, trained = rows
    for times in (2, 2):
        experiments.run_experiment(then, 1, runs, None, [])
        assert len(trained) == times
    changed = experiments.ROWS["the first"].__class__("the first", "copy", "", settings=("--training.steps", "9"))
    monkeypatch.setattr(experiments, "ROWS", {"the first": changed})
    experiments.run_experiment(then, 1, runs, None, [])
    assert [recipe for recipe, _ in trained] == ["copy", "reverse"] * 2


def test_a_row_whose_run_before_failed_is_not_trained_and_says_why(rows, monkeypatch):
    experiments, then, runs, trained = rows
    monkeypatch.setattr(experiments, "ROWS", {"the first": experiments.Experiment("the first", "sort", "")})
    failed = experiments.run_experiment(then, 1, runs, None, [])
    assert failed == experiments.Failure("then", 1, "the first comes before it: it broke")
    assert [recipe for recipe, _ in trained] == ["sort"]
