"""`glassformer ablate` and data: what is missing, or has no answer, is refused once and before anything is made."""

from pathlib import Path

import pytest

LAYERS = ("--vary", "model.n_layers=1,2")
FILES = {
    "none": ((), "There is no file for the train texts. Set --data.train"),
    "no dev": (("--data.train", "a.tsv"), "There is no file for the dev texts. Set --data.dev"),
    "no test": (("--data.train", "a.tsv", "--data.dev", "a.tsv"), "There is no file for the test texts"),
    "not there": (("--data.train", "b.tsv", "--data.dev", "a.tsv", "--data.test", "a.tsv"), "b.tsv: there is no such"),
    "another test": (
        ("--data.train", "a.tsv", "--data.dev", "a.tsv", "--data.test", "a.tsv", "--test", "data.test=b.tsv"),
        "b.tsv: there is no such file",
    ),
}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_refused_once_for_all_arms(refused, name, dry):
    Path("a.tsv").write_text("a\tx\nb\ty\n", "utf-8")
    given, message = FILES[name]
    assert message in refused("ablate", "classify", *LAYERS, *given, *dry, "--out", "study")
    assert not Path("study").exists()


OTHER = {
    "data.symbols=99": "was trained with data.symbols=18; got 99",
    "data.task=sort": "what it was trained to do, data.task='reverse'; got 'sort'",
    "data.dev_size=3": "The test split is scored, but --data.dev-size belongs to",
}


@pytest.mark.parametrize("given", OTHER)
def test_other_data_that_nobody_can_answer_are_refused(refused, given):
    assert OTHER[given] in refused("ablate", "reverse", *LAYERS, "--test", given, "--out", "study")
    assert not Path("study").exists()
