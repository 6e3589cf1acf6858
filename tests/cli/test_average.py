"""`--average N`: what is scored and what answers is the mean of the newest checkpoints."""

import json
from pathlib import Path

import pytest

from glassformer.store.checkpoint import load_mean, save
from glassformer.train.run.session import start
from train.examples import follow, recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Twelve steps, all kept."""
    run = tmp_path_factory.mktemp("average") / "run"
    follow(start(recipe(checkpoint__every=3), run))
    return run


def test_it_scores_and_answers_by_the_mean(run, trained, tmp_path):
    mean = load_mean(trained, 3)
    (tmp_path / "mean").mkdir()
    (tmp_path / "mean" / "recipe.toml").write_bytes((trained / "recipe.toml").read_bytes())
    save(tmp_path / "mean" / "checkpoints" / "step-000000012", mean.model, mean.tokenizers, state={})
    best, found, expected = (
        json.loads(run("evaluate", *words, "--json").out)["loss"]
        for words in ([str(trained)], [str(trained), "--average", "3"], [str(tmp_path / "mean")])
    )
    assert found == expected != best
    output = run("evaluate", str(trained), "--average", "3", "--json").err
    assert "the mean of its 3 newest checkpoints, on its test split" in output
    answers = []
    for words in ([str(trained), "--average", "3"], [str(tmp_path / "mean")]):
        answers.append(run("translate", *words, stdin=b"a b c\nd e\n").out)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("given", ["0", "-1", "two", "99999"])
def test_what_is_no_number_of_checkpoints_is_refused(refused, a_run, given):
    assert "--average takes a whole number from 1 to 9999" in refused("evaluate", "runs/old", "--average", given)


def test_more_than_there_are_is_refused(run, trained):
    answer = run("evaluate", str(trained), "--average", "99")
    assert answer.code == 2
    assert "Averaging 99 checkpoints needs 99 complete ones" in answer.err
    assert "--checkpoint.keep 99" in answer.err
