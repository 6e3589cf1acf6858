"""Inputs that are shorter or longer than all that a run was trained on: how that is known, and who says so."""

import io
import json

import pytest

from glassformer.cli.main import main
from glassformer.lens.server.subject import subject_of
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.folders import step_folder
from glassformer.train.finished.use import answer_lines, translate
from glassformer.train.finished.writing import Writer, note_of
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.session import resume, start
from glassformer.train.sample_lengths import Untrained, in_words, joined, untrained
from train.examples import OF_FILES, follow, recipe, texts

QUICK = {"training.steps": 2, "training.warmup": 0, "training.evaluate_every": 0}


def pairs_run(folder, sources, **more):
    """A run on the pairs of these sources with themselves backwards."""
    folder.mkdir()
    targets = [" ".join([*source.split()[::-1], "!"]) for source in sources]
    paths = texts(folder, train_source=sources, train_target=targets, dev_source=sources, dev_target=targets)
    options = {"data.task": "pairs"} | {f"data.{name}": str(path) for name, path in paths.items()}
    follow(start(override(recipe(), options | QUICK | more), folder / "run"))
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pairs_run(tmp_path_factory.mktemp("lengths") / "a", ["a b c", "b c a b", "c a b a c"])


def lengths(run):
    return load(run).state["lengths"]


def test_a_run_records_its_shortest_and_its_longest_sample_of_each_side(run):
    assert lengths(run) == {"source": [3, 5], "target": [4, 6]}


def test_an_input_outside_is_told_from_those_at_the_ends(run):
    state = load(run).state
    assert [untrained(n, state) is None for n in (2, 3, 5, 6)] == [False, True, True, False]


@pytest.mark.parametrize(("tokens", "message"), [
    ([2], "shorter than every source in training (3 to 5 tokens), so the answer is less reliable"),
    ([9], "longer than every source in training (3 to 5 tokens), so the answer is less reliable"),
    ([2, 9], "shorter or longer than every source in training (3 to 5 tokens), so the answers are less reliable"),
])  # fmt: skip
def test_the_direction_and_the_lengths_in_training_are_told(tokens, message):
    assert in_words([Untrained(n, 3, 5, "source") for n in tokens]) == message


def test_translate_and_generate_tell_which_are_outside(run):
    lines = ["a b", "a b c", "a b c a b c"]
    answers = [each.untrained for each in translate(run, list(enumerate(lines, 1)), 2)]
    assert answers == [Untrained(2, 3, 5, "source"), None, Untrained(6, 3, 5, "source")]
    writer = Writer(run, load_recipe(run / "recipe.toml"))
    assert writer.untrained(lines) == {1: answers[0], 3: answers[2]}
    assert note_of(writer.untrained(lines), "prompt").startswith("prompt 1, 3: shorter or longer than every source")
    assert note_of(writer.untrained(lines[1:2]), "prompt") == ""


