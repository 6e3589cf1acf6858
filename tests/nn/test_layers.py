"""Blocks that differ: what `layers` says of a block is what the block does, and nothing else changes."""

from collections import Counter

import pytest
import torch

from glassformer import fast
from glassformer.base.errors import ConfigError
from glassformer.data.kinds import LAYOUTS
from glassformer.fast.stack import StackInCpp
from glassformer.nn.config import ModelConfig, StackConfig, blocks_of
from glassformer.nn.count import count_config, count_parameters
from glassformer.nn.recipe import ModelRecipe
from glassformer.nn.stack import Stack
from glassformer.train.recipe import Recipe, dumps_recipe, read_recipe
from specimens import VOCAB, close, gradients, model, production, scramble, stack, tokens

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
    one = model("decoder", n_layers=6, layers="1::2 window=3; 4 window=none", window=2)
    one(tokens(1, 5))
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
    assert count_config(one.config)[1] == count_parameters(one)[1]
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
