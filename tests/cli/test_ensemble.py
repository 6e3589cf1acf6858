"""`classify RUN RUN` and `evaluate RUN RUN`, as typed: two small runs, and what is refused."""

import json
from functools import partial
from pathlib import Path

import pytest

from glassformer.train.recipe import Recipe, dumps_recipe, override
from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.test_classifier import classifier_recipe


def runs(folder, recipe_of):
    """Runs of two seeds."""
    for seed in (1, 2):
        follow(start(recipe_of(training__seed=seed), folder / str(seed)))
    return [str(folder / "1"), str(folder / "2")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    return runs(folder, partial(classifier_recipe, folder, training__steps=4))


@pytest.fixture(scope="module")
def trained_pairs(tmp_path_factory):
    return runs(tmp_path_factory.mktemp("pairs"), partial(recipe, data__symbols=5))


def test_it_labels_and_is_scored(run, trained):
    shares = []
    for words in (trained[:1], trained[1:], trained, trained[::-1]):
        lines = run("classify", *words, "--json", stdin=b"red cat runs\n\nblue dog\n").out.splitlines()
        assert lines[1] == "null"
        shares.append([json.loads(line)["probabilities"] for line in lines if line != "null"])
    one, two, both, turned = shares
    assert both == turned
    for alone, other, mean in zip(one, two, both, strict=True):
        assert list(mean) == list(alone)
        assert mean == {label: (share + other[label]) / 2 for label, share in alone.items()}
    output = run("evaluate", *trained, "--json")
    assert output.err == f"Scoring {trained[0]}, {trained[1]} as an ensemble on the test split of {trained[0]}.\n"
    assert {"accuracy", "macro_f1", "loss", "n", "labels", "confusion"} <= json.loads(output.out).keys()
    output = run("evaluate", *trained, "--split", "dev")
    assert "on the dev split of" in output.err
    assert "confusion  cat  cow  dog\n" in output.out


def test_a_classifier_beside_one_that_writes(run, trained, trained_pairs):
    for verb in ("translate", "evaluate", "generate"):
        answer = run(verb, trained_pairs[0], trained[0], stdin=b"x\n")
        assert (answer.code, answer.out) == (2, "")
        assert "The members of an ensemble must have the same `data." in answer.err


def test_each_verb_hands_all_runs_on(run, session, a_run):
    other = Path("runs/other")
    other.mkdir()
    (other / "recipe.toml").write_bytes((a_run / "recipe.toml").read_bytes())
    pairs = (a_run / "recipe.toml").read_text()
    settings = {"data.task": "labelled", "data.layout": "label", "training.metric": "loss"}
    (a_run / "recipe.toml").write_text(dumps_recipe(override(Recipe("old"), settings)))
    run("classify", "runs/old", "runs/other", "--average", "3", stdin=b"x\n")
    (a_run / "recipe.toml").write_text(pairs)
    run("translate", "runs/old", "runs/other", "--average", "3", stdin=b"x\n")
    output = run("evaluate", "runs/old", "runs/other", "--average", "3")
    assert [(call[1], *call[-2:]) for call in session.calls] == [(a_run, 3, [other])] * 3
    assert "runs/old, runs/other as an ensemble, the mean of their 3 newest checkpoints, on the test" in output.err


def test_mistakes(run, refused, trained, a_run):
    assert "runs/old is named twice. Name each run once." in refused("classify", "runs/old", "runs/old/../old")
    assert "runs/old is named twice" in refused("evaluate", "runs/old", "runs/old")
    assert "runs/new is not a run folder" in refused("evaluate", "runs/old", "runs/new")
    answer = run("evaluate", *trained, "--by-length")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith("gives labels. Remove --by-length.\n")
    answer = run("evaluate", *trained, "--decode.precision", "int8")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith("gives labels, so --decode.precision would have no effect. Remove it.\n")
    assert run("evaluate", *trained, "--decode.batch-size", "2").code == 0
