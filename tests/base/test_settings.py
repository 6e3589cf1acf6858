"""A setting is declared once: its type, default, bounds and sentence; all else follows from that."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from importlib import import_module

import pytest

from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern, RelativeConfig, RotaryConfig
from glassformer.base.settings import check, flat, like, meaning_of, nested, rule_of, setting
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import OUTPUTS
from glassformer.nn.recipe import ModelRecipe
from glassformer.serve.settings import ServeConfig
from glassformer.train.settings import (
    CheckpointConfig,
    DecodeConfig,
    DistributedConfig,
    OptimizerConfig,
    TrainingConfig,
)

KINDS = (
    *(Pattern, RotaryConfig, RelativeConfig, StackConfig, ModelConfig, *OUTPUTS.values(), ModelRecipe),
    *(DataConfig, TokenizerConfig, TrainingConfig, OptimizerConfig, CheckpointConfig, DistributedConfig),
    *(Sampling, BeamSettings, DecodeConfig, ServeConfig),
)


def declared(kind):
    """The settings that a class declares itself: neither inherited nor said to be `like` another's."""
    own = [each for each in fields(kind) if each.name in kind.__annotations__ and "of" not in each.metadata]
    return [each.name for each in own if meaning_of(kind, each.name)]


def test_no_setting_is_declared_twice():
    sentences = Counter(meaning_of(kind, name) for kind in KINDS for name in declared(kind))
    assert [text for text, times in sentences.items() if times > 1] == []
    assert sentences.total() > 150


def test_the_model_of_a_recipe_declares_only_what_no_model_has():
    assert declared(ModelRecipe) == ["encoder_layers", "decoder_layers"]
    derived = {each.name for kind in (StackConfig, ModelConfig) for each in flat(kind)}
    assert {each.name for each in fields(ModelRecipe)} == derived | {"encoder_layers", "decoder_layers"}


def test_what_a_recipe_says_is_what_a_stack_gets():
    given = ModelRecipe(positions="rotary", rotary_base=5e5, rotary_share=0.5, window=7, n_kv_heads=2)
    made = StackConfig(**nested(StackConfig, given), causal=True)
    assert made.rotary == RotaryConfig(base=5e5, share=0.5)
    assert (made.window, made.n_kv_heads) == (7, 2)


REGISTRIES = [
    (kind, each.name)
    for kind in KINDS
    for each in fields(kind)
    if isinstance(rule_of(kind, each.name).known, str) and "of" not in each.metadata
]


@pytest.mark.parametrize(("kind", "name"), REGISTRIES, ids=lambda each: getattr(each, "__name__", each))
def test_a_sentence_names_all_that_a_registry_has(kind, name):
    module, _, registry = rule_of(kind, name).known.partition(":")
    for entry in getattr(import_module(module), registry):
        assert re.search(rf"\b{entry}\b", meaning_of(kind, name)), entry


@dataclass(frozen=True)
class Kept:
    """Some settings."""

    rate: float = setting(0.5, above=0, most=1, why=", as a share", advice="0.25")
    """How much."""
    count: int | None = setting(None, 2, 9)
    """How many."""
    word: str = setting("one", known=("one", "two"))
    """Which."""

    def __post_init__(self):
        check(self, "kept")


@dataclass(frozen=True)
class Other:
    """The same setting elsewhere."""

    count: int | None = like(Kept, "count", 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": 0.0}, "kept.rate must be above 0 and at most 1, as a share; got 0.0. Try kept.rate=0.25."),
        ({"rate": float("nan")}, "kept.rate must be above 0 and at most 1, as a share; got nan. Try kept.rate=0.25."),
        ({"count": 1}, "kept.count must be at least 2; got 1. Try kept.count=2."),
        ({"count": 10}, "kept.count must be at most 9; got 10. Give a smaller number."),
        ({"word": "tow"}, "kept.word='tow' is not known. Known: 'one', 'two'. Did you mean 'two'?"),
        ({"count": "3"}, "kept.count must be a whole number or None; got '3' (str). Try kept.count=3."),
    ],
)
def test_what_is_out_of_bounds_is_refused(wrong, message):
    with pytest.raises(ConfigError) as caught:
        Kept(**wrong)
    assert str(caught.value) == message


def test_a_setting_like_another_has_its_bounds_and_its_sentence():
    assert meaning_of(Other, "count") == "How many."
    assert (Other().count, rule_of(Other, "count")) == (3, rule_of(Kept, "count"))
