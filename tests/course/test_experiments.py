"""Exercises without code: answers are compared with the learner's own run or study, and what is wrong is named."""

from __future__ import annotations

import json

import pytest

from glassformer.learn.course import read_course
from glassformer.learn.experiments import judged

COURSE = read_course().holding("further")
CAPTIONS, REMEDIES = COURSE.exercise("F10.1"), COURSE.exercise("F12.1")


def found(folder, exercise, **answers):
    lines = [f'["{exercise.id}"]', *(f"{name} = {json.dumps(value)}" for name, value in answers.items())]
    (folder / "answers.toml").write_text("\n".join(lines), "utf-8")
    verdict = judged(exercise, folder)
    return verdict.state, verdict.why


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    rows = [{"kind": "train", "step": 1, "loss": 3.0}]
    rows += [{"kind": "dev", "step": step, "bleu": bleu} for step, bleu in ((1000, 30.0), (2000, 36.21), (3000, 36.0))]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return tmp_path


@pytest.mark.parametrize(("changes", "state", "message"), [
    ({}, "done", ""),
    ({"bleu": 36.0}, "fails", "the best BLEU is another"),
    ({"step": 3000}, "fails", "the last step is not the best"),
    ({"step": 1000}, "fails", "another step is the best"),
    ({"fine": 11}, "fails", "fine is a number of translations, of ten"),
    ({"bleu": "high"}, "fails", "a number is asked for"),
    ({"run": "nowhere"}, "fails", "there is no"),
    ({"run": "log"}, "fails", "no log of a run that is measured in BLEU"),
])  # fmt: skip
def test_captions(run, changes, state, message):
    (run / "log").mkdir()
    (run / "log" / "metrics.jsonl").write_text('{"kind": "dev", "step": 1, "loss": 2.0}\n', "utf-8")
    result = found(run, CAPTIONS, **{"run": "run", "bleu": 36.2, "step": 2000, "fine": 7, **changes})
    assert result[0] == state
    assert message in result[1]


def row(change, seed, share):
    return {
        "values": {"change": change}, "seed": seed, "metric": "exact_match", "split": "test",
        "test": {"exact_match": share}, "other_data": {}, "other": None, "curve": [], "parameters": 1, "steps": 1,
        "seconds": 1.0, "data": "x",
    }  # fmt: skip


SHARES = {"none": 0.1, "training.warmup=150": 0.7, "model.deepnorm=true": 0.9}


@pytest.mark.parametrize(("shares", "changes", "state", "message"), [
    (SHARES, {}, "done", ""),
    (SHARES, {"best": "training.warmup=150"}, "fails", "another change has the highest share"),
    (SHARES, {"alone": 10}, "fails", "not a percentage"),
    (SHARES, {"alone": 0.3}, "fails", "post-norm alone has another share"),
    (SHARES, {"study": "nowhere"}, "fails", "there is no"),
    ({"none": 0.1, "model.deepnorm=true": 0.9}, {}, "fails", "at least two changes"),
])  # fmt: skip
def test_remedies(tmp_path, shares, changes, state, message):
    (tmp_path / "study").mkdir()
    rows = [row(change, seed, share) for change, share in shares.items() for seed in (1, 2, 3)]
    (tmp_path / "study" / "results.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    answers = {"study": "study", "alone": 0.1, "best": "model.deepnorm=true", **changes}
    result = found(tmp_path, REMEDIES, **answers)
    assert result[0] == state
    assert message in result[1]


def test_few_seeds_and_no_answers(tmp_path):
    assert judged(REMEDIES, tmp_path).state == "not written"
    (tmp_path / "results.jsonl").write_text("\n".join(json.dumps(row(each, 1, 0.5)) for each in SHARES), "utf-8")
    assert found(tmp_path, REMEDIES, study=".", alone=0.5, best="none") == ("fails", "too few seeds to say")
    assert found(tmp_path, REMEDIES, study=".")[0] == "not written"
