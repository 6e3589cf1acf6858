"""Every law that `glassformer verify` tries holds in float64, and a law that is broken is seen."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from glassformer.proof.laws import LAWS, hugging_face
from glassformer.proof.laws.law import Law, NotHere, Setting, apart, judge, same_gradients

NOTEBOOKS = Path(__file__).parents[2].parent / "shared" / "notebooks"
SETTING = Setting(torch.device("cpu"), torch.float64, NOTEBOOKS)


def named(laws):
    return pytest.mark.parametrize("law", laws, ids=lambda law: f"{law.group}: {law.claim}")


@named([law for law in LAWS if law not in hugging_face.LAWS])
def test_law_holds(law):
    check(law)


@named(hugging_face.LAWS)
def test_law_beside_hugging_face_holds(law):
    check(law)


def check(law):
    verdict = judge(law, SETTING)
    if verdict.missing:
        pytest.skip(verdict.missing)
    assert verdict.holds, verdict
    assert verdict.cases > 0


@pytest.mark.parametrize(
    ("errors", "exact", "holds"),
    [
        ([0.0, 1e-13], False, True),
        ([0.0, 1e-11], False, False),
        ([0.0, 1e-13], True, False),
        ([0.0], True, True),
        ([math.nan, 0.0], False, False),
        ([], False, False),
    ],
)
def test_verdict(errors, exact, holds):
    assert judge(Law("group", "claim", lambda setting: iter(errors), exact), SETTING).holds == holds


def test_law_that_cannot_be_tried_says_what_is_missing():
    def errors(setting):
        yield 0.0
        raise NotHere("the moon is not here")

    verdict = judge(Law("group", "claim", errors), SETTING)
    assert (verdict.missing, verdict.holds, verdict.cases) == ("the moon is not here", True, 0)


def test_errors_are_seen():
    x = torch.tensor([1.0, 100.0], dtype=torch.float64)
    assert apart(x, x) == 0.0
    assert apart(x + 1, x) == pytest.approx(1.0)
    assert apart(x[:1], x) == math.inf
    assert math.isnan(apart(x * math.nan, x))
    assert same_gradients({"a": x}, {"a": x, "b": x}) == math.inf
