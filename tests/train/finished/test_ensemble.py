"""Several runs as one classifier: other shapes, tokenizers and orders of labels; scored on the split of the first."""

from pathlib import Path

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.decode.answer import label_probabilities
from glassformer.store.checkpoint import load, load_mean
from glassformer.train.evaluate import evaluate_ensemble
from glassformer.train.finished.use import answer_lines, evaluate
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.test_classifier import DEV, TEXTS, classifier_recipe, write

LINES = ["red cat runs", "blue cow", "x cat y", "dog"]
NAMES = ["cat", "cow", "dog"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Three: one reads words; one, twice as wide, characters, and has another test split; one takes short texts."""
    made: list[Path] = []
    for number, changes in enumerate(
        [{}, {"tokenizer__kind": "character", "model__d_model": 16}, {"model__max_len": 6, "training__seed": 5}]
    ):
        folder = tmp_path_factory.mktemp("member")
        ready = classifier_recipe(folder, checkpoint__every=3, **changes)
        if number == 1:
            ready = override(ready, {"data.test": str(write(folder / "test.tsv", DEV[:2]))})
        follow(start(ready, folder / "run"))
        made.append(folder / "run")
    return made


def by_hand(runs: list[Path], texts: list[str], loaded=load) -> torch.Tensor:
    """The mean of what each model says of each text alone."""
    tables = []
    for run in runs:
        found = loaded(run)
        ids = [found.tokenizers.source.encode(text) for text in texts]
        tables.append(torch.cat([label_probabilities(found.model, [each]) for each in ids]).double())
    return torch.stack(tables).mean(0)


@pytest.mark.parametrize("size", [1, 3, 99])
def test_lines_get_the_label_of_the_mean(runs, size):
    answers = list(answer_lines(runs[0], enumerate(LINES, 1), size, others=runs[1:]))
    expected = by_hand(runs, LINES)
    assert [list(each.probabilities) for each in answers] == [NAMES] * len(LINES)
    found = torch.tensor([list(each.probabilities.values()) for each in answers], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert [each.label for each in answers] == [NAMES[best] for best in found.argmax(-1).tolist()]


def test_what_a_text_lacks_is_told_of_the_member_that_lacks_the_most(runs):
    """Of words or of characters: x is none that the second has met, y is, and the first has met neither word."""
    for order in (runs[:2], runs[1::-1]):
        answers = answer_lines(order[0], [(1, "cat xxx"), (2, "y yy dog")], 1, others=order[1:])
        assert [[*each.unknown] for each in answers] == [["x", "x", "x"], ["y", "yy"]]


def test_a_run_alone_is_as_it_was(runs):
    found = load(runs[0])
    alone = label_probabilities(found.model, [found.tokenizers.source.encode(LINES[0])])
    [answer] = answer_lines(runs[0], [(1, LINES[0])], 1)
    assert list(answer.probabilities.values()) == alone[0].tolist()


def test_the_mean_is_scored_on_the_split_of_the_first(runs):
    own = load_recipe(runs[0] / "recipe.toml")
    scores = evaluate(runs[0], own, others=runs[1:])
    table = by_hand(runs, [text for text, _ in DEV])
    wanted = torch.tensor([NAMES.index(label) for _, label in DEV])
    right = table[range(len(DEV)), wanted]
    assert scores["n"] == len(DEV)
    assert scores["accuracy"] == (table.argmax(-1) == wanted).double().mean().item()
    assert scores["loss"] == pytest.approx(-right.log().mean().item(), abs=1e-6)
    assert {name: row["n"] for name, row in scores["labels"].items()} == {"cat": 3, "cow": 2, "dog": 2}
    alone = [evaluate(run, override(load_recipe(run / "recipe.toml"), {"data.test": own.data.test})) for run in runs]
    assert alone[0].keys() == scores.keys()
    assert scores["loss"] <= sum(each["loss"] for each in alone) / 3 + 1e-9  # Jensen's inequality
    assert evaluate(runs[1], load_recipe(runs[1] / "recipe.toml"), others=[runs[0]])["n"] == 2


def test_other_data_are_scored_as_of_one_run(runs, tmp_path):
    test = write(tmp_path / "more.tsv", [*DEV[:3], ("", "cat")])
    own = load_recipe(runs[0] / "recipe.toml")
    changed = override(own, {"data.test": str(test), "data.skip_empty": True})
    scores = evaluate(runs[0], changed, others=runs[1:])
    assert (scores["n"], scores["skipped"]) == (3, 1)
    with pytest.raises(ConfigError, match=r"data\.layout='label'; got 'encoder'"):
        evaluate(runs[0], recipe(data__layout="encoder"), others=runs[1:])


def test_the_mean_of_checkpoints_is_taken_of_every_member(runs):
    [answer] = answer_lines(runs[0], [(1, LINES[0])], 1, 2, runs[1:])
    expected = by_hand(runs, LINES[:1], lambda run: load_mean(run, 2))
    assert list(answer.probabilities.values()) == pytest.approx(expected[0].tolist(), abs=1e-6)


def test_a_text_that_is_too_long_is_told_with_the_run(runs, tmp_path):
    """The third takes six tokens, of which <bos> is one."""
    long = " ".join(["red"] * 6)
    answers = answer_lines(runs[0], [(4, "red"), (7, long)], 9, others=runs[1:])
    assert next(answers).label in NAMES
    message = rf"^{runs[2]}: A line may have at most max_len=6 tokens, <bos> included; line 7 has 7"
    with pytest.raises(DataError, match=message):
        next(answers)
    test = write(tmp_path / "test.tsv", [DEV[0], (long, "cat")])
    changed = override(load_recipe(runs[0] / "recipe.toml"), {"data.test": str(test)})
    with pytest.raises(DataError, match=rf"^{runs[2]}: {test}:2: the text has 7 tokens, .*model\.max_len=6"):
        evaluate(runs[0], changed, others=runs[1:])
    assert evaluate(runs[0], changed, others=runs[1:2])["n"] == 2


def test_what_gives_no_labels_is_of_no_ensemble(runs, tmp_path):
    follow(start(recipe(training__steps=1), tmp_path / "run"))
    other, own = tmp_path / "run", load_recipe(runs[0] / "recipe.toml")
    with pytest.raises(ConfigError, match=f"{other} .* answers no lines by itself. Use glassformer translate"):
        list(answer_lines(other, [(1, "a")], 1, others=[]))
    with pytest.raises(ConfigError, match=f"same `data.layout`; {other} has 'encoder-decoder', {runs[0]} has 'label'"):
        list(answer_lines(runs[0], [(1, "a")], 1, others=[other]))
    with pytest.raises(ConfigError, match=f"same `data.layout`; {other} has 'encoder-decoder', {runs[0]} has 'label'"):
        evaluate(runs[0], own, others=[other])
    with pytest.raises(ConfigError, match=f"same `data.layout`; {runs[0]} has 'label', {other} has 'encoder-decoder'"):
        evaluate(other, load_recipe(other / "recipe.toml"), others=runs)


def test_other_labels_are_refused_before_a_line_is_read(runs, tmp_path, monkeypatch):
    rows = [(text, text.split()[0]) for text in TEXTS]
    ready = classifier_recipe(tmp_path, training__steps=1)
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", rows)
    follow(start(ready, tmp_path / "run"))
    message = f"{tmp_path / 'run'} lacks 'cat', which {runs[0]} has"
    with pytest.raises(ConfigError, match=message):
        next(answer_lines(runs[0], (pytest.fail("read") for _ in "x"), 1, others=[tmp_path / "run"]))
    monkeypatch.setattr("glassformer.train.tasks.labels.Labels.read", lambda *_: pytest.fail("read"))
    with pytest.raises(ConfigError, match=message):
        evaluate(runs[0], load_recipe(runs[0] / "recipe.toml"), others=[tmp_path / "run"])


def test_all_run_with_the_threads_of_the_first(runs, monkeypatch):
    seen: list[int] = []

    def score(*given, **more):
        seen.append(torch.get_num_threads())
        return evaluate_ensemble(*given, **more)

    monkeypatch.setattr("glassformer.train.finished.loading.evaluate_ensemble", score)
    evaluate(runs[0], override(load_recipe(runs[0] / "recipe.toml"), {"decode.threads": 2}), others=runs[1:])
    assert seen == [2]
