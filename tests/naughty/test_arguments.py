"""Naughty strings as words of a command: a flag takes them as they are; what names nothing is refused."""

from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import read_arguments
from glassformer.cli.constraints import bias_of, unescaped
from glassformer.cli.verbs import VERBS
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe, override

MEANT = ("--help", "--version", "-h", "none")
"""What is asked for anywhere, and how a setting is unset."""
FILES = [f"data.{split}_{side}" for split in ("train", "dev", "test") for side in ("source", "target")]


def test_a_flag_takes_any_string_as_it_is(strings):
    for each in strings:
        found = read_arguments("generate", VERBS["generate"], ["run", f"--prompt={each}", f"--ban={each}"])
        assert (found.options["prompt"], found.lists["ban"]) == (each, [each])
        assert found.target == "run"
        if each.startswith("--"):
            with pytest.raises(ConfigError, match="--prompt=VALUE if VALUE begins with --"):
                read_arguments("generate", VERBS["generate"], ["run", "--prompt", each])
        else:
            found = read_arguments("generate", VERBS["generate"], ["run", "--prompt", each])
            assert found.options == {"prompt": each}
        if each:
            assert bias_of(f"{each}=-2.5", Path("run")) == (unescaped(each), -2.5)


def test_a_recipe_keeps_any_name_of_a_file(strings, tmp_path):
    for first in range(0, len(strings), len(FILES)):
        names = {name: each for name, each in zip(FILES, strings[first:], strict=False) if each}
        changes = {name: names.get(name, "usual") for name in FILES}
        path = tmp_path / "recipe.toml"
        path.write_text(dumps_recipe(override(Recipe("tiny"), {"data.task": "pairs", **changes})), "utf-8")
        data = load_recipe(path).data
        assert {name: getattr(data, name.removeprefix("data.")) for name in FILES} == changes


def exists(name: str) -> bool:
    """Whether it names a file or folder of this machine."""
    try:
        return Path(name).exists()
    except OSError:  # too long a name
        return False


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("before", [
    (),
    ("train",),
    ("generate",),
    ("data", "show"),
    ("train", "lm", "--data.text"),
    ("train", "multi30k", "--data.train"),
    ("train", "lm", "--model.norm"),
    ("train", "lm", "--tokenizer.vocab-size"),
], ids=" ".join)  # fmt: skip
def test_what_names_nothing_is_refused_in_one_line(before, step, texts, run):
    for each in texts[::step]:
        if exists(each) or each.lower() in MEANT or each.isdecimal():
            continue
        flagged = bool(before) and before[-1].startswith("--")
        answer = run(*([*before[:-1], f"{before[-1]}={each}"] if flagged else [*before, each]))
        assert (answer.code, answer.out) == (2, ""), (each, answer.err)
        assert answer.err.startswith("glassformer: ")
        assert answer.err.count("\n") == 1
        assert "Traceback" not in answer.err
    assert not Path("runs").exists()
