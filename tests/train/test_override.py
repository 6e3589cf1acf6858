"""Settings from the command line replace those of a recipe, and what then has no meaning is unset."""

from dataclasses import replace

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.data.kinds import LAYOUTS
from glassformer.train.recipe import Recipe, anchored, load_recipe, override
from glassformer.train.settings import OptimizerConfig


def test_override():
    recipe = load_recipe("reverse")
    changed = override(recipe, {"model.d_model": 96, "model.n_heads": 3, "training.seed": 7})
    assert (changed.model.d_model, changed.model.n_heads, changed.training.seed) == (96, 3, 7)
    assert replace(changed, model=recipe.model, training=recipe.training) == recipe
    assert override(recipe, {}) == recipe


def test_override_is_checked_as_a_file_is():
    with pytest.raises(ConfigError, match=r"multiple of n_heads \(5\)"):
        override(load_recipe("reverse"), {"model.n_heads": 5})
    with pytest.raises(ConfigError, match=r"training\.steps"):
        override(load_recipe("reverse"), {"training.steps": 0})


@pytest.mark.parametrize("name", ["model.nlayers", "modle.n_layers", "n_layers", "name", "model", ""])
def test_override_knows_its_settings(name):
    with pytest.raises(ConfigError, match=f"^{name} is not a setting. Known: "):
        override(load_recipe("reverse"), {name: 3})


def test_new_files_replace_the_old_ones():
    pair = override(Recipe("x"), {"data.test_source": "a", "data.test_target": "b", "data.dev": "d"})
    one = override(pair, {"data.test": "c"})
    assert (one.data.test, one.data.test_source, one.data.test_target, one.data.dev) == ("c", None, None, "d")
    assert override(one, {"data.test_source": "a", "data.test_target": "b"}) == pair
    with pytest.raises(ConfigError, match="come from one file or from two"):
        override(pair, {"data.test": "c", "data.test_source": "a", "data.test_target": "b"})


def test_data_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = anchored(override(Recipe("x"), {"data.train": "t.tsv", "data.dev": "/d.tsv"}))
    assert recipe.data.train == str(tmp_path / "t.tsv")
    assert recipe.data.dev == "/d.tsv"
    assert recipe.data.test is None
    assert anchored(recipe) == recipe


def test_another_optimizer_leaves_behind_what_it_does_not_read():
    recipe = load_recipe("lm")
    assert recipe.optimizer.momentum != OptimizerConfig.momentum
    assert override(recipe, {"optimizer.name": "adamw"}).optimizer.momentum == OptimizerConfig.momentum
    assert override(recipe, {"optimizer.name": "muon"}) == recipe
    with pytest.raises(ConfigError, match=r"optimizer\.momentum belongs to .*'muon'; .* Remove optimizer\.momentum"):
        override(recipe, {"optimizer.name": "adamw", "optimizer.momentum": 0.9})


def test_a_number_of_layers_is_not_hidden_by_those_of_the_recipe():
    recipe = load_recipe("reverse")
    assert recipe.model.encoder_layers is not None
    model = override(recipe, {"model.n_layers": 5}).model.build(LAYOUTS["encoder-decoder"], 9)
    assert (model.encoder.n_layers, model.decoder.n_layers) == (5, 5)
    both = override(recipe, {"model.n_layers": 5, "model.encoder_layers": 3}).model.build(LAYOUTS["encoder-decoder"], 9)
    assert (both.encoder.n_layers, both.decoder.n_layers) == (3, 5)


def test_other_episodes_come_from_another_environment():
    assert override(load_recipe("decision"), {"data.train": "mine.csv"}).data.environment is None
    both = {"data.train": "mine.csv", "data.environment": "CartPole-v1"}
    assert override(load_recipe("decision"), both).data.environment == "CartPole-v1"
    assert override(load_recipe("decision"), {"data.dev": "mine.csv"}).data.environment == "rooms"


@pytest.mark.parametrize("name", ["tag", "regression"])
def test_files_take_the_place_of_samples_that_the_recipe_makes(name):
    files = {"data.train": "mine", "data.dev": "mine-too"}
    data = override(load_recipe(name), files).data
    assert (data.train, data.train_size, data.dev_size) == ("mine", DataConfig.train_size, DataConfig.dev_size)
    with pytest.raises(ConfigError, match=r"data\.train_size is the number of"):
        override(load_recipe(name), {**files, "data.train_size": 20})
