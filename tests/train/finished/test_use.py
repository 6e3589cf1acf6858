"""What can be done with a run: it is scored as it was in training, by its best checkpoint, and answers line by line."""

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.fast.decoding import for_decoding
from glassformer.lens.roles.diagnosis import over_checkpoints
from glassformer.proof.doctor.case import Case
from glassformer.store.checkpoint import load
from glassformer.store.folders import step_folder
from glassformer.train.finished.use import best_model, evaluate, translate
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe, override
from glassformer.train.run.session import resume, start
from specimens import native_cpp
from train.examples import final, follow, killed_after, recipe, texts
from train.finished.answering import LAYOUTS, LINES, layout_of, numbered


def test_scores_are_those_of_the_best_checkpoint(run):
    best = load(run).state["step"]
    assert best == 3
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (result,) = (line for line in lines if line["kind"] == "dev" and line["step"] == best)
    scores = evaluate(run, recipe(data__layout=layout_of(run)), "dev")
    assert scores == {name: result[name] for name in scores}
    assert evaluate(run, recipe(data__layout=layout_of(run)), "test") != scores


def test_scores_by_length_are_given_where_asked_for(run):
    requested = recipe(data__layout=layout_of(run))
    scores = evaluate(run, requested, by_length=True)
    table = scores.pop("by_length")
    assert scores == evaluate(run, requested)
    assert [*table] == sorted(table)
    assert {*table} <= {"2", "3", "4"}
    assert sum(row["n"] for row in table.values()) == scores["n"]
    assert sum(row["n"] * row["exact_match"] for row in table.values()) == pytest.approx(
        scores["n"] * scores["exact_match"]
    )


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=native_cpp)])
def test_answers_are_written_with_the_weights_asked_for(run, monkeypatch, precision):
    """By translate and by evaluate; the loss is that of the model as it is."""
    plain, rounded = load_recipe(run / "recipe.toml"), dict[str, object]()

    def watched(model, precision, cache, *, compile):
        assert not compile
        rounded[precision] = model
        return for_decoding(model, precision, cache)

    monkeypatch.setattr("glassformer.train.finished.use.prepared", watched)
    monkeypatch.setattr("glassformer.train.evaluate.prepared", watched)
    options = override(plain, {"decode.precision": precision})
    assert len(list(translate(run, numbered(LINES), 2, options))) == len(LINES)
    assert rounded.keys() == {precision}
    rounded.clear()
    assert evaluate(run, options)["loss"] == evaluate(run, plain)["loss"]
    assert rounded.keys() == {precision, "float32"}


def test_steps_are_compiled_where_that_is_asked_for_and_never_in_training(run, tmp_path, monkeypatch):
    seen = []

    def watched(model, precision, cache, *, compile):
        seen.append(compile)
        return model

    monkeypatch.setattr("glassformer.train.finished.use.prepared", watched)
    monkeypatch.setattr("glassformer.train.evaluate.prepared", watched)
    plain = load_recipe(run / "recipe.toml")
    options = override(plain, {"decode.compile": True})
    for given in (plain, options):
        assert len(list(translate(run, numbered(LINES), 2, given))) == len(LINES)
        evaluate(run, given)
    assert seen == [False, False, True, True]
    seen.clear()
    follow(start(options, tmp_path / "run"))
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("skip", [False, True])
def test_skipped_pairs_are_part_of_the_score(run, tmp_path, skip):
    paths = texts(
        tmp_path, source=["a b", "c", "", "d e"][: 4 if skip else 2], target=["b a", "c", "a", ""][: 4 if skip else 2]
    )
    files = {"data.task": "pairs", "data.skip_empty": skip}
    files |= {f"data.test_{side}": str(path) for side, path in paths.items()}
    requested = recipe(data__layout=layout_of(run))
    if layout_of(run) == "encoder":  # whose answers are as long as their sources, which no file promises
        with pytest.raises(ConfigError, match=r"got data\.task='pairs'"):
            override(requested, files)
        return
    scores = evaluate(run, override(requested, files))
    assert scores["n"] == 2
    assert scores.get("skipped") == (2 if skip else None)
    assert {"bleu", "chrf", "bleu_signature"} <= scores.keys()


@pytest.mark.parametrize("what", ["evaluate", "translate", "params", "doctor", "resume"])
def test_a_recipe_that_was_changed_to_another_model_is_refused_by_all(run, tmp_path, what):
    changed = shutil.copytree(run, tmp_path / "run")
    requested = override(load_recipe(run / "recipe.toml"), {"model.d_ff": 16})
    (changed / "recipe.toml").write_text(dumps_recipe(requested), "utf-8")
    uses = {
        "evaluate": lambda: evaluate(changed, requested),
        "translate": lambda: list(translate(changed, numbered(LINES), 2)),
        "params": lambda: best_model(changed),
        "doctor": lambda: Case(changed, requested).model,
        "resume": lambda: resume(changed),
    }
    with pytest.raises(CheckpointError, match=r"recipe\.toml or .* asks .* another: .*d_ff is 12, and 16 is asked for"):
        uses[what]()


