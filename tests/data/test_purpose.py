"""What a run is for: one command for each kind of data, which takes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.data.purpose import ANSWERS, LABELS, TOKENS, WRITING, held_out, purpose_of, refuse_unfit

KINDS = {
    "translate": DataConfig(task="reverse"),
    "classify": DataConfig(task="labelled", layout="label"),
    "generate": DataConfig(task="text", layout="decoder"),
    "evaluate": DataConfig(task="text", layout="masked", objective="masked"),
    "rollout": DataConfig(task="trajectories", layout="actions", environment="rooms"),
}
TAKES = {"translate": ANSWERS, "classify": LABELS, "generate": WRITING}


@pytest.mark.parametrize(("verb", "data"), KINDS.items())
def test_the_command_that_is_named_takes_the_run(verb, data):
    assert purpose_of(data).verb == verb
    for other, asked in TAKES.items():
        if other == verb:
            refuse_unfit("a run", data, asked)
        elif not (verb == "translate" and asked is WRITING):  # an encoder-decoder writes, too
            with pytest.raises(ConfigError, match=f"{asked.cannot}. Use glassformer {verb} a run"):
                refuse_unfit("a run", data, asked)
    assert TOKENS.fits(data) == (verb != "rollout")


def test_blanks_are_filled_by_translate():
    data = DataConfig(task="copy", layout="encoder")
    assert purpose_of(data) == ("fills all blanks at once", "translate")
    assert not WRITING.fits(data)


def test_a_run_without_test_data_is_scored_on_its_dev_split():
    assert held_out(DataConfig(task="text", layout="decoder")) == "dev"
    assert held_out(DataConfig(task="text", layout="decoder", test_text="a.txt")) == "test"
    assert held_out(KINDS["rollout"]) == "test"
    assert held_out(DataConfig(task="trajectories", layout="actions", train="a.csv")) == "dev"
    assert held_out(DataConfig(task="trajectories", layout="actions", train="a.csv", test="b.csv")) == "test"
    assert held_out(KINDS["translate"]) == "test"
    pairs = DataConfig(task="pairs", train="a.tsv", dev="b.tsv")
    assert held_out(pairs) == "dev"
    assert held_out(replace(pairs, test="c.tsv")) == "test"
    sides = DataConfig(task="pairs", train_source="a", train_target="b", dev_source="c", dev_target="d")
    assert held_out(sides) == "dev"
    assert held_out(replace(sides, test_source="e", test_target="f")) == "test"
    assert held_out(DataConfig(task="labelled", layout="label", train="a.tsv", dev="b.tsv")) == "dev"
    assert held_out(DataConfig(task="reverse")) == "test"
