"""What can be done with a run: it is scored as it was in training, by its best checkpoint, and answers line by line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from glassformer.data.tokens.vocabulary import UNK
from glassformer.decode.answer import answer, answers
from glassformer.decode.choose.unwritten import unwritten
from glassformer.decode.prepare import prepared
from glassformer.foundation.errors import CheckpointError, ConfigError, DataError, RowError
from glassformer.proof.doctor.case import Case
from glassformer.store.checkpoint import load
from glassformer.store.folders import step_folder
from glassformer.train.finished.use import evaluate, groups, parameters, translate
from glassformer.train.recipe import dumps_recipe, load_recipe, override
from glassformer.train.run.session import resume, start
from specimens import native_cpp
from train.examples import follow, recipe, texts

LINES = ["a b c", "e", "d d d d", "x a y", "b a"]
LAYOUTS = ["encoder-decoder", "encoder"]


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request, tmp_path_factory) -> Path:
    """A run whose best checkpoint is not its newest: no evaluation is said to beat the first."""
    folder = tmp_path_factory.mktemp("use") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassformer.train.run.running.rank", lambda metrics, name: (0.0, 0.0))
        follow(start(recipe(data__layout=request.param, training__evaluate_every=3), folder))
    return folder


def test_scores_are_those_of_the_best_checkpoint(run):
    best = load(run).state["step"]
    assert best == 3
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (told,) = (line for line in lines if line["kind"] == "dev" and line["step"] == best)
    scores = evaluate(run, recipe(data__layout=layout_of(run)), "dev")
    assert scores == {name: told[name] for name in scores}
    assert evaluate(run, recipe(data__layout=layout_of(run)), "test") != scores


def test_scores_by_length_are_given_where_asked_for(run):
    asked = recipe(data__layout=layout_of(run))
    told = evaluate(run, asked, by_length=True)
    table = told.pop("by_length")
    assert told == evaluate(run, asked)
    assert [*table] == sorted(table)
    assert {*table} <= {"2", "3", "4"}
    assert sum(row["n"] for row in table.values()) == told["n"]
    assert sum(row["n"] * row["exact_match"] for row in table.values()) == pytest.approx(
        told["n"] * told["exact_match"]
    )


def layout_of(run: Path) -> str:
    return LAYOUTS[load(run).model.decoder is None]


def numbered(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, start=1))


@pytest.mark.parametrize("batch_size", [1, 2, 99])
def test_lines_are_answered_in_order_whatever_the_batches(run, batch_size):
    loaded = load(run)
    sources = [loaded.tokenizers.source.encode(line) for line in LINES]
    limit = 4 if loaded.model.config.stack.causal else None  # an encoder fills its blanks, whatever the recipe says
    expected = answer(loaded.model, sources, max_new_tokens=limit, never=unwritten(layout_of(run)))
    told = list(translate(run, numbered(LINES), batch_size))
    assert [each.text for each in told] == [loaded.tokenizers.target.decode(each.ids) for each in expected]
    assert [each.cut for each in told] == [None if each.complete else "decode.max_new_tokens=4" for each in expected]
    assert [len(each.unknown) for each in told] == [0, 0, 0, 2, 0] == [source.count(UNK) for source in sources]


def test_lines_are_read_as_they_come(run):
    """The first answers are there before the third group is read."""
    lines = iter(numbered([*LINES[:4], "read too far"]))
    told = translate(run, lines, 2)
    next(told), next(told), next(told)
    assert list(lines) == [(5, "read too far")]


def test_every_parameter_has_its_row(run):
    model, (rows, total) = load(run).model, parameters(run)
    assert {row.name: row.shape for row in rows} == {name: p.shape for name, p in model.named_parameters()}
    assert total == sum(row.numbers for row in rows) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=native_cpp)])
def test_answers_are_written_with_the_weights_asked_for(run, monkeypatch, precision):
    """By translate and by evaluate; the loss is that of the model as it is."""
    plain, rounded = load_recipe(run / "recipe.toml"), dict[str, object]()

    def watched(model, precision, cache, *, compile):
        assert not compile
        rounded[precision] = model
        return prepared(model, precision, cache)

    monkeypatch.setattr("glassformer.train.finished.use.prepared", watched)
    monkeypatch.setattr("glassformer.train.score.evaluate.prepared", watched)
    asked = override(plain, {"decode.precision": precision})
    assert len(list(translate(run, numbered(LINES), 2, asked))) == len(LINES)
    assert rounded.keys() == {precision}
    rounded.clear()
    assert evaluate(run, asked)["loss"] == evaluate(run, plain)["loss"]
    assert rounded.keys() == {precision, "float32"}


def test_steps_are_compiled_where_that_is_asked_for_and_never_in_training(run, tmp_path, monkeypatch):
    seen = []

    def watched(model, precision, cache, *, compile):
        seen.append(compile)
        return model

    monkeypatch.setattr("glassformer.train.finished.use.prepared", watched)
    monkeypatch.setattr("glassformer.train.score.evaluate.prepared", watched)
    plain = load_recipe(run / "recipe.toml")
    asked = override(plain, {"decode.compile": True})
    for given in (plain, asked):
        assert len(list(translate(run, numbered(LINES), 2, given))) == len(LINES)
        evaluate(run, given)
    assert seen == [False, False, True, True]
    seen.clear()
    follow(start(asked, tmp_path / "run"))
    assert seen
    assert not any(seen)


def test_as_many_lines_as_asked_are_decoded_together(run, monkeypatch):
    """Also more than decode.batch_size, which is for scoring."""
    sizes = []

    def watched(model, sources, *, batch_size, **settings):
        sizes.append((len(sources), batch_size))
        return answers(model, sources, batch_size=batch_size, **settings)

    monkeypatch.setattr("glassformer.train.finished.use.answers", watched)
    assert len(list(translate(run, numbered(["a b"] * 300), 300))) == 300
    assert sizes == [(300, 300)]


@pytest.mark.parametrize("skip", [False, True])
def test_skipped_pairs_are_part_of_the_score(run, tmp_path, skip):
    paths = texts(
        tmp_path, source=["a b", "c", "", "d e"][: 4 if skip else 2], target=["b a", "c", "a", ""][: 4 if skip else 2]
    )
    files = {"data.task": "pairs", "data.skip_empty": skip}
    files |= {f"data.test_{side}": str(path) for side, path in paths.items()}
    asked = recipe(data__layout=layout_of(run))
    if layout_of(run) == "encoder":  # whose answers are as long as their sources, which no file promises
        with pytest.raises(ConfigError, match=r"got data\.task='pairs'"):
            override(asked, files)
        return
    told = evaluate(run, override(asked, files))
    assert told["n"] == 2
    assert told.get("skipped") == (2 if skip else None)
    assert {"bleu", "chrf", "bleu_signature"} <= told.keys()


@pytest.mark.parametrize("what", ["evaluate", "translate", "params", "doctor", "resume"])
def test_a_recipe_that_was_changed_to_another_model_is_refused_by_all(run, tmp_path, what):
    changed = shutil.copytree(run, tmp_path / "run")
    asked = override(load_recipe(run / "recipe.toml"), {"model.d_ff": 16})
    (changed / "recipe.toml").write_text(dumps_recipe(asked), "utf-8")
    uses = {
        "evaluate": lambda: evaluate(changed, asked),
        "translate": lambda: list(translate(changed, numbered(LINES), 2)),
        "params": lambda: parameters(changed),
        "doctor": lambda: Case(changed, asked).model,
        "resume": lambda: resume(changed),
    }
    with pytest.raises(
        CheckpointError, match=r"recipe\.toml or .* asks for another: .*d_ff is 12, and 16 is asked for"
    ):
        uses[what]()


UNSCORABLE = {
    "another layout": ({}, r"layout that it was trained with, data\.layout="),
    "another task": ({"data.task": "sort"}, r"what it was trained to do, data\.task='reverse'; got 'sort'"),
    "more symbols": ({"data.symbols": 6}, r"was trained with data\.symbols=5; got 6, .* at most 5"),
}


@pytest.mark.parametrize("name", UNSCORABLE)
def test_data_that_the_model_cannot_answer_are_refused(run, name):
    changes, said = UNSCORABLE[name]
    if name == "another layout":
        changes = {"data.layout": LAYOUTS[1 - LAYOUTS.index(layout_of(run))]}
    with pytest.raises(ConfigError, match=said):
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
        lambda: parameters(hurt),
    ):
        use()
        told = capsys.readouterr().err
        assert re.search(rf"skipped: {best}.*\nused instead: .*step-000000012\n", told), told
        assert told.count("\n") == 2


@pytest.mark.parametrize(("layout", "longest"), [("encoder-decoder", 8), ("encoder", 15)])
@pytest.mark.parametrize("batch_size", [1, 2, 99])
def test_line_too_long_for_the_model_is_named_after_the_answers_before_it(tmp_path, layout, longest, batch_size):
    """x <eos>, or x <sep> and as many blanks: seven symbols still fit."""
    short = tmp_path / "run"
    follow(start(recipe(data__layout=layout, model__max_len=longest, training__steps=1), short))
    lines = [*numbered(["a b", "a b c d e a b"]), (7, "a b c d e a b c"), (8, "a")]
    answered = translate(short, lines, batch_size)
    assert all(isinstance(next(answered).text, str) for _ in range(2))
    with pytest.raises(DataError) as caught:
        next(answered)
    more = "<eos>" if layout == "encoder-decoder" else "<sep> and as many blanks"
    length = 9 if layout == "encoder-decoder" else 17
    for words in (f"max_len={longest} tokens, {more} included", f"line 7 has {length}: 'a b c d e a b c'"):
        assert words in str(caught.value)


@pytest.mark.parametrize("batch_size", [1, 3, 99])
def test_line_that_cannot_be_written_is_named_after_the_answers_before_it(run, monkeypatch, batch_size):
    """Two lines have five symbols; the second of them comes up first in each call."""

    def stuck(model, sources, *, numbers, **settings):
        for place, ids in zip(reversed(numbers), reversed(sources), strict=True):
            if len(ids) == 5:
                raise RowError("None of ", place, " can be.")
        return answers(model, sources, numbers=numbers, **settings)

    expected = [each.text for each in translate(run, numbered(["a b", "c"]), batch_size)]
    monkeypatch.setattr("glassformer.train.finished.use.answers", stuck)
    told = translate(run, [(2, "a b"), (5, "c"), (6, "a b c d e"), (7, "a b c d e"), (8, "d")], batch_size)
    assert [next(told).text, next(told).text] == expected
    with pytest.raises(ConfigError, match=r"^None of line 6 can be\.$"):
        next(told)


@pytest.mark.parametrize(
    ("asked", "longest", "said"),
    [
        (4, None, "decode.max_new_tokens=4"),
        (4, 9, "decode.max_new_tokens=4"),
        (99, 9, "model.max_len=9, the most that the model reads"),
        (None, 9, "model.max_len=9, the most that the model reads"),
        (None, None, "twice the source length plus ten, as decode.max_new_tokens is not set"),
    ],
)
def test_a_cut_answer_says_which_limit_cut_it(tmp_path, monkeypatch, asked, longest, said):
    settings = {"decode__max_new_tokens": asked, "model__max_len": longest, "training__steps": 1}
    follow(start(recipe(**settings), tmp_path / "run"))
    monkeypatch.setattr("glassformer.decode.method.chooser", lambda *_: never_ends)
    [told] = translate(tmp_path / "run", [(1, "a b")], 1)
    assert told.cut == said


def never_ends(logits, _):
    return logits[:, 6:].argmax(-1) + 6


def test_what_came_before_a_broken_line_comes_first():
    def lines():
        yield from "abc"
        raise DataError("broken")

    found = groups(lines(), 2)
    assert (next(found), next(found)) == (["a", "b"], ["c"])
    with pytest.raises(DataError, match="broken"):
        next(found)


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (2, [2]), (3, [3]), (4, [3, 1]), (6, [3, 3])])
def test_groups(count, sizes):
    found = list(groups(map(str, range(count)), 3))
    assert [len(group) for group in found] == sizes
    assert [line for group in found for line in group] == [str(number) for number in range(count)]
