"""Which arms a grid has, what each is called, and what is refused before anything is trained."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.study.result import arms, refuse_impossible_models, single_changes
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.beginning import prepare
from train.examples import recipe


def test_every_combination_with_every_seed():
    found = arms(recipe(), {}, {"model.n_layers": [1, 2, 4], "model.norm_placement": ["pre", "post"]}, 3)
    rows = [(each.recipe.model.n_layers, each.recipe.model.norm_placement, each.recipe.training.seed) for each in found]
    assert rows == [(n, placement, seed) for n in (1, 2, 4) for placement in ("pre", "post") for seed in (1, 2, 3)]
    assert [each.seed for each in found] == [each.recipe.training.seed for each in found]
    assert len({each.folder for each in found}) == len({each.label for each in found}) == 18
    assert found[0].label == "model.n_layers=1, model.norm_placement=pre, seed 1"
    assert found[0].folder == "model.n_layers=1,model.norm_placement=pre,seed=1"


def test_what_is_not_varied_is_equal_in_all_arms():
    found = arms(recipe(), {"training.steps": 5}, {"model.n_layers": [1, 2]}, 1)
    assert {each.recipe.training.steps for each in found} == {5}
    assert len({(it.recipe.data, it.recipe.training, it.recipe.decode, it.recipe.tokenizer) for it in found}) == 1


def test_seeds_go_up_from_that_of_the_recipe():
    assert [each.seed for each in arms(recipe(), {"training.seed": 7}, {"model.n_layers": [1]}, 3)] == [7, 8, 9]


def test_order_of_the_settings_is_no_part_of_a_name():
    axes = {"model.n_layers": [2], "model.d_ff": [8]}
    turned = dict(reversed(axes.items()))
    assert arms(recipe(), {}, axes, 1)[0].folder == arms(recipe(), {}, turned, 1)[0].folder


def test_names_of_files_are_plain_short_and_different():
    paths = ["/a/x.tsv", "/a_x.tsv", "_a_x.tsv", "/" + "long/" * 90, "/" + "long/" * 91, "ä", "ö"]
    found = arms(Recipe("r"), {}, {"data.train": paths}, 1)
    names = [each.folder for each in found]
    assert len({*names}) == len(names)
    assert all(name.isascii() and "/" not in name and len(name) < 143 for name in names)


def test_arms_of_a_seed_see_the_same_batches_in_the_same_order():
    axes = {"model.n_layers": [1, 2], "model.positions": ["rotary", "alibi"]}
    found = arms(recipe(), {}, axes, 2)

    def batches(arm) -> list[tuple]:
        stream = prepare(arm.recipe).batches(0)
        return [(b.tokens.tolist(), b.source.tolist()) for _, b in (next(stream) for _ in range(6))]

    seen = {arm.label: batches(arm) for arm in found}
    for seed in (1, 2):
        mine = [each for label, each in seen.items() if label.endswith(f"seed {seed}")]
        assert len(mine) == 4
        assert all(each == mine[0] for each in mine)
    assert seen[found[0].label] != seen[found[1].label]


def test_each_change_is_tried_by_itself():
    rms, wide = {"model.norm": "rms"}, {"model.d_ff": 64, "training.warmup": 3}
    found = single_changes(recipe(), {"training.steps": 5}, [rms, wide], 2)
    rows = [(each.label, each.recipe.model.norm, each.recipe.model.d_ff, each.recipe.training.warmup) for each in found]
    usual = recipe()
    d_ff, warmup = usual.model.d_ff, usual.training.warmup
    assert rows[::2] == [
        ("change=none, seed 1", "layer", d_ff, warmup),
        ("change=model.norm=rms, seed 1", "rms", d_ff, warmup),
        ("change=model.d_ff=64, training.warmup=3, seed 1", "layer", 64, 3),
    ]
    assert [(each.seed, each.recipe.training.seed) for each in found] == 3 * [(1, 1), (2, 2)]
    assert {each.recipe.training.steps for each in found} == {5}
    assert len({each.folder for each in found}) == 6


@pytest.mark.parametrize(("apart", "message"), [
    ([{"model.norm": "rms"}, {"model.norm": "rms"}], "--change model.norm=rms is given twice"),
    ([{"model.norm": "rms", "model.d_ff": 8}, {"model.d_ff": 8, "model.norm": "rms"}],
     "--change model.d_ff=8, model.norm=rms is given twice"),
    ([{"model.norm": "rms"}, {"model.norm": "layer"}], "--change model.norm=layer changes nothing"),
    ([{"training.seed": 3}], "Use --seeds N"),
    ([{"training.metric": "loss"}], "one metric compares all runs"),
    ([{"model.d_model": 9}], "change=model.d_model=9: .*Nothing was trained"),
], ids=["twice", "twice, turned", "nothing", "seed", "metric", "impossible"])  # fmt: skip
def test_no_change(apart, message):
    with pytest.raises(ConfigError, match=message):
        single_changes(recipe(), {"model.d_ff": 24}, apart, 2)


def test_what_is_wrong_with_all_is_no_change():
    with pytest.raises(ConfigError) as refused:
        single_changes(recipe(), {"model.dropout": 2.0}, [{"model.norm": "rms"}], 2)
    assert "change" not in str(refused.value)


def test_nothing_is_left_to_the_machine():
    """What a run would choose by measured speed could fall differently from arm to arm."""
    [arm] = arms(Recipe("r"), {}, {"model.n_layers": [1]}, 1)
    assert (arm.recipe.training.precision, arm.recipe.training.threads) == ("float32", 1)
    [arm] = arms(Recipe("r"), {"training.precision": "bfloat16", "training.threads": 2}, {"model.n_layers": [1]}, 1)
    assert (arm.recipe.training.precision, arm.recipe.training.threads) == ("bfloat16", 2)


@pytest.mark.parametrize(("axes", "changes", "message"), [
    ({}, {}, "--vary SETTING=VALUE,VALUE"),
    ({"training.seed": [1, 2]}, {}, "Use --seeds N"),
    ({"training.metric": ["loss", "exact_match"]}, {}, "one metric compares all runs"),
    ({"model.n_layers": [1, 2]}, {"model.n_layers": 3}, "either varied or set; model.n_layers is both"),
    ({"model.n_layers": [1, 2, 1]}, {}, "the value 1 twice"),
], ids=["nothing", "seed", "metric", "varied and set", "twice"])  # fmt: skip
def test_no_grid(axes, changes, message):
    with pytest.raises(ConfigError, match=message):
        arms(recipe(), changes, axes, 1)


def test_combination_that_cannot_be_is_named_with_its_reason():
    axes = {"model.positions": ["rotary", "learned", "alibi"], "model.d_model": [8, 9]}
    with pytest.raises(ConfigError) as refused:
        arms(recipe(), {}, axes, 3)
    assert "model.positions=rotary, model.d_model=9: " in str(refused.value)
    assert "3 more of them have errors" in str(refused.value)
    assert "Nothing was trained" in str(refused.value)


def test_model_that_cannot_be_made_is_refused_too():
    """Names of parts are looked up when a model is made."""
    refuse_impossible_models(arms(recipe(), {}, {"model.norm": ["layer", "rms"]}, 2))
    with pytest.raises(ConfigError, match=r"model.norm=rsm: .*Did you mean 'rms'\? Nothing was trained"):
        refuse_impossible_models(arms(recipe(), {}, {"model.norm": ["layer", "rsm"]}, 2))


def test_models_of_all_layouts_are_made():
    refuse_impossible_models(arms(recipe(data__layout="encoder"), {}, {"model.n_layers": [1]}, 1))
    refuse_impossible_models(arms(load_recipe("classify"), {}, {"model.pooling": ["first", "attention"]}, 1))
