"""JSON lines where lines of text are read: a field of each, or a refusal with the way; never braces and keys."""

import json
from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.lines import texts_of
from glassformer.train.recipe import Recipe, dumps_recipe, override

NESTED = [{"id": 7, "translation": {"en": "ein Hund"}}, {"id": 8, "translation": {"en": "grün"}}]
LINES = "".join(json.dumps(each) + "\n" for each in NESTED).encode()
VERBS = ("translate", "classify")


def ask(run, data: bytes, verb: str, *words: str):
    if verb == "classify":
        labels = {"data.task": "labelled", "data.layout": "label", "data.train": "a", "data.dev": "b"}
        recipe = override(Recipe("old"), labels | {"training.metric": "accuracy"})
        Path("runs/old/recipe.toml").write_text(dumps_recipe(recipe))
    return run(verb, "runs/old", *words, stdin=data)


@pytest.mark.parametrize("verb", VERBS)
def test_json_on_standard_input_is_refused_with_its_fields(run, session, a_run, verb):
    answer = ask(run, b"\n" + LINES, verb)
    assert answer.code == 2
    assert answer.out.strip() == ""
    assert "Standard input, line 2: this seems to be JSON" in answer.err
    assert "Give --field NAME to read a field of each line, here id, translation; --plain if" in answer.err


@pytest.mark.parametrize(
    "data", [b'[\n  {"text": "a"}\n]\n', b'{\n "text": "a"\n}\n', b'[{"text": "a"}]\n', b'{"text": broken}\n']
)
def test_json_of_another_shape_is_refused_with_what_makes_lines_of_it(run, session, a_run, data):
    assert "an object a line, as jq -c writes them" in ask(run, data, "translate").err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("data", "place", "way"), [
    (b'["a", 1]\n["b", 0]\n', 2, "jq -c '{text: .[0]"),
    (b'"a"\n' * 25, 20, "jq -c '{text: .}'"),
    (b'"a"\n"b \\n"\n', 2, "jq -c '{text: .}'"),
    (b"# by hand\n\nnull\n{}\n" + LINES, 5, "here id, translation"),
    (b'["a b", "c"]\n', 1, "jq -c '.[] | {text: .}'"),
    (b'["a b",\n\n"c"]\n', 3, "jq -c '.[] | {text: .}'"),
])  # fmt: skip
def test_json_is_told_by_more_than_its_first_line(run, session, a_run, verb, data, place, way):
    answer = ask(run, data, verb)
    assert answer.code == 2
    assert f"Standard input, line {place}: this seems to be JSON" in answer.err
    assert way in answer.err
    assert ask(run, data, verb, "--plain").out.count("\n") == data.count(b"\n")


def test_null_stays_blank_where_objects_are_read(run, session, a_run):
    data = LINES.replace(b"\n", b"\nnull\n", 1) + b'{"translation": null}\n'
    assert ask(run, data, "translate", "--field", "translation.en").out == "EIN HUND\n\nGRÜN\n\n"


def test_a_field_of_each_object_is_read_and_blank_lines_stay_blank(run, session, a_run):
    data = LINES.replace(b"\n", b"\n\n", 1)
    assert ask(run, data, "translate", "--field", "translation.en").out == "EIN HUND\n\nGRÜN\n"
    assert ask(run, data, "classify", "--field", "id").out == "1:1\n\n3:1\n"


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_field_and_a_line_that_is_no_object_are_named_by_their_line(run, session, a_run, verb):
    missing = ask(run, LINES, verb, "--field", "translation.de")
    assert missing.code == 2
    assert "Standard input, line 1: the object has no field 'translation.de'" in missing.err
    assert "'translation.en'" in missing.err
    other = ask(run, LINES + b"ein Hund\n", verb, "--field", "id")
    assert "Standard input, line 3: a line must be one JSON object" in other.err


def test_braces_are_text_where_that_is_said_or_where_the_run_learned_them(run, session, a_run):
    assert ask(run, b'{"a": 1}\n', "translate", "--plain").out == '{"A": 1}\n'
    recipe = override(Recipe("old"), {"data.task": "pairs", "data.train": "a", "data.dev": "b", "data.json": False})
    Path("runs/old/recipe.toml").write_text(dumps_recipe(recipe))
    assert ask(run, b'{"a": 1}\n', "translate").out == '{"A": 1}\n'


def test_text_with_braces_is_text(run, session, a_run):
    for data in (
        b"{a} sentence\n",
        b'[x] "y": z\n',
        b'"{": he said\n',
        b'"a"\n"b"\n',
        b'["a", "b"]\nx\n',
        b'["a he said\nx\n',
        b"[laughs] hello\n",
        b"[1]\n",
        b"[1, 2]\n",
        b'["a"]\n',
        b'"a"\n',
    ):
        assert ask(run, data, "translate").out == data.decode().upper()


def test_prompts_of_a_file_too(run, writing, a_run, refused):
    Path("prompts.jsonl").write_bytes(LINES)
    words = ("generate", "runs/old", "--file", "prompts.jsonl")
    assert "prompts.jsonl:1: this seems to be JSON" in refused(*words)
    assert json.loads(run(*words, "--field", "translation.en", "--json").out.splitlines()[1])["prompt"] == "grün"
    assert json.loads(run(*words, "--plain", "--json").out.splitlines()[0])["prompt"] == json.dumps(NESTED[0])
    assert "--field is for the lines of --file" in refused("generate", "runs/old", "--prompt", "a", "--field", "b")


def test_one_of_both_flags():
    both = Arguments(options={"field": "a", "plain": ""})
    with pytest.raises(ConfigError, match="Give only one of them"):
        next(texts_of(["a"], "", both, Recipe("x")))
