"""A setting of another type, and a number beyond all reach, are refused by name when a config is made."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from importlib import import_module

import pytest

from glassformer import ModelConfig, StackConfig
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern, RelativeConfig, RotaryConfig
from glassformer.base.settings import check, flat, like, meaning_of, nested, rule_of, setting
from glassformer.base.typed import annotations_of, types_in
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.nn.outputs import OUTPUTS, Classify, Regress, Tag
from glassformer.nn.recipe import ModelRecipe
from glassformer.serve.settings import ServeConfig
from glassformer.train.recipe import Recipe
from glassformer.train.schedule import Schedule
from glassformer.train.settings import (
    CheckpointConfig,
    DecodeConfig,
    DistributedConfig,
    OptimizerConfig,
    TrainingConfig,
)
from specimens import production

SECTIONS = {
    DataConfig: "data.", TokenizerConfig: "tokenizer.", ModelRecipe: "model.", TrainingConfig: "training.",
    CheckpointConfig: "checkpoint.", DecodeConfig: "decode.", **dict.fromkeys((Classify, Tag, Regress), "head."),
}  # fmt: skip
WHOLE = {
    **{key: {} for key in [*SECTIONS, StackConfig, RotaryConfig, RelativeConfig, Pattern]},
    ModelConfig: {"vocab_size": 9, "encoder": StackConfig()},
    Recipe: {"name": "x"},
    **{key: {"n_labels": 2} for key in [Classify, Tag]},
    Regress: {},
    Schedule: {"name": "cosine", "peak": 0.1, "steps": 10},
}
"""Every frozen config that a user makes, with what it cannot be made without."""


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_no_field_takes_what_its_annotation_does_not(kind):
    """A complex number is nobody's type, text no number's, a number no text's; each field of each config says so."""
    with production():
        kind(**WHOLE[kind])
        for each in fields(kind):
            allowed = types_in(annotations_of(kind)[each.name])
            for wrong in (1j, "64", b"x", {"d_model": 64}, True, 3):
                if isinstance(wrong, allowed) and not (wrong is True and bool not in allowed):
                    continue
                if wrong == 3 and wrong is not True and float in allowed:
                    continue
                place = SECTIONS.get(kind, "") + each.name
                with pytest.raises(ConfigError, match=rf"^{place} must be .*; got .*\. (Try|Give) {place}="):
                    kind(**{**WHOLE[kind], each.name: wrong})


@pytest.mark.parametrize(("make", "message"), [
    (lambda: StackConfig("64"), "d_model must be a whole number; got '64' (str). Try d_model=64."),
    (lambda: StackConfig(d_model=64.0), "d_model must be a whole number; got 64.0 (float). Try d_model=64."),
    (lambda: StackConfig(d_model="wide"), "d_model must be a whole number; got 'wide' (str). Try d_model=8."),
    (lambda: StackConfig(d_model=None), "d_model must be a whole number; got None. Try d_model=8."),
    (lambda: StackConfig(d_ff=True), "d_ff must be a whole number; got True (bool). Try d_ff=8."),
    (lambda: StackConfig(dropout="0.1"), "dropout must be a number; got '0.1' (str). Try dropout=0.1."),
    (lambda: StackConfig(window=2.5), "window must be a whole number or None; got 2.5 (float). Try window=8."),
    (lambda: ModelConfig(9, encoder={"d_model": 64}),
     "encoder must be a StackConfig or None; got {'d_model': 64} (dict). Give encoder=StackConfig(...)."),
    (lambda: ModelConfig(9, StackConfig(), head="lm"), "head must be a Lm or a Classify or a Tag or"),
])  # fmt: skip
def test_what_is_said(make, message):
    with production(), pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_a_whole_number_is_good_enough_for_a_float():
    with production():
        assert StackConfig(dropout=0).dropout == 0
        assert TrainingConfig(learning_rate=1).learning_rate == 1


@pytest.mark.parametrize("value", [10**9, 10**40, 10**6000], ids=["in reach", "long", "very long"])
@pytest.mark.parametrize("name", ["steps", "samples"])
def test_a_number_out_of_reach_is_refused_however_long(name, value):
    """Python writes no number of more than 4,300 digits, so a message must not try."""
    if value == 10**9:
        assert getattr(TrainingConfig(**{name: value}), name) == value
        return
    for wrong, bound in ((value, "at most"), (-value, "at least")):
        with pytest.raises(ConfigError, match=rf"^training\.{name} must be {bound} \d+; got a number of \d+ bits\. "):
            TrainingConfig(**{name: wrong})


# --- A setting is declared once: its type, default, bounds and sentence; all else follows from that


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


@pytest.mark.parametrize(("wrong", "message"), [
    ({"rate": 0.0}, "kept.rate must be above 0 and at most 1, as a share; got 0.0. Try kept.rate=0.25."),
    ({"rate": float("nan")}, "kept.rate must be above 0 and at most 1, as a share; got nan. Try kept.rate=0.25."),
    ({"count": 1}, "kept.count must be at least 2; got 1. Try kept.count=2."),
    ({"count": 10}, "kept.count must be at most 9; got 10. Give a smaller number."),
    ({"word": "tow"}, "kept.word='tow' is not known. Known: 'one', 'two'. Did you mean 'two'?"),
    ({"count": "3"}, "kept.count must be a whole number or None; got '3' (str). Try kept.count=3."),
])  # fmt: skip
def test_what_is_out_of_bounds_is_refused(wrong, message):
    with pytest.raises(ConfigError) as caught:
        Kept(**wrong)
    assert str(caught.value) == message


def test_a_setting_like_another_has_its_bounds_and_its_sentence():
    assert meaning_of(Other, "count") == "How many."
    assert (Other().count, rule_of(Other, "count")) == (3, rule_of(Kept, "count"))
