"""Classic settings are those that every setting has by default, in place of what a recipe has from later papers."""

from dataclasses import asdict

import pytest

from glassformer.train.recipe import KEPT, RATE, Recipe, classic, known_recipes, load_recipe, override


@pytest.mark.parametrize("name", known_recipes())
def test_a_classic_recipe_keeps_its_data_sizes_and_steps_alone(name):
    before, usual = load_recipe(name), Recipe(name)
    after = classic(before)
    assert classic(after) == after
    for section in ("data", "tokenizer", "decode", "checkpoint", "distributed"):
        assert getattr(after, section) == getattr(before, section)
    assert after.optimizer == usual.optimizer
    for key, value in asdict(after.model).items():
        assert value == getattr((before if key in KEPT else usual).model, key)
    for key, value in asdict(after.training).items():
        assert value == getattr((usual if key in RATE else before).training, key)


def test_settings_that_depend_on_another_go_with_it():
    """None of these is allowed with the sinusoidal positions, the plain feed-forward and the schedule that come."""
    modern = {
        "model.rotary_base": 5e4, "model.rotary_share": 0.5, "model.feed_forward": "gated", "model.n_kv_heads": 2,
        "model.bias": False, "model.window": 16, "training.schedule": "wsd", "training.cooldown": 10,
        "optimizer.layer_decay": 0.9,
    }  # fmt: skip
    assert classic(override(load_recipe("lm"), modern)) == classic(load_recipe("lm"))
