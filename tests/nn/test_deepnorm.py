"""DeepNorm: the constants of the paper's table, where they go, and what contradicts them."""

import json
from dataclasses import replace

import pytest
import torch

from glassformer import ModelConfig, Transformer
from glassformer.base.errors import ConfigError
from glassformer.nn.config import deepnorm
from specimens import SHAPES, close, config, normal, stack

POST = {"deepnorm": True, "norm_placement": "post"}


def test_the_papers_table():
    """Wang et al. 2022, figure 2; figures for 18 and 200 layers worked out by hand."""
    encoder, decoder = deepnorm(18, 18)
    assert encoder == pytest.approx((0.81 * 18 ** (5 / 16), 0.87 * 18 ** (-5 / 16)))
    assert decoder == pytest.approx((54**0.25, 216**-0.25))
    assert encoder == pytest.approx((1.99875, 0.352571), rel=1e-5)
    assert decoder == pytest.approx((2.710806, 0.260847), rel=1e-5)
    assert deepnorm(200, 0)[0] == deepnorm(0, 200)[1] == pytest.approx((400**0.25, 1600**-0.25))
    assert deepnorm(200, 0)[0] == pytest.approx((4.47214, 0.158114), rel=1e-5)
    assert deepnorm(6, 3)[0] == pytest.approx((0.81 * (6**4 * 3) ** 0.0625, 0.87 * (6**4 * 3) ** -0.0625))
    assert deepnorm(6, 3)[1] == pytest.approx((9**0.25, 36**-0.25))


@pytest.mark.parametrize("shape", SHAPES)
def test_alpha_reaches_every_branch(shape):
    chosen = config(shape, **POST)
    made = Transformer(chosen)
    for side, constants in zip(("encoder", "decoder"), chosen.deepnorm_constants, strict=True):
        if (part := getattr(made, side)) is not None:
            scales = {branch.scale for block in part.blocks for branch in block.branches}
            assert scales == {constants.alpha} == {part.config.residual_scale}


def test_the_branch_is_added_to_alpha_x():
    made = Transformer(config("encoder", **POST)).double()
    branch, x = made.encoder.blocks[0].feed_forward, normal(2, 3, 16)
    alpha = 4**0.25  # two layers
    close(branch(x), branch.norm_sum(alpha * x + branch.branch(x)))


@pytest.mark.parametrize("feed_forward", [{}, {"feed_forward": "gated"}, {"feed_forward": "experts", "n_experts": 2}])
def test_beta_is_the_gain_of_all_but_queries_keys_and_router(feed_forward):
    """Against the same seed without DeepNorm, number by number."""
    pairs = []
    for deep in (True, False):
        torch.manual_seed(3)
        chosen = config(norm_placement="post", deepnorm=deep, **feed_forward)
        pairs.append(dict(Transformer(chosen).named_parameters()))
    encoder, decoder = config(**POST).deepnorm_constants
    seen = set()
    for name, parameter in pairs[0].items():
        role = name.removesuffix(".weight").rpartition(".")[2]
        shrunk = ".branch." in name and role not in ("query", "key", "router")
        beta = (encoder if name.startswith("encoder") else decoder).beta if shrunk else 1.0
        close(parameter, beta * pairs[1][name], name, tolerance=1e-6)
        seen.add((role, shrunk))
    assert {("value", True), ("output", True), ("up", True), ("down", True), ("query", False), ("key", False)} <= seen


@pytest.mark.parametrize("shape", SHAPES)
def test_to_plain_values_and_back(shape):
    """Also from those of older checkpoints, which held alpha as if it had been given."""
    made = config(shape, **POST)
    told = json.loads(json.dumps(made.to_dict()))
    assert ModelConfig.from_dict(told) == made
    for side, constants in zip(("encoder", "decoder"), made.deepnorm_constants, strict=True):
        if told[side] is not None:
            told[side]["residual_scale"] = constants.alpha
    assert ModelConfig.from_dict(told) == made
    assert ModelConfig.from_dict(told | {"deepnorm": False}) != made


def test_what_follows_from_the_layers_follows_other_layers():
    made = config("encoder", **POST)
    deeper = replace(made, encoder=replace(made.encoder, n_layers=9))
    assert {branch.scale for block in Transformer(deeper).encoder.blocks for branch in block.branches} == {18**0.25}
    assert replace(deeper, deepnorm=False).built_stacks[0].residual_scale == 1.0


@pytest.mark.parametrize(("wrong", "message"), [
    ({"norm_placement": "pre"}, r"after the sum; got encoder.norm_placement='pre'.* Try norm_placement='post'"),
    ({"norm": "none"}, r"encoder.norm='none'\. Try norm_placement='post' with norm='layer'"),
    ({"init": "normal"}, r"weights of Xavier initialisation; got init='normal'\. Try init='xavier'"),
    ({"residual_scale": 2.0}, r"encoder itself \(1\.006\); got encoder.residual_scale=2\.0\. Remove residual_scale"),
])  # fmt: skip
def test_what_contradicts_it(wrong, message):
    with pytest.raises(ConfigError, match=message):
        config(**{**POST, **wrong})
    config(**POST)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_is_positive(value):
    with pytest.raises(ConfigError, match="residual_scale must be above 0 and finite"):
        stack(residual_scale=value)
    with pytest.raises(ConfigError, match=r"norm_eps must be above 0 and finite.*Try norm_eps=1e-5"):
        stack(norm_eps=value)
    with pytest.raises(ConfigError, match=r"softcap must be above 0 and finite.*Try softcap=50\.0"):
        stack(attention_rule="softcap", softcap=value)


@pytest.mark.parametrize("settings", [{"norm_placement": "post"}, {"residual_scale": 0.5}])
def test_parallel_branches_have_one_sum(settings):
    with pytest.raises(ConfigError, match=r"parallel_branches=True adds all .* Try norm_placement='pre' with res"):
        stack(parallel_branches=True, **settings)