def test_a_label_for_a_text_of_a_new_length_is_told(tmp_path):
    labelled = "".join(f"{text}\t{label}\n" for text, label in [("a b c", "good"), ("b c", "bad"), ("a a b", "good")])
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(labelled)
    files = {f"data.{name}": str(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
    task = {"data.task": "labelled", "data.layout": "label", "training.metric": "loss", "decode.max_new_tokens": None}
    follow(start(override(recipe(), task | files | QUICK), tmp_path / "run"))
    assert lengths(tmp_path / "run") == {"text": [2, 3]}
    lines = [(1, "a"), (2, "a b"), (3, "a b c a")]
    found = [each.untrained for each in answer_lines(tmp_path / "run", lines, 2)]
    assert found == [Untrained(1, 2, 3, "text"), None, Untrained(4, 2, 3, "text")]


@pytest.mark.parametrize(
    ("name", "verb", "text"),
    [("tag", "tag", "a O\nb B-X\nc O\n\nb B-X\nc O\n"), ("regression", "predict", "text,n\na b c,1\nb c,2\n")],
)
def test_tags_and_numbers_of_a_line_of_a_new_length_are_told(tmp_path, capsys, monkeypatch, name, verb, text):
    layout = {"data.layout": "text-numbers"} if name == "regression" else {}
    (tmp_path / "a.txt").write_text(text)
    files = {"data.train": str(tmp_path / "a.txt"), "data.dev": str(tmp_path / "a.txt")}
    follow(start(override(load_recipe(name), OF_FILES | layout | files | QUICK), tmp_path / "run"))
    assert lengths(tmp_path / "run") == {"text": [2, 3]}
    for switches in ([], ["--json"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\na b\n\na b c\na b c a\n")))
        assert main([verb, str(tmp_path / "run"), *switches]) == 0
        shown = capsys.readouterr()
        assert "2 lines (1, 5): shorter or longer than every text in training (2 to 3 tokens)" in shown.err
    answers = [json.loads(line) for line in shown.out.splitlines()]
    outside = [each and each.get("untrained_length", {}).get("tokens") for each in answers]
    assert outside == [1, None, None, None, 4]


def test_an_older_run_says_nothing_and_neither_does_what_resumes_it(run, tmp_path):
    loaded = load(run)
    older = {name: value for name, value in loaded.state.items() if name != "lengths"}
    save(tmp_path / "older", loaded.model, loaded.tokenizers, optimizer=load_optimizer(run), state=older)
    kept = tmp_path / "run"
    (kept / "checkpoints").mkdir(parents=True)
    (tmp_path / "older").rename(step_folder(kept, 2))
    (kept / "recipe.toml").write_bytes((run / "recipe.toml").read_bytes())
    assert [each.untrained for each in translate(kept, [(1, "a")], 1)] == [None]
    follow(resume(kept, ["training.steps"], {"training.steps": 3}))
    assert load(step_folder(kept, 3)).state["lengths"] == {}


def test_a_run_that_starts_from_another_has_the_lengths_of_both(run, tmp_path):
    tuned = pairs_run(tmp_path / "b", ["a b c", "a b c b c a"], **{"training.start_from": str(run)})
    assert lengths(tuned) == {"source": [3, 6], "target": [4, 7]}


def test_other_data_on_resuming_widen_the_lengths(run, tmp_path):
    first = pairs_run(tmp_path / "b", ["a b c", "b a c"])
    more = texts(tmp_path, source=["a b", "c b a"], target=["b a !", "a b c !"])
    options = {f"data.train_{side}": str(path) for side, path in more.items()}
    follow(resume(first, [*options, "training.steps"], options | {"training.steps": 3}))
    assert load(step_folder(first, 3)).state["lengths"] == {"source": [2, 3], "target": [3, 4]}


def test_what_is_unknown_of_one_is_unknown_of_both():
    one = {"source": [3, 5], "target": [1, 1]}
    assert joined(one, {}) == joined({}, one) == {}
    assert joined(one, {"text": [3, 5]}) == {}
    assert joined(one, {"source": [4, 9], "target": [1, 2]}) == {"source": [3, 9], "target": [1, 2]}


def test_running_text_has_no_shortest_and_no_longest(tmp_path):
    (tmp_path / "text.txt").write_text("abc abd " * 60)
    options = {"data.task": "text", "data.layout": "decoder", "data.text": str(tmp_path / "text.txt"), "data.window": 8}
    more = {"tokenizer.kind": "character", "decode.max_new_tokens": None, "training.batch_tokens": 64}
    follow(start(override(recipe(), options | more | QUICK), tmp_path / "run"))
    assert lengths(tmp_path / "run") == {}
    assert Writer(tmp_path / "run", load_recipe(tmp_path / "run" / "recipe.toml")).untrained(["a" * 99]) == {}


def test_the_explorer_has_a_note_with_such_a_trace(run):
    subject = subject_of(run)
    assert subject.trace("a b").header["run"]["note"] == "shorter than every source in training (3 to 5 tokens)"
    assert "note" not in subject.trace("a b c").header["run"]
