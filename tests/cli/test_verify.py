"""`glassformer verify`: a row for each law, and an exit code for a broken one."""

import json
import re

import pytest

from glassformer.proof.laws.law import Law, NotHere


@pytest.fixture
def laws(monkeypatch):
    """Tries these laws instead of the library's; the number of threads stays as it is."""
    tried = []
    monkeypatch.setattr("glassformer.proof.laws.LAWS", tried)
    monkeypatch.setattr("glassformer.base.runtime.choose_threads", lambda: 1)
    return tried


def away():
    raise NotHere("no such machine")


def test_verify_prints_a_row_for_each_law(run, laws):
    laws += [Law("masks", "holds", lambda setting: iter([0.0])), Law("masks", "elsewhere", lambda setting: away())]
    answer = run("verify", "--dtype", "float32")
    assert answer.code == 0
    assert re.search(r"masks +holds +1 cases +worst +0\.0e\+00 +bound 9\.8e-04 +holds", answer.out)
    assert re.search(r"masks +elsewhere +not tried: no such machine", answer.out)
    assert "1 hold, 0 broken, 1 not tried." in answer.err


def test_verify_of_a_broken_law_exits_3(run, laws):
    laws += [Law("masks", "broken", lambda setting: iter([0.5])), Law("masks", "holds", lambda setting: iter([0.0]))]
    assert "worst  5.0e-01  bound 1.8e-12  BROKEN" in run("verify").out
    answer = run("verify", "--json")
    assert answer.code == 3
    assert [(each["claim"], each["worst"], each["holds"]) for each in json.loads(answer.out)] == [
        ("broken", 0.5, False),
        ("holds", 0.0, True),
    ]


@pytest.mark.parametrize("words", [("--dtype", "float16"), ("--notebooks", "nowhere"), ("--device", "toaster")])
def test_verify_refuses(run, words):
    answer = run("verify", *words)
    assert answer.code == 2
    assert words[1] in answer.err
