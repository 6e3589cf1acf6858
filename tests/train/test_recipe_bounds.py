"""What a recipe may not ask for: numbers beyond their bounds, layouts that a task cannot have."""

from dataclasses import replace

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.data.kinds import LAYOUTS
from glassformer.nn.transformer import Transformer
from glassformer.train.recipe import (
    Recipe,
    load_recipe,
    override,
    read_recipe,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training.seed", 2**64),
        ("training.threads", 10**25),
        ("training.steps", 10**25),
        ("training.samples", 2**64),
        ("optimizer.epsilon", 1e-39),
        ("model.d_model", 10**25),
        ("model.max_len", 10**25),
    ],
)
def test_number_beyond_what_can_be_is_refused_with_the_bound(name, value):
    bound = "at least 1.17" if name.endswith("epsilon") else r"at most \d+"
    with pytest.raises(ConfigError, match=f"{name.split('.')[1]} must be {bound}"):
        override(Recipe("x"), {name: value})


@pytest.mark.parametrize("task", ["copy", "reverse", "sort", "numbers", "spell", "pairs"])
def test_one_stack_fills_answers_as_long_as_their_sources(task):
    """It is given a blank for each token of the source, and knows no other length."""
    recipe = replace(Recipe("x"), data=DataConfig(task=task))
    if task in ("copy", "reverse", "sort"):
        assert override(recipe, {"data.layout": "encoder"}).data.layout == "encoder"
        return
    with pytest.raises(ConfigError, match=rf"as long as their sources.*got data\.task='{task}'.*'encoder-decoder'"):
        override(recipe, {"data.layout": "encoder"})


def test_one_stack_has_one_vocabulary():
    asked = {"data.layout": "encoder", "tokenizer.shared": False}
    with pytest.raises(
        ConfigError,
        match=r"needs one vocabulary for source and target; got tokenizer\.shared=False.*Try tokenizer\.shared=True",
    ):
        override(load_recipe("reverse"), asked)
    assert override(load_recipe("reverse"), asked | {"tokenizer.shared": True}).data.layout == "encoder"


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "a\0"])
def test_a_name_that_no_folder_has_is_refused(name):
    with pytest.raises(ConfigError, match=r"name must be a plain name .* Try name = \"my-run\"\."):
        Recipe(name)


def test_a_recipe_has_a_largest_size(tmp_path):
    """So that a link to /dev/zero is not read without end."""
    path = tmp_path / "mine.toml"
    path.write_text("# " + "x" * 2**20, "utf-8")
    with pytest.raises(ConfigError, match=r"at most 1,048,576 bytes; .*mine\.toml has more"):
        read_recipe(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.head_dropout": 1.0}, r"^model\.head_dropout must be at least 0 and below 1; got 1\.0\. Try model\."),
        ({"model.pooling": "max"}, r"^pooling='max' is not known"),
    ],
)
def test_settings_of_the_head_have_the_names_of_the_recipe(changes, said):
    def make():
        recipe = override(load_recipe("classify"), changes)
        return Transformer(recipe.model.build(LAYOUTS[recipe.data.layout], 9, n_labels=2))

    with pytest.raises(ConfigError, match=said):
        make()
