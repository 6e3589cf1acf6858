"""Settings of attention: how rules and patterns reach both stacks, and which of them contradict each other."""

import pytest

from glassformer.base.contradictions import ADDS_TO_SCORES
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern
from glassformer.data.kinds import LAYOUTS
from glassformer.nn.positions import POSITIONS, Positions
from glassformer.nn.recipe import ModelRecipe
from specimens import stack


@pytest.mark.parametrize(("settings", "message"), [
    ({"sinks": 2, "causal": True}, r"sinks needs a window.*Try window=128"),
    ({"stride": 2}, r"got stride=2 and causal=False\. Set causal=True"),
    ({"attention_rule": "linear", "positions": "alibi"}, r"positions='alibi' adds to .*scores, .* has none.*'rotary'"),
    ({"attention_rule": "linear", "window": 3}, "cannot have a sparse pattern; got pattern=Pattern"),
    ({"attention": "flex", "attention_dropout": 0.1}, r"attention='flex' does not store .*got attention_dropout=0\.1"),
    ({"attention_rule": "linear", "attention_dropout": 0.1}, r"got attention_dropout=0\.1\. Set .*=0\.0"),
])  # fmt: skip
def test_contradictions_are_refused_when_the_config_is_made(settings, message):
    with pytest.raises(ConfigError, match=message):
        stack(**settings)


def test_every_scheme_that_adds_to_scores_is_known():
    """A new scheme with a score bias belongs into the list, or linear attention would meet it at the first forward."""
    doors = ("score_bias", "relation")
    adding = {
        name
        for name, made in POSITIONS.items()
        for door in doors
        if getattr(made, door) is not getattr(Positions, door)
    }
    assert {*ADDS_TO_SCORES} == adding


def test_a_recipe_gives_both_stacks_their_share():
    """What looks back goes to the decoder; an encoder alone cannot have it."""
    made = ModelRecipe(window=4, dilation=2, sinks=3, attention_rule="sigmoid").build(LAYOUTS["encoder-decoder"], 9)
    assert made.encoder.pattern == Pattern(window=4, dilation=2)
    assert made.decoder.pattern == Pattern(window=4, dilation=2, sinks=3)
    assert made.encoder.attention_rule == made.decoder.attention_rule == "sigmoid"
    made = ModelRecipe(block=8, summary=2).build(LAYOUTS["encoder-decoder"], 9)
    assert (made.encoder.pattern, made.decoder.pattern) == (None, Pattern(block=8, summary=2))
    with pytest.raises(ConfigError, match="got stride=4 and causal=False"):
        ModelRecipe(stride=4).build(LAYOUTS["encoder"], 9)
    assert ModelRecipe(window=4).build(LAYOUTS["encoder"], 9).encoder.pattern == Pattern(window=4)
