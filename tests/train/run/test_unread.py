"""A setting that nothing would read is refused where it was given, and left behind where another choice makes it so."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.kinds import LAYOUTS
from glassformer.nn.config import StackConfig
from glassformer.nn.recipe import ModelRecipe, unread
from glassformer.train.recipe import load_recipe, override
from train.examples import recipe

ALONE = {"data__task": "text", "data__layout": "decoder", "training__accumulate": 1}


@pytest.mark.parametrize(("changes", "message"), [
    (ALONE | {"model__encoder_layers": 2},
     r"model\.encoder_layers belongs to .*'encoder-decoder' or .*Remove model\.encoder_layers"),
    ({"data__layout": "encoder", "model__decoder_layers": 2}, r"model\.decoder_layers belongs to data\.layout='enc"),
    ({"model__pooling": "attention"}, r"model\.pooling belongs to data\.layout='label' or .*; got .*='attention'"),
    ({"model__head_dropout": 0.3}, r"model\.head_dropout belongs to data\.layout='label' .*; got .*=0\.3"),
    ({"model__softcap": 30.0}, r"softcap belongs to attention_rule='softcap'; got softcap=30\.0 .*'softmax'"),
    ({"model__softcap": 30.0, "model__attention_rule": "linear"}, r"got softcap=30\.0 and .*'linear'"),
    ({"training__min_learning_rate": 1e-5, "training__schedule": "constant"},
     r"min_learning_rate=1e-05 and .*schedule='constant'"),
    ({"training__batch_start": 0.5}, r"training\.batch_warmup begins, .*; got .*batch_start=0\.5 .*batch_warmup=0"),
    ({"training__length_start": 4}, r"training\.length_warmup begins, .*; got .*length_start=4 .*length_warmup=0"),
])  # fmt: skip
def test_what_nothing_reads_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**changes)


def test_what_something_reads_is_taken():
    assert recipe(model__softcap=30.0, model__attention_rule="softcap").model.softcap == 30.0
    assert recipe(training__min_learning_rate=1e-5, training__schedule="inverse_square_root").training.warmup == 3
    assert recipe(training__batch_start=0.5, training__batch_warmup=4).training.growth.share(1) == 0.5
    assert ModelRecipe(encoder_layers=2).build(LAYOUTS["encoder"], 9).stack.n_layers == 2
    assert unread(LAYOUTS["label"]) == ["decoder_layers", "silent"]
    assert StackConfig(attention_rule="softcap", softcap=30.0).softcap == 30.0


@pytest.mark.parametrize(("before", "choice", "left"), [
    ({"model__softcap": 30.0, "model__attention_rule": "softcap"}, {"model__attention_rule": "softmax"}, "softcap"),
    ({"model__decoder_layers": 2}, {"data__layout": "encoder"}, "decoder_layers"),
    ({"training__min_learning_rate": 1e-5}, {"training__schedule": "constant"}, "min_learning_rate"),
    ({"training__schedule": "wsd", "training__cooldown": 4}, {"training__schedule": "linear"}, "cooldown"),
])  # fmt: skip
def test_another_choice_leaves_behind_what_it_does_not_read(before, choice, left):
    first = recipe(**before)
    second = override(first, {name.replace("__", "."): value for name, value in choice.items()})
    assert second == recipe(**choice), left


def test_layers_of_a_classifier_are_left_behind_by_another_layout():
    result = {"data.task": "text", "data.layout": "masked", "data.objective": "masked", "training.metric": "loss"}
    changed = override(load_recipe("classify"), result | {"data.train": None, "data.dev": None, "data.test": None})
    assert (changed.model.pooling, changed.model.head_dropout) == ("mean", 0.0)
