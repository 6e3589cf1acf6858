"""What a recipe may not ask for: numbers beyond their bounds, layouts that a task cannot have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glassformer.data.config import DataConfig
from glassformer.foundation.errors import ConfigError
from glassformer.train.recipe import (
    Recipe,
    load_recipe,
    override,
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
    with pytest.raises(ConfigError, match=r"one vocabulary; got tokenizer\.shared=False.*Try tokenizer\.shared=True"):
        override(load_recipe("reverse"), asked)
    assert override(load_recipe("reverse"), asked | {"tokenizer.shared": True}).data.layout == "encoder"
