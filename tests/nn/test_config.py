"""Configurations: what they refuse, that each refusal offers what works, and the way to plain values and back."""

import json
import re
from dataclasses import fields

import pytest

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import RelativeConfig, RotaryConfig
from glassformer.nn.outputs import Lm
from specimens import SHAPES, config, stack

COUNTS = [
    *["d_model", "n_heads", "n_layers", "d_ff", "n_kv_heads", "d_head", "max_len", "window", "stride", "block"],
    "experts_per_token",
]
BOTH = {"encoder": stack(), "decoder": stack()}
CHANCES = ["dropout", "attention_dropout", "feed_forward_dropout", "stochastic_depth"]


def offers(error, name):
    """The values that a message offers for a setting: "try n_heads=4" gives [4]."""
    return [int(value) for value in re.findall(rf"\b{name}=(\d+)", str(error.value))]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1])
def test_counts_begin_at_one(name, value):
    with pytest.raises(ConfigError, match=rf"^{name} must be at least 1; got {value}\. Try {name}=1\.$"):
        StackConfig(**{name: value})


@pytest.mark.parametrize("name", CHANCES)
@pytest.mark.parametrize("value", [-0.1, 1.0, 2.0, float("nan")])
def test_chances_are_below_one(name, value):
    with pytest.raises(ConfigError, match=rf"^{name} must be at least 0 and below 1; got {value}\. Try {name}=0.1\.$"):
        StackConfig(**{name: value})


@pytest.mark.parametrize(("d_model", "n_heads"), [(64, 5), (100, 8), (7, 2), (3, 8), (512, 7), (13, 12)])
def test_heads_that_do_not_divide_the_width(d_model, n_heads):
    with pytest.raises(ConfigError, match=rf"d_model \({d_model}\) .* be a multiple of n_heads \({n_heads}\)") as error:
        stack(d_model=d_model, n_heads=n_heads)
    (heads,), (width,) = offers(error, "n_heads"), offers(error, "d_model")
    Transformer(config(d_model=d_model, n_heads=heads))
    Transformer(config(d_model=width, n_heads=n_heads))
    nearer = [n for n in range(1, d_model + 1) if abs(n - n_heads) < abs(heads - n_heads)]
    assert all(d_model % n for n in nearer), "a nearer one would have worked"
    assert abs(width - d_model) < n_heads
    assert Transformer(config(d_model=d_model, n_heads=n_heads, d_head=4)), (
        "as the message says: unless d_head is given"
    )


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 3), (4, 8), (8, 5)])
def test_groups_that_do_not_divide_the_heads(n_heads, n_kv_heads):
    with pytest.raises(ConfigError, match=rf"n_heads \({n_heads}\) must be a multiple of n_kv_heads") as error:
        stack(n_heads=n_heads, n_kv_heads=n_kv_heads)
    (offered,) = offers(error, "n_kv_heads")
    Transformer(config(n_heads=n_heads, n_kv_heads=offered))


def test_learned_positions_want_a_number():
    with pytest.raises(ConfigError, match="needs max_len") as error:
        stack(positions="learned", max_len=None)
    Transformer(config(positions="learned", max_len=offers(error, "max_len")[0]))


EXPERTS = {"feed_forward": "experts", "n_experts": 3}


@pytest.mark.parametrize(("wrong", "message"), [
    ({"feed_forward": "experts"}, "go together; got feed_forward='experts' and n_experts=None. Try .* n_experts=8"),
    ({"n_experts": 4}, "go together; got feed_forward='plain' and n_experts=4.* or feed_forward='plain' without"),
    ({"feed_forward": "gated", "n_experts": 4}, "go together; got feed_forward='gated' and n_experts=4"),
    ({"experts_per_token": 1}, "experts_per_token belongs to feed_forward='experts'; got experts_per_token=1"),
    ({"expert": "gated"}, "expert belongs to feed_forward='experts'; got expert='gated'"),
    ({"balance_loss": 0.1}, "balance_loss belongs to feed_forward='experts'"),
    ({"router_z_loss": 0.1}, "router_z_loss belongs to feed_forward='experts'"),
    ({**EXPERTS, "n_experts": 0}, "n_experts must be at least 1; got 0"),
    ({**EXPERTS, "balance_loss": -1.0}, "balance_loss must be at least 0 and finite; got -1.0"),
    ({**EXPERTS, "router_z_loss": float("nan")}, "router_z_loss must be at least 0 and finite; got nan"),
    ({"norm": "none", "final_norm": True}, "final_norm=True needs a norm; got norm='none'"),
])  # fmt: skip
def test_settings_that_contradict(wrong, message):
    with pytest.raises(ConfigError, match=message):
        stack(**wrong)


@pytest.mark.parametrize("n_experts", [1, 2, 3])
def test_more_experts_asked_than_there_are(n_experts):
    with pytest.raises(ConfigError, match=rf"\(4\) must be at most n_experts \({n_experts}\)") as error:
        stack(**{**EXPERTS, "n_experts": n_experts}, experts_per_token=4)
    (offered,) = offers(error, "experts_per_token")
    Transformer(config(**{**EXPERTS, "n_experts": n_experts}, experts_per_token=offered))


def test_what_the_messages_offer_works():
    for settings in (EXPERTS, {**EXPERTS, "n_experts": 8}, {"norm": "none"}, {**EXPERTS, "expert": "gated"}):
        Transformer(config(**settings))


