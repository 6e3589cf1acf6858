"""What the pictures show, read back from the figure itself."""

import numpy as np
import pytest
import torch
from torch import nn

from glassformer import ModelConfig, StackConfig, Transformer, observe, plot_attention, plot_positions
from glassformer.base.errors import CheckpointError, ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import Tokenizers, build_tokenizers
from glassformer.data.pairs import Pair
from glassformer.lens.picture import SHADES, answered, cross_attention_picture, heat_map, maps_of, sharpest_head
from glassformer.lens.plot import boxes, fitting, plot_architecture, plot_maps_over_training, plot_parameters
from glassformer.lens.shapes import by_component, shapes_of
from glassformer.nn.count import Row
from glassformer.store.checkpoint import save
from lens.explored import LETTERS, small
from lens.learners import untrained

pytest.importorskip("matplotlib")


def maps(figure) -> dict[str, np.ndarray]:
    return {axes.get_title(): np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images}


def test_a_map_for_each_head_with_its_tokens():
    weights = torch.rand(3, 2, 4)
    figure = plot_attention(weights, ["a", "b$"], ["c", "d", "e", "<eos>"], title="Layer 0")
    shown = maps(figure)
    assert [*shown] == ["head 0", "head 1", "head 2"]
    for head in range(3):
        assert np.array_equal(shown[f"head {head}"], weights[head].numpy())
    first = figure.axes[0]
    assert [each.get_text() for each in first.get_yticklabels()] == ["a", "b$"]
    assert [each.get_text() for each in first.get_xticklabels()] == ["c", "d", "e", "<eos>"]
    assert first.images[0].get_clim() == (0, 1)


def test_what_was_observed_has_a_row_of_maps_for_each_attention():
    model = untrained("encoder-decoder", n_layers=1)
    with observe(model) as seen:
        model(torch.tensor([[1, 7, 8]]), source=torch.tensor([[6, 7, 8, 2], [6, 7, 8, 2]])[:1])
    shown = maps(plot_attention(seen))
    assert [*shown] == ["e.0.0", "e.0.1", "d.0.0", "d.0.1", "x.0.0", "x.0.1"]
    cross = seen["decoder.blocks.0.cross_attention"]
    assert np.array_equal(shown["x.0.1"], cross[0, 1].detach().numpy())
    assert [*maps(plot_attention(cross, head=1))] == ["head 1"]


def test_a_file_by_its_name(tmp_path):
    plot_attention(torch.eye(3), file=tmp_path / "map.svg")
    plot_positions(length=20, d_model=8, file=tmp_path / "positions.pdf")
    first = (tmp_path / "map.svg").read_bytes()
    plot_attention(torch.eye(3), file=tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_bytes() == first, "equal pictures are equal files"
    assert (tmp_path / "positions.pdf").read_bytes().startswith(b"%PDF")


def test_positions_are_those_that_are_added():
    (shown,) = maps(plot_positions(length=20, d_model=8)).values()
    assert shown.shape == (8, 20)
    assert shown[:, 0].tolist() == [0, 1] * 4
    assert shown[0, 1] == pytest.approx(np.sin(1), rel=1e-6)
    own = untrained("encoder", positions="learned", max_len=7).encoder.positions.weight
    (shown,) = maps(plot_positions(vectors=own)).values()
    assert np.array_equal(shown, own.detach().numpy().T)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: plot_attention(torch.eye(3), ["a", "b"]), "Each of the 3 queries needs one token; got 2"),
    (lambda: plot_attention(torch.eye(3), head=1), "head must be from 0 to 0 here; got 1"),
    (lambda: plot_attention(torch.zeros(2, 1, 3, 3), row=2), "row must be from 0 to 1 here; got 2"),
    (lambda: plot_attention(torch.zeros(1, 1, 1, 1, 1)), r"got \[1, 1, 1, 1, 1\]"),
    (lambda: plot_attention({}), "nothing to draw"),
    (lambda: plot_positions("rotary"), "adds no vectors"),
    (lambda: plot_positions("learned"), "before a model learns them"),
    (lambda: plot_positions("sinusodial"), "sinusoidal"),
], ids=[*("queries", "head", "row", "shape", "nothing", "rotary", "learned", "unknown")])  # fmt: skip
def test_mistakes(call, message):
    with pytest.raises((ConfigError, DataError), match=message):
        call()


