"""`glassformer heads`: the table, the roles over training, and a run without some of its heads."""

import json
import shutil
from pathlib import Path

import pytest

from glassformer import load, trace
from glassformer.lens.ablate import silence
from lens.test_roles_of_a_run import SMALL, untrained_run


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("heads") / "tiny", "reverse", SMALL, steps=(1, 2))


@pytest.fixture
def tiny(made: Path) -> str:
    """A run in the working folder of the test."""
    shutil.copytree(made, "runs/tiny")
    return "runs/tiny"


def test_the_table(run, tiny):
    answer = run("heads", tiny)
    assert (answer.code, answer.err.count("\n")) == (0, 1)
    assert "reverse/test/distinct" in answer.err
    lines = answer.out.splitlines()
    assert lines[0].split()[:5] == ["head", "role", "score", "chance", "without"]
    assert [line.split()[0] for line in lines[1:7]] == ["e.0.0", "e.0.1", "d.0.0", "d.0.1", "x.0.0", "x.0.1"]
    assert all("nothing to lose" in line for line in lines[1:7])
    assert "No head has a known role." in lines


def test_for_programs(run, tiny):
    report = json.loads(run("heads", tiny, "--json").out)
    assert [head["id"] for head in report["heads"]] == ["e.0.0", "e.0.1", "d.0.0", "d.0.1", "x.0.0", "x.0.1"]
    assert report["heads"][0]["ablation"]["n"] == 30
    assert {*report} == {"probe", "heads", "sentences", "similar"}


def test_roles_over_checkpoints(run, tiny):
    lines = run("heads", tiny, "--checkpoints").out.splitlines()
    assert lines[0].split() == ["head", "step", "1", "step", "2"]
    assert len(lines) == 7
    report = json.loads(run("heads", tiny, "--checkpoints", "--json").out)
    assert [each["step"] for each in report["checkpoints"]] == [1, 2]


def test_a_pruned_run_is_the_run_with_these_heads_silenced(run, tiny):
    answer = run("heads", tiny, "--prune", "x.0.1,e.0.0")
    assert answer.code == 0
    assert "2 of 6 heads removed: x.0.1, e.0.0; without them" in answer.out
    pruned, whole = load("runs/tiny-pruned"), load(tiny)
    assert pruned.state["best"] == 2
    import torch

    tokens, source = torch.tensor([[1, 7, 8]]), torch.tensor([[6, 7, 2]])
    with silence(whole.model, [("cross", 0, 1), ("encoder", 0, 0)]):
        masked = whole.model(tokens, source=source)
    torch.testing.assert_close(pruned.model(tokens, source=source), masked, atol=1e-6, rtol=0)
    assert not torch.equal(whole.model(tokens, source=source), masked)
    assert run("params", "runs/tiny-pruned").code == 0
    again = run("heads", tiny, "--prune", "x.0.1")
    assert (again.code, "overwrites nothing" in again.err) == (2, True)


def test_what_can_go_without_a_loss_goes(run, tiny):
    """An untrained model has nothing to lose, so that all of its heads can go."""
    report = json.loads(run("heads", tiny, "--prune", "unneeded", "--out", "runs/none", "--json").out)
    assert {*report["removed"]} == {"e.0.0", "e.0.1", "d.0.0", "d.0.1", "x.0.0", "x.0.1"}
    assert report["effect"]["drop95"][1] < 0.01


@pytest.mark.parametrize(("words", "message"), [
    (("--prune", "x.9.9"), "got 'x.9.9'. This run has e.0.0, e.0.1"),
    (("--prune", ""), "got ''"),
    (("--out", "elsewhere"), "Add --prune HEADS"),
    (("--prune", "x.0.0", "--checkpoints"), "Give only one of them"),
    (("--prnue", "x.0.0"), "--prune"),
], ids=str)  # fmt: skip
def test_mistakes(run, tiny, words, message):
    answer = run("heads", tiny, *words)
    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert not Path("runs/tiny-pruned").exists()


def test_what_heads_add_to_a_text(run, tiny):
    """Each column adds up, and is the logit that the trace has."""
    report = json.loads(run("heads", tiny, "--attribute", "a b c", "--json").out)
    loaded = load(tiny)
    made = trace(loaded.model, loaded.tokenizers, "a b c")
    assert report["tokens"] == made.output
    logits = made.buffers["logits"][1]
    for t, (step, logit) in enumerate(zip(made.header["steps"], report["logits"], strict=True)):
        assert sum(row[t] for row in report["terms"].values()) == pytest.approx(logit, abs=1e-6)
        assert logit == pytest.approx(float(logits[t, step["chosen"]]), abs=1e-4)
    lines = run("heads", tiny, "--attribute", "a b c").out.splitlines()
    assert lines[0].split() == ["part", *made.output]
    assert [line.split()[0] for line in lines[1:4]] == ["input", "d.0.0", "d.0.1"]
    assert lines[-3].startswith("logit")


def test_what_brings_an_answer_back(run, tiny):
    report = json.loads(run("heads", tiny, "--patch", "a b c", "--into", "a d c", "--json").out)
    assert {each["id"] for each in report["heads"]} == {"e.0.0", "e.0.1", "d.0.0", "d.0.1", "x.0.0", "x.0.1"}
    assert report["streams"][0]["side"] == "encoder"
    assert report["streams"][0]["effects"][0] == pytest.approx([0, 1, 0, 0], abs=1e-5)
    answer = run("heads", tiny, "--patch", "a b c", "--into", "a d c")
    assert answer.out.count("\nblocks") == 2
    assert "1: all of it" in answer.out


def test_words_that_the_vocabulary_lacks_are_told(run, tiny):
    message = "the vocabulary lacks a part of it, 'zebra'; the model read <unk> in its place."
    answer = run("heads", tiny, "--patch", "a zebra c", "--into", "a d c")
    assert answer.err.count(message) == 1
    assert f"'a zebra c': {message}" in answer.err
    assert message not in run("heads", tiny, "--attribute", "a b c").err


@pytest.mark.parametrize(("options", "words"), [
    (["--patch", "a b"], "--patch TEXT --into TEXT"),
    (["--into", "a b"], "--patch TEXT --into TEXT"),
    (["--patch", "a b", "--into", "a b c"], "got 3 and 4"),
    (["--patch", "a b", "--into", "a b"], "different probabilities; these give the same"),
    (["--attribute", "a b", "--checkpoints"], "--checkpoints"),
    (["--attribute", "a b", "--patch", "a", "--into", "b"], "Give only one of them"),
])  # fmt: skip
def test_mistakes_with_texts(run, tiny, options, words):
    answer = run("heads", tiny, *options)
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err