def test_rotary_wants_even_heads():
    with pytest.raises(ConfigError, match="must be even; got 3") as error:
        Transformer(config(positions="rotary", d_head=3))
    Transformer(config(positions="rotary", d_head=offers(error, "d_head")[0]))


@pytest.mark.parametrize(("wrong", "message"), [
    ({"vocab_size": 0, "encoder": stack()}, "vocab_size must be at least 1; got 0"),
    ({"vocab_size": 9, **BOTH, "source_vocab_size": 0}, "source_vocab_size must be at least 1; got 0"),
    ({"vocab_size": 9}, r"got encoder=None and decoder=None\. Give encoder=StackConfig\(\.\.\.\)"),
    ({"vocab_size": 9, "encoder": stack(), "decoder": stack(d_model=32)}, "model=16 and decoder.d_model=32. Make"),
    ({"vocab_size": 9, "encoder": stack(causal=True), "decoder": stack()}, "got encoder.causal=True. Set .*=False"),
    ({"vocab_size": 9, "encoder": stack(), "source_vocab_size": 8}, r"source_vocab_size \(8\).*Remove source_vocab"),
    ({"vocab_size": 9, "decoder": stack(), "source_vocab_size": 8}, r"source_vocab_size \(8\).*Remove source_vocab"),
])  # fmt: skip
def test_models_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**wrong)


@pytest.mark.parametrize(("name", "wrong", "right"), [
    ("norm", "layers", "layer"),
    ("activation", "gleu", "gelu"),
    ("positions", "sinusoid", "sinusoidal"),
    ("attention", "spda", "sdpa"),
    ("attention_rule", "sigmoyd", "sigmoid"),
    ("norm_placement", "pree", "pre"),
    ("feed_forward", "plan", "plain"),
    ("qk_norm", "rsm", "rms"),
    ("init", "xaver", "xavier"),
])  # fmt: skip
def test_unknown_names_meet_the_nearest(name, wrong, right):
    with pytest.raises(ConfigError, match=rf"^{name}='{wrong}' is not known\..*'{right}'.* Did you mean '{right}'\?$"):
        Transformer(config(**{name: wrong}))
    Transformer(config(**{name: right}))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("placement", ["output", "sandwich"])
def test_no_norm_stands_after_zeros(placement, shape):
    """Its first gradients would be divided by the root of its eps."""
    with pytest.raises(ConfigError, match=rf"^init='zero' needs branches without a norm .*'{placement}'\. Try norm_pl"):
        config(shape, init="zero", norm_placement=placement)
    config(shape, init="zero", norm_placement=placement, norm="none")


@pytest.mark.parametrize("shape", SHAPES)
def test_to_plain_values_and_back(shape):
    """Every setting survives json, not only the defaults."""
    other = {"n_kv_heads": 2, "d_head": 6, "window": 3, "positions": "rotary", "bias": False, "final_norm": True}
    other |= {"feed_forward": "experts", "n_experts": 4, "experts_per_token": 1, "expert": "gated", "qk_norm": "rms"}
    other |= {"residual_scale": 1.5, "stochastic_depth": 0.1, "balance_loss": 0.5, "router_z_loss": 0.1}
    other["rotary"] = RotaryConfig(share=2 / 3, layout="interleaved", scaling="yarn", factor=2.0, original_max_len=9)
    t5 = {"positions": "t5", "relative": RelativeConfig(n_buckets=8, max_distance=30)}
    ends = {"embedding_norm": True, "attention_scale": 0.5, "scale_head": True, "head": Lm(transform="relu")}
    for settings in ({}, t5, ends, {**other, "head_bias": True, "init": "normal", "tie_embeddings": False}):
        made = config(shape, **settings)
        values = json.loads(json.dumps(made.to_dict()))
        assert ModelConfig.from_dict(values) == made
        assert values.keys() == {field.name for field in fields(ModelConfig)}
        sides = [side for side in ("encoder", "decoder") if values[side] is not None]
        assert sides == shape.split("-")
        assert all(values[side].keys() == {field.name for field in fields(StackConfig)} for side in sides)


@pytest.mark.parametrize(("where", "key", "nearest"), [
    ("model", "vocab_sizes", "vocab_size"),
    ("model", "tied_embeddings", "tie_embeddings"),
    ("encoder", "n_layer", "n_layers"),
    ("decoder", "dropuot", "dropout"),
    ("encoder.rotary", "bse", "base"),
    ("decoder.relative", "max_distances", "max_distance"),
])  # fmt: skip
def test_unknown_keys_are_refused(where, key, nearest):
    values = held = config().to_dict()
    for part in where.replace("model", "").split("."):
        held = held[part] if part else held
    held[key] = 1
    with pytest.raises(ConfigError, match=rf"^{where}\.{key} is not a setting\. Known: .* Did you mean '{nearest}'\?$"):
        ModelConfig.from_dict(values)


def test_a_config_written_before_positions_had_settings():
    values = config("decoder", positions="rotary").to_dict()
    del values["decoder"]["rotary"], values["decoder"]["relative"]
    assert ModelConfig.from_dict(values) == config("decoder", positions="rotary")
    assert ModelConfig.from_dict(config("encoder").to_dict() | {"head": {"kind": "lm"}}) == config("encoder")


def test_a_decoder_is_causal_whatever_it_says():
    assert config("decoder", causal=False).decoder.causal
    assert not config("encoder").encoder.causal
    assert config("encoder", causal=True).encoder.causal


def test_configs_do_not_change():
    with pytest.raises(AttributeError):
        config().vocab_size = 5
    with pytest.raises(AttributeError):
        config().encoder.d_model = 5
