"""Settings of the position schemes: what they refuse, and that what each refusal offers works."""

import re

import pytest

from glassformer import Transformer
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import RelativeConfig, RotaryConfig
from specimens import config

YARN = {"scaling": "yarn", "factor": 2.0, "original_max_len": 64}


def offers(error):
    """The settings that a message offers: "Try share=0.5." gives {"share": 0.5}."""
    found = re.findall(r"(\w+)=([\w.']+)(?=[ .,]|$)", str(error.value).split("Try ")[-1].split("try ")[-1])
    return {name: value.strip("'") if "'" in value else float(value.rstrip(".")) for name, value in found}


@pytest.mark.parametrize(("wrong", "message"), [
    ({"base": 1.0}, r"^base must be above 1 and finite; got 1\.0\. Try base=10000\.0"),
    ({"base": float("nan")}, "above 1 and finite; got nan"),
    ({"base": float("inf")}, "above 1 and finite; got inf"),
    ({"layout": "halves"}, "layout='halves' is not known.*Did you mean 'half'"),
    ({"scaling": "yarm"}, "scaling='yarm' is not known.*Did you mean 'yarn'"),
    ({"share": 0.0}, "above 0 and at most 1; got 0.0"),
    ({"share": 1.5}, "above 0 and at most 1; got 1.5"),
    ({"factor": 2.0}, "scaling='none' does not use factor; got factor=2.0. Remove factor, or"),
    ({"scaling": "linear"}, "scaling='linear' needs factor; got factor=None. Try factor=4.0"),
    ({"scaling": "linear", "factor": 0.5}, "at least 1 and finite; got 0.5. Try factor=4.0"),
    ({"scaling": "linear", "factor": float("inf")}, "at least 1 and finite; got inf"),
    ({"scaling": "ntk", "factor": 2.0, "original_max_len": 9}, "scaling='ntk' does not use original_max_len; got"),
    ({"scaling": "yarn", "factor": 2.0}, "scaling='yarn' needs original_max_len; got .*=None. Try .*=2048"),
    ({"scaling": "llama3", "factor": 2.0}, "scaling='llama3' needs original_max_len; got .*None"),
    ({**YARN, "original_max_len": 0}, "original_max_len must be at least 1; got 0"),
    ({"scaling": "linear", "factor": 2.0, "slow_turns": 1.0}, "scaling='linear' does not use slow_turns"),
    ({**YARN, "scaling": "llama3", "attention_factor": 1.0}, "scaling='llama3' does not use attention_factor"),
    ({**YARN, "attention_factor": 0.0}, "must be above 0 and finite; got 0.0. Try attention_factor=1.0"),
    ({**YARN, "fast_turns": 0.5}, r"below fast_turns, .*; got turns=\(1\.0, 0\.5\)\. Try .* and fast_turns=32"),
    ({**YARN, "slow_turns": 0.0}, r"slow_turns must be above 0 and below fast_turns, .*; got turns=\(0\.0, 32\.0\)"),
])  # fmt: skip
def test_rotary_settings_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        RotaryConfig(**wrong)


@pytest.mark.parametrize(("rotary", "d_head", "message"), [
    ({}, 3, "d_head must be even; got 3"),
    ({}, 1, "d_head must be even; got 1"),
    ({"share": 0.5}, 6, r"got 0\.5 times 6"),
    ({"share": 0.5}, 5, r"got 0\.5 times 5"),
    ({"share": 0.1}, 8, r"got 0\.1 times 8"),
    ({"share": 0.3}, 16, r"got 0\.3 times 16"),
    ({"scaling": "ntk", "factor": 2.0}, 2, "scaling='ntk' rotates .* at least 4"),
    ({"scaling": "ntk", "factor": 2.0, "share": 0.25}, 8, "scaling='ntk' rotates .* at least 4"),
])  # fmt: skip
def test_heads_that_make_no_pairs(rotary, d_head, message):
    """Refused when the stack's settings are made, and what is offered works."""
    with pytest.raises(ConfigError, match=message) as error:
        config(positions="rotary", d_head=d_head, rotary=RotaryConfig(**rotary))
    found = offers(error)
    share = {"share": found["share"]} if "share" in found else {}
    Transformer(
        config(positions="rotary", d_head=int(found.get("d_head", d_head)), rotary=RotaryConfig(**rotary | share))
    )


@pytest.mark.parametrize("name", ["n_buckets", "max_distance", "clip_distance"])
def test_distances_begin_at_one(name):
    with pytest.raises(ConfigError, match=rf"^{name} must be at least 1; got 0\. Try {name}=1\.$"):
        RelativeConfig(**{name: 0})


@pytest.mark.parametrize(("shape", "relative", "message"), [
    ("encoder", {"n_buckets": 2}, "at least 4 and even, as half of them are for each side; got 2"),
    ("encoder", {"n_buckets": 7}, "at least 4 and even, as half of them are for each side; got 7"),
    ("decoder", {"n_buckets": 1}, "at least 4"),
    ("encoder", {"max_distance": 8}, "max_distance must be above 8; got 8"),
    ("decoder", {"max_distance": 16}, "max_distance must be above 16; got 16"),
])  # fmt: skip
def test_buckets_that_cannot_be(shape, relative, message):
    with pytest.raises(ConfigError, match=message) as error:
        config(shape, positions="t5", relative=RelativeConfig(**relative))
    better = {name: int(value) for name, value in offers(error).items()}
    Transformer(config(shape, positions="t5", relative=RelativeConfig(**relative | better)))


def test_a_causal_stack_needs_no_buckets_for_what_comes():
    Transformer(config("encoder", causal=True, positions="t5", relative=RelativeConfig(n_buckets=3)))
    with pytest.raises(ConfigError, match=r"at least 2; got 1\. Try n_buckets=2"):
        config("encoder", causal=True, positions="t5", relative=RelativeConfig(n_buckets=1))


@pytest.mark.parametrize(("settings", "message"), [
    ({"positions": "alibi", "rotary": RotaryConfig(base=5e5)},
     r"rotary\.base belongs to positions='rotary'; got .*=500000\.0 and positions='alibi'\. Remove rotary\.base, or"),
    ({"positions": "shaw", "relative": RelativeConfig(n_buckets=8)}, r"relative\.n_buckets belongs to positions='t5'"),
    ({"positions": "t5", "relative": RelativeConfig(clip_distance=8)}, "clip_distance belongs to positions='shaw'"),
    ({"relative": RelativeConfig(max_distance=99)}, "max_distance belongs to positions='t5'"),
])  # fmt: skip
def test_settings_that_nobody_reads_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings)