UNSCORABLE = {
    "another layout": ({}, r"layout that it was trained with, data\.layout="),
    "another task": ({"data.task": "sort"}, r"what it was trained to do, data\.task='reverse'; got 'sort'"),
    "more symbols": ({"data.symbols": 6}, r"was trained with data\.symbols=5; got 6, .* at most 5"),
}


@pytest.mark.parametrize("name", UNSCORABLE)
def test_data_that_the_model_cannot_answer_are_refused(run, name):
    changes, message = UNSCORABLE[name]
    if name == "another layout":
        changes = {"data.layout": LAYOUTS[1 - LAYOUTS.index(layout_of(run))]}
    with pytest.raises(ConfigError, match=message):
        evaluate(run, override(load_recipe(run / "recipe.toml"), changes))


def test_fewer_symbols_and_other_lengths_are_scored(run):
    fewer = {"data.symbols": 4, "data.min_length": 3, "data.max_length": 5, "data.test_size": 4}
    assert evaluate(run, override(load_recipe(run / "recipe.toml"), fewer))["n"] == 4


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_best_checkpoint_is_not_replaced_in_silence(run, tmp_path, capsys, harm):
    hurt = tmp_path / "run"
    shutil.copytree(run, hurt)
    best = step_folder(hurt, 3)
    if harm == "gone":
        shutil.rmtree(best)
    else:
        (best / "model.safetensors").write_bytes(b"x")
    for use in (
        lambda: evaluate(hurt, recipe(data__layout=layout_of(run)), "dev"),
        lambda: list(translate(hurt, numbered(LINES), 2)),
        lambda: best_model(hurt),
    ):
        use()
        output = capsys.readouterr().err
        assert re.search(rf"skipped: {best}.*\nused instead: .*step-000000012\n", output), output
        assert output.count("\n") == 2


@pytest.mark.parametrize(("requested", "longest", "message"), [
    (4, None, "decode.max_new_tokens=4"),
    (4, 9, "decode.max_new_tokens=4"),
    (99, 9, "model.max_len=9, the most that the model reads"),
    (None, 9, "model.max_len=9, the most that the model reads"),
    (None, None, "twice the source length plus ten, as decode.max_new_tokens is not set"),
])  # fmt: skip
def test_a_cut_answer_says_which_limit_cut_it(tmp_path, monkeypatch, requested, longest, message):
    settings = {"decode__max_new_tokens": requested, "model__max_len": longest, "training__steps": 1}
    follow(start(recipe(**settings), tmp_path / "run"))
    monkeypatch.setattr("glassformer.decode.answer.chooser", lambda *_: never_ends)
    [answer] = translate(tmp_path / "run", [(1, "a b")], 1)
    assert answer.cut == message


def never_ends(logits, _):
    return logits[:, 6:].argmax(-1) + 6


# --- A finished run has threads of its own, whatever it is loaded for, and not those that it was trained with


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loading") / "run"
    follow(start(recipe(), folder))
    return folder


def own(run: Path, **decode: object) -> Recipe:
    return override(load_recipe(run / "recipe.toml"), {f"decode.{name}": value for name, value in decode.items()})


def test_threads_are_not_those_of_training(plain, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(
        "glassformer.train.finished.use.answers", lambda *given, **more: seen.append(torch.get_num_threads()) or []
    )
    assert own(plain).training.threads == 1
    for threads in (2, 3):
        with suppress(ValueError):  # as nothing is answered
            next(translate(plain, [(1, "a b")], 1, own(plain, threads=threads)))
    assert seen == [2, 3]


def test_each_checkpoint_is_diagnosed_with_these_threads(plain, tmp_path, monkeypatch):
    asked_for: list[int] = []
    monkeypatch.setattr("glassformer.lens.roles.diagnosis.choose_threads", asked_for.append)
    (again := tmp_path / "run").mkdir()
    (again / "recipe.toml").write_text(dumps_recipe(own(plain, threads=3)))
    (again / "checkpoints").symlink_to(plain / "checkpoints")
    next(over_checkpoints(again, sequences=2))
    assert asked_for == [3]


def test_a_recipe_from_before_there_were_such_threads(plain, tmp_path):
    before, after = (plain / "recipe.toml").read_text().split("[decode]")
    (old := tmp_path / "recipe.toml").write_text(f"{before}[decode]{re.sub('(?m)^threads = .*$', '', after)}")
    assert load_recipe(old) == own(plain)
    assert "threads = 0" in after


def test_a_resume_may_give_other_threads(whole, tmp_path):
    run = killed_after(whole, 5, tmp_path / "run")
    follow(resume(run, requested={"decode.threads": 2}))
    assert final(run)["model.safetensors"] == final(whole)["model.safetensors"]
    assert load_recipe(run / "recipe.toml").decode.threads == 2