def test_boxes_stand_in_order_and_are_as_wide_as_they_are_large():
    rows = [
        Row("encoder.embedding.weight", (2, 3), 6, 0.3, None),
        Row("encoder.blocks.0.self_attention.branch.query.weight", (2, 2), 4, 0.2, None),
        Row("encoder.blocks.0.self_attention.branch.query.bias", (2,), 2, 0.1, None),
        Row("decoder.blocks.0.feed_forward.branch.up.weight", (2, 4), 8, 0.4, None),
        Row("head.weight", (2, 3), 0, 0.0, "encoder.embedding.weight"),
    ]
    found = {box.path: (box.level, box.left, box.width) for box in boxes(rows)}
    assert found == {
        "encoder": (0, 0, 12),
        "encoder.embedding": (1, 0, 6),
        "encoder.block 0": (1, 6, 6),
        "encoder.block 0.self_attention": (2, 6, 6),
        "encoder.block 0.self_attention.query": (3, 6, 6),
        "decoder": (0, 12, 8),
        "decoder.block 0": (1, 12, 8),
        "decoder.block 0.feed_forward": (2, 12, 8),
        "decoder.block 0.feed_forward.up": (3, 12, 8),
    }
    assert plot_parameters(rows).axes[0].texts[0].get_text() == "encoder 60%"
    query = next(box for box in boxes(rows) if box.name == "query")
    assert [fitting(query, 20, room) for room in (12.0, 5.0, 1.0)] == ["query 30%", "q", ""]


# --- The terminal's picture of attention: which head is shown, and with what shades


def test_the_most_decided_head_of_the_kind_is_shown():
    blurred, sharp = torch.full((1, 2, 3, 3), 1 / 3), torch.full((1, 2, 3, 3), 1 / 3)
    sharp[0, 1] = torch.eye(3)
    seen = {
        "decoder.blocks.0.cross_attention": blurred,
        "decoder.blocks.1.cross_attention": sharp,
        "decoder.blocks.1.self_attention": torch.eye(3).expand(1, 2, 3, 3),  # sharper, but of another kind
    }
    assert sharpest_head(seen, "cross_attention") == ("decoder.blocks.1.cross_attention", 1)


@pytest.mark.parametrize(
    ("weight", "shade"), [(0.0, 0), (0.12, 0), (0.13, 1), (0.5, 2), (0.87, 3), (0.88, 4), (1.0, 4)]
)
def test_each_weight_has_its_shade(weight, shade):
    assert heat_map(torch.tensor([[weight]]), ["q"], ["k"]).splitlines()[1] == "q  " + SHADES[shade]


def test_a_row_for_each_query_and_a_column_for_each_key():
    drawn = heat_map(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), ["c", "bb", "a"], ["xx", "y"])
    assert drawn.splitlines() == ["    xx y ", " c  ██   ", "bb     ██", " a       "]


def test_a_line_for_each_token_written_and_a_column_for_each_read():
    pairs = [Pair("a b", "x"), Pair("b", "y x")]
    words = build_tokenizers(TokenizerConfig(kind="word", shared=False), pairs)
    stack = StackConfig(d_model=8, n_heads=2, n_layers=2, d_ff=8, dropout=0.0)
    config = ModelConfig(words.target.vocab_size, stack, stack, source_vocab_size=words.source.vocab_size)
    model = Transformer(config)
    with torch.no_grad():  # whatever it reads, it writes y and never ends
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.copy_(model.head.weight[words.target.encode("y")[0]])
    picture = cross_attention_picture(model, words, "b a b")
    lines = picture.text.splitlines()
    assert lines[0].split() == ["b", "a", "b", "<eos>"]
    assert [line.split()[0] for line in lines[1:]] == ["y"] * 16 + ["<eos>"]  # 2 * 3 + 10 tokens, and the end
    assert picture.head.startswith("decoder.blocks.")


# --- Shapes of what passes through a module, its parameters by component, and the drawing made of both


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
