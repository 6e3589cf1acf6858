"""The short name of a head, and what it is read from."""

import pytest

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.base.errors import ConfigError
from glassformer.lens.observe import head_id, place
from glassformer.nn.observe import attentions


def test_every_attention_of_a_model_has_a_place_of_its_own() -> None:
    stack = StackConfig(d_model=8, n_heads=2, n_layers=2, d_ff=8)
    model = Transformer(ModelConfig(vocab_size=9, encoder=stack, decoder=stack))
    places = [place(name) for name in attentions(model)]
    assert sorted(places) == [
        ("cross", 0),
        ("cross", 1),
        ("decoder", 0),
        ("decoder", 1),
        ("encoder", 0),
        ("encoder", 1),
    ]
    assert [head_id(block, layer, 0) for block, layer in sorted(places)] == [
        "x.0.0", "x.1.0", "d.0.0", "d.1.0", "e.0.0", "e.1.0",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["encoder.blocks.0.cross_attention", "decoder.blocks.x.self_attention", "head", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the name that observe\(\) gives"):
        place(name)
