"""Classic settings are those that every setting has by default, in place of what a recipe has from later papers."""

from __future__ import annotations

import json

import pytest

from glassformer.cli.main import main
from glassformer.train.classic import CLASSIC, classic
from glassformer.train.recipe import Recipe, known_recipes, load_recipe
from study.examples import TINY

NAMES = {f"{section}.{name}" for section, (_, names) in CLASSIC.items() for name in names}


def value(recipe: Recipe, name: str) -> object:
    section, key = name.split(".")
    return getattr(getattr(recipe, section), key)


@pytest.mark.parametrize("name", known_recipes())
def test_a_classic_recipe_is_its_own_but_for_these_settings(name):
    before, after = load_recipe(name), classic(load_recipe(name))
    usual = Recipe(name)
    assert {each: value(after, each) for each in NAMES} == {each: value(usual, each) for each in NAMES}
    assert classic(after) == after
    for section in ("data", "tokenizer", "decode", "checkpoint", "distributed"):
        assert getattr(after, section) == getattr(before, section)
    for each in ("model.d_model", "model.n_layers", "model.dropout", "training.steps", "training.label_smoothing"):
        assert value(after, each) == value(before, each)


def test_each_classic_setting_is_another_in_some_recipe():
    recipes = [load_recipe(name) for name in known_recipes()]
    assert {name for each in recipes for name in NAMES if value(each, name) != value(classic(each), name)} == NAMES


def test_a_run_is_trained_with_classic_settings_but_for_those_given(tmp_path):
    out = tmp_path / "run"
    assert main(["train", "reverse", *TINY, "--classic", "--model.positions", "rotary", "--out", str(out)]) == 0
    recipe = load_recipe(out / "recipe.toml")
    assert (recipe.optimizer.name, recipe.model.positions) == ("adamw", "rotary")
    assert (recipe.training.schedule, load_recipe("reverse").training.schedule) == ("inverse_square_root", "cosine")


def test_what_is_looked_at_ahead_is_classic_too(tmp_path, capsys):
    shape = ("--training.batch-tokens", "256", "--training.threads", "1")
    words = ["train", "reverse", *shape, "--dry-run", "--json", "--out", str(tmp_path / "run")]
    sizes = []
    for more in ((), ("--classic",)):
        assert main([*words, *more]) == 0
        sizes.append(json.loads(capsys.readouterr().out))
    assert sizes[0] != sizes[1]
