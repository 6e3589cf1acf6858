"""A setting of another type, and a number beyond all reach, are refused by name when a config is made."""

from dataclasses import fields

import pytest

from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern, RelativeConfig, RotaryConfig
from glassformer.base.typed import annotations_of, expect, types_in
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Classify, Regress, Tag
from glassformer.nn.recipe import ModelRecipe
from glassformer.train.recipe import Recipe
from glassformer.train.schedule import Schedule
from glassformer.train.settings import CheckpointConfig, DecodeConfig, TrainingConfig
from specimens import production

SECTIONS = {
    DataConfig: "data.",
    TokenizerConfig: "tokenizer.",
    ModelRecipe: "model.",
    TrainingConfig: "training.",
    CheckpointConfig: "checkpoint.",
    DecodeConfig: "decode.",
    **dict.fromkeys((Classify, Tag, Regress), "head."),
}
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StackConfig("64"), "d_model must be a whole number; got '64' (str). Try d_model=64."),
        (lambda: StackConfig(d_model=64.0), "d_model must be a whole number; got 64.0 (float). Try d_model=64."),
        (lambda: StackConfig(d_model="wide"), "d_model must be a whole number; got 'wide' (str). Try d_model=8."),
        (lambda: StackConfig(d_model=None), "d_model must be a whole number; got None. Try d_model=8."),
        (lambda: StackConfig(d_ff=True), "d_ff must be a whole number; got True (bool). Try d_ff=8."),
        (lambda: StackConfig(dropout="0.1"), "dropout must be a number; got '0.1' (str). Try dropout=0.1."),
        (lambda: StackConfig(window=2.5), "window must be a whole number or None; got 2.5 (float). Try window=8."),
        (
            lambda: ModelConfig(9, encoder={"d_model": 64}),
            "encoder must be a StackConfig or None; got {'d_model': 64} (dict). Give encoder=StackConfig(...).",
        ),
        (lambda: ModelConfig(9, StackConfig(), head="lm"), "head must be a Lm or a Classify or a Tag or"),
    ],
)
def test_what_is_said(make, message):
    with production(), pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_a_whole_number_is_good_enough_for_a_float():
    with production():
        assert StackConfig(dropout=0).dropout == 0
        assert TrainingConfig(learning_rate=1).learning_rate == 1


def test_expect():
    expect(3, int, "It", "Give it.")
    with pytest.raises(ConfigError, match=r"^It must be a whole number; got 'x' \(str\)\. Give it\.$"):
        expect("x", int, "It", "Give it.")


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
