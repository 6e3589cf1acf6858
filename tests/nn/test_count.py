"""Parameters are counted once each, and the count of the paper's model is the one made by hand."""

import pytest
import torch

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.nn.count import count_parameters
from specimens import SHAPES, config


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tied", [True, False])
def test_total_is_the_unique_tensors(shape, tied):
    made = Transformer(config(shape, tie_embeddings=tied, positions="learned"))
    rows, total = count_parameters(made)
    assert total == sum({parameter.data_ptr(): parameter.numel() for parameter in made.parameters()}.values())
    assert total == sum(row.numbers for row in rows)
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert {row.name: row.shape for row in rows} == {name: each.shape for name, each in made.state_dict().items()}
    for row in rows:
        assert (row.numbers == 0) == (row.same_as is not None)
        if row.same_as:
            assert made.get_parameter(row.name) is made.get_parameter(row.same_as)


def test_the_papers_base_model():
    """Vaswani et al. 2017, table 3, base: 6 + 6 blocks, 512 wide, 8 heads, 2048 inside, 37,000 tokens in common."""
    stack = StackConfig(d_model=512, n_heads=8, n_layers=6, d_ff=2048, norm_placement="post")
    with torch.device("meta"):
        made = Transformer(ModelConfig(vocab_size=37_000, encoder=stack, decoder=stack))
    attention = 4 * (512 * 512 + 512)
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert count_parameters(made)[1] == 37_000 * 512 + encoder + decoder == 63_082_496  # "65" million, says the paper


@pytest.mark.parametrize(("settings", "more"), [
    ({"feed_forward": "gated"}, 16 * 24 + 24),
    ({"feed_forward": "gated", "bias": False}, 16 * 24 - 24 - 16 - 4 * 16),
    ({"feed_forward": "experts", "n_experts": 5}, 4 * (2 * 16 * 24 + 24 + 16) + 16 * 5),
    ({"feed_forward": "experts", "n_experts": 2, "expert": "gated"},
        2 * (3 * 16 * 24 + 2 * 24 + 16) + 16 * 2 - (2 * 16 * 24 + 24 + 16)),
    ({"qk_norm": "rms"}, 2 * 4),
    ({"qk_norm": "layer"}, 2 * 2 * 4),
    ({"norm_placement": "sandwich"}, 2 * 2 * 16),
    ({"n_kv_heads": 1}, -2 * 3 * 4 * (16 + 1)),
])  # fmt: skip
def test_what_a_variant_adds_to_a_block(settings, more):
    """Counted by hand: d_model 16, four heads of 4, d_ff 24, one block."""
    plain, other = (count_parameters(Transformer(config("decoder", n_layers=1, **each)))[1] for each in ({}, settings))
    assert other - plain == more


def test_a_module_without_parameters():
    assert count_parameters(torch.nn.Identity()) == ([], 0)
