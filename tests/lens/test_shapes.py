"""Shapes of what passes through a module, its parameters by component, and the drawing made of both."""

import pytest
import torch
from torch import nn

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.data.dataset import Tokenizers
from glassformer.lens.picture import answered, maps_of, sharpest_head
from glassformer.lens.plot import plot_architecture, plot_maps_over_training
from glassformer.lens.shapes import by_component, shapes_of
from glassformer.store.checkpoint import save
from lens.explored import LETTERS, small
from lens.learners import untrained

SOURCE, TARGET = torch.tensor([[6, 7, 8, 2]]), torch.tensor([[1, 7, 8]])


def test_each_part_that_runs_has_a_row_with_what_passed():
    model = untrained("encoder-decoder", n_layers=2)
    found = shapes_of(model, TARGET, source=SOURCE)
    rows = {row.name: row for row in found.rows}
    assert found.rows[0].name == ""
    width = model.config.stack.d_model
    assert rows["decoder.blocks.1.cross_attention"].given == ((1, 3, width), (1, 4, width))
    assert rows["decoder.blocks.1.cross_attention"].gave == ((1, 3, width),)
    assert all(
        row.parameters == sum(p.numel() for p in model.get_submodule(name).parameters()) for name, row in rows.items()
    )
    assert "encoder" in rows["decoder"].sources


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_components_add_up_to_the_model(kind):
    model = untrained(kind, n_layers=2)
    totals = by_component(model)
    assert sum(totals.values()) == sum(p.numel() for p in model.parameters())
    attention = next(m for n, m in model.named_modules() if n.endswith("blocks.0.self_attention.branch"))
    attentions = 2 * (3 if kind == "encoder-decoder" else 1)
    assert totals["attention"] == attentions * sum(p.numel() for p in attention.parameters())
    assert "other" not in totals


def test_torch_has_the_same_components():
    layer = nn.TransformerEncoderLayer(8, 2, 32)
    assert by_component(nn.TransformerEncoder(layer, 3, nn.LayerNorm(8), enable_nested_tensor=False)) == {
        "attention": 3 * 4 * (64 + 8),
        "feed-forward": 3 * (8 * 32 + 32 + 32 * 8 + 8),
        "norm": 3 * 2 * 16 + 16,
    }


def test_the_module_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    state = torch.get_rng_state()
    shapes_of(model, torch.zeros(2, 4))
    assert model.training
    assert model[1].training
    assert torch.equal(state, torch.get_rng_state())
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        shapes_of(model, torch.zeros(2, 3))
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def test_the_drawing_has_each_part_its_shape_and_its_parameters():
    pytest.importorskip("matplotlib")
    model = untrained("encoder-decoder", n_layers=2)
    figure = plot_architecture(model, TARGET, source=SOURCE)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert sum("cross_attention (Residual)" in each for each in words) == 2
    width = model.config.stack.d_model
    assert f"[1, 4, {width}]" in words
    assert f"[1, 3, {width}]" in words
    assert f"{sum(p.numel() for p in model.parameters()):,}" in figure.axes[0].get_title()
    memory = [line for line in figure.axes[0].lines if line.get_color() == "C1"]
    assert len(memory) == 2, "the memory enters each block of the decoder"


def test_one_head_at_every_checkpoint(tmp_path):
    pytest.importorskip("matplotlib")
    tokenizers = Tokenizers(LETTERS, LETTERS)
    models = {0: small(), 10: small(), 20: small()}
    for step, model in models.items():
        save(tmp_path / "checkpoints" / f"step-{step:09d}", model, tokenizers)
    figure = plot_maps_over_training(tmp_path, "abc")
    shown = {axes.get_title(): torch.tensor(axes.images[0].get_array()) for axes in figure.axes if axes.get_title()}
    assert [*shown] == ["step 0", "step 10", "step 20"]
    batch = answered(models[20], tokenizers, "abc")
    name, head = sharpest_head(maps_of(models[20], batch), "cross_attention")
    for step, model in models.items():
        assert torch.allclose(shown[f"step {step}"], maps_of(model, batch)[name][0, head])
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        plot_maps_over_training(tmp_path / "checkpoints", "abc")
    save(tmp_path / "other" / "checkpoints" / "step-000000000", small("decoder"), tokenizers)
    with pytest.raises(ConfigError, match="one stack"):
        plot_maps_over_training(tmp_path / "other", "abc")


def test_torchs_own_encoder_shows_its_parts_where_a_row_has_padding():
    torch_encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    shown = shapes_of(torch_encoder, torch.zeros(2, 3, 8), src_key_padding_mask=padding)
    assert [row.gave for row in shown.rows if row.name.endswith("linear1")] == [((2, 3, 16),)] * 2
