"""Blocks that differ: what `layers` says of a block is what the block does, and nothing else changes."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from glassformer import ModelConfig, Transformer, fast
from glassformer.base.errors import ConfigError
from glassformer.data.kinds import LAYOUTS
from glassformer.fast.stack import StackInCpp
from glassformer.nn.config import StackConfig, blocks_of, deepnorm
from glassformer.nn.count import count_parameters, on_meta
from glassformer.nn.recipe import ModelRecipe
from glassformer.nn.stack import Stack
from glassformer.train.recipe import Recipe, dumps_recipe, read_recipe
from specimens import SHAPES, VOCAB, close, config, gradients, model, normal, production, scramble, stack, tokens

UNLIKE = [
    {"layers": "0 window=2; 1 positions=none", "positions": "rotary"},
    {"layers": "1 window=none", "window": 2},
    {"layers": "0 feed_forward=plain", "feed_forward": "experts", "n_experts": 3, "balance_loss": 0.1},
    {"layers": "1 convolution=3; 0 n_heads=1 d_head=4 d_ff=12"},
    {"layers": "0 positions=t5; 1 positions=alibi n_heads=1", "positions": "none"},
    {"layers": "-1 rotary_base=50 rotary_share=0.5 window=3", "positions": "rotary", "window": 2},
    {"layers": "1 feed_forward=gated n_kv_heads=1", "convolution": 2},
]


@pytest.mark.parametrize("same", [
    ({"window": 3}, ": window=3"),
    ({"window": None}, ":: window=none"),
    ({"positions": "none"}, "0,1 positions=none"),
    ({"rotary_base": 50.0, "rotary_share": 0.5}, "::-1 rotary_base=50 rotary_share=0.5"),
    ({"n_heads": 1, "d_head": 2, "n_kv_heads": 1}, ": n_heads=1, d_head=2, n_kv_heads=1"),
    ({"d_ff": 12, "feed_forward": "gated"}, "-2: d_ff=12 feed_forward=gated"),
    ({"feed_forward": "experts", "n_experts": 3, "experts_per_token": 1, "expert": "gated"},
     ": feed_forward=experts n_experts=3 experts_per_token=1 expert=gated"),
    ({"convolution": 3}, ": convolution=3"),
], ids=str)  # fmt: skip
def test_blocks_that_all_differ_are_a_stack_that_has_it(same):
    """Also the other way round: settings that a stack has, and no block."""
    settings, layers = same
    base = {"positions": "rotary", "rotary_base": 10000.0, "rotary_share": 1.0, "window": 2, "d_model": 8, "n_heads": 2}
    base |= {"d_ff": 8, "n_layers": 2}
    of_stack = ModelRecipe(**base | settings).build(LAYOUTS["decoder"], VOCAB)
    of_blocks = ModelRecipe(**base, layers=layers).build(LAYOUTS["decoder"], VOCAB)
    assert set(blocks_of(of_blocks.decoder)) == {of_stack.decoder}
    one, other = (scramble(Stack(each.decoder, VOCAB).double()).eval() for each in (of_stack, of_blocks))
    other.load_state_dict(one.state_dict())
    ids = tokens(2, 9)
    assert torch.equal(one(ids), other(ids))


@pytest.mark.parametrize("settings", UNLIKE, ids=lambda each: each["layers"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_cache_changes_nothing(settings, whole):
    one, ids = model("decoder", **settings), tokens(2, 8)
    cache = one.new_cache(whole=whole)
    parts = [one(ids[:, :3], cache=cache), *(one(ids[:, i : i + 1], cache=cache) for i in range(3, 8))]
    close(torch.cat(parts, 1), one(ids))


@pytest.mark.parametrize("settings", UNLIKE, ids=lambda each: each["layers"])
def test_recomputation_changes_nothing(settings):
    one, ids = model("decoder", **settings), tokens(2, 6)
    wanted = gradients(one(ids), one)
    one.decoder.recompute = 1
    assert all(torch.equal(wanted[name], found) for name, found in gradients(one(ids), one).items())


@pytest.mark.parametrize("settings", UNLIKE, ids=lambda each: each["layers"])
def test_speed_put_on_changes_nothing(settings):
    """Stacks whose blocks differ are left to torch; what else is made fast stays within rounding."""
    one, ids = model("decoder", dtype=torch.float32, **settings), tokens(2, 6)
    quick = fast.for_decoding(one)
    assert not isinstance(quick.reader, StackInCpp)
    with torch.no_grad():
        close(quick(ids), one(ids), tolerance=1e-4)


def test_masks_and_rotations_are_made_once_for_each_distinct_setting(monkeypatch):
    made = Counter()
    plain = Stack._mask

    def counted(self, *args):
        made[args[-2]] += 1
        return plain(self, *args)

    monkeypatch.setattr(Stack, "_mask", counted)
    model("decoder", n_layers=6, layers="1::2 window=3; 4 window=none", window=2)(tokens(1, 5))
    assert sorted(made.values()) == [1, 1, 1]
    turned = Counter()
    for scheme in (
        two := model("decoder", n_layers=4, positions="rotary", layers="1,3 rotary_base=50")
    ).decoder.schemes:
        plain_rotation = scheme.rotation

        def rotation(*args, plain_rotation=plain_rotation, scheme=scheme):
            turned[scheme] += 1
            return plain_rotation(*args)

        scheme.rotation = rotation
    two(tokens(1, 5))
    assert list(turned.values()) == [1, 1]


@pytest.mark.parametrize("settings", UNLIKE, ids=lambda each: each["layers"])
def test_parameters_are_counted_and_configs_are_read_back(settings):
    one = model("decoder", **settings)
    assert count_parameters(on_meta(one.config))[1] == count_parameters(one)[1]
    assert ModelConfig.from_dict(one.config.to_dict()) == one.config


def test_an_encoder_decoder_has_them_in_both_stacks_and_in_its_recipe(tmp_path):
    given = ModelRecipe(n_layers=4, positions="rotary", layers="1::2 window=3; 3: positions=none")
    with pytest.raises(ConfigError, match="block 3 is in '1::2 window=3' and in '3: positions=none'"):
        given.build(LAYOUTS["encoder-decoder"], 9)
    given = ModelRecipe(n_layers=4, positions="rotary", layers="1::2 window=3")
    made = given.build(LAYOUTS["encoder-decoder"], 9)
    assert [each.window for each in blocks_of(made.encoder)] == [None, 3, None, 3]
    assert blocks_of(made.encoder)[1] == StackConfig(n_layers=4, positions="rotary", window=3)
    assert made.decoder.layers == made.encoder.layers
    (file := tmp_path / "r.toml").write_text(dumps_recipe(Recipe("r", model=given)), "utf-8")
    assert read_recipe(file).model == given


@pytest.mark.parametrize(("settings", "message"), [
    ({"layers": "7 window=2"}, "blocks that are there, 0 to 1; got '7'"),
    ({"layers": "5: window=2"}, "blocks that are there, 0 to 1; got '5:'"),
    ({"layers": "0 window=2; -2 d_ff=4"}, "block 0 is in '0 window=2' and in '-2 d_ff=4'"),
    ({"layers": "0 window=2 d_ff=4 window=3"}, "may set window once for a block; got '0 window=2 d_ff=4 window=3'"),
    ({"layers": "0,0 window=2"}, "block 0 is in '0,0 window=2' and in '0,0 window=2'"),
    ({"layers": "0 norm=rms"}, "'norm' is nothing that blocks may have differently. Known: 'convolution', 'd_ff'"),
    ({"layers": "0 windwo=2"}, "Did you mean 'window'"),
    ({"layers": "0 window"}, "'window' is nothing"),
    ({"layers": "0"}, "must be blocks and what they have differently; got '0'"),
    ({"layers": "first window=2"}, "must name blocks as 0, -1 or 2::3; got 'first'"),
    ({"layers": "::0 window=2"}, "must name blocks as 0, -1 or 2::3; got '::0'"),
    ({"layers": "0 window=wide"}, "window cannot be 'wide'"),
    ({"layers": "0 d_ff=none"}, "d_ff cannot be 'none'"),
    ({"layers": "0 window=0"}, "'0 window=0' makes block 0 impossible: window must be at least 1; got 0"),
    ({"layers": "1 n_heads=3"}, "makes block 1 impossible: d_model .* must be a multiple of n_heads"),
    ({"layers": "0 positions=none"}, "'sinusoidal' and positions='none' cannot differ between blocks"),
    ({"layers": "0 positions=learned", "positions": "none"}, "cannot differ between blocks"),
    ({"layers": "0 n_experts=4"}, "feed_forward='experts' and n_experts go together"),
    ({"layers": "0 d_head=2", "attention_rule": "linear"}, "Linear attention decodes from a state of one size"),
    ({"layers": "0 window=2", "attention_rule": "linear"}, "cannot have a sparse pattern"),
])  # fmt: skip
def test_blocks_that_cannot_be(settings, message):
    with production(), pytest.raises(ConfigError, match=message):
        stack(**settings)


# --- DeepNorm: the constants of the paper's table, where they go, and what contradicts them


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
    plain = json.loads(json.dumps(made.to_dict()))
    assert ModelConfig.from_dict(plain) == made
    for side, constants in zip(("encoder", "decoder"), made.deepnorm_constants, strict=True):
        if plain[side] is not None:
            plain[side]["residual_scale"] = constants.alpha
    assert ModelConfig.from_dict(plain) == made
    assert ModelConfig.from_dict(plain | {"deepnorm": False}) != made


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
