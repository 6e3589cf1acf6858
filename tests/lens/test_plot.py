"""What the pictures show, read back from the figure itself."""

import numpy as np
import pytest
import torch

from glassformer import observe, plot_attention, plot_positions
from glassformer.base.errors import ConfigError, DataError
from glassformer.lens.plot import boxes, fitting, plot_parameters
from glassformer.nn.count import Row
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_attention(torch.eye(3), ["a", "b"]), "Each of the 3 queries needs one token; got 2"),
        (lambda: plot_attention(torch.eye(3), head=1), "head must be from 0 to 0 here; got 1"),
        (lambda: plot_attention(torch.zeros(2, 1, 3, 3), row=2), "row must be from 0 to 1 here; got 2"),
        (lambda: plot_attention(torch.zeros(1, 1, 1, 1, 1)), r"got \[1, 1, 1, 1, 1\]"),
        (lambda: plot_attention({}), "nothing to draw"),
        (lambda: plot_positions("rotary"), "adds no vectors"),
        (lambda: plot_positions("learned"), "before a model learns them"),
        (lambda: plot_positions("sinusodial"), "sinusoidal"),
    ],
    ids=[*("queries", "head", "row", "shape", "nothing", "rotary", "learned", "unknown")],
)
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
    texts = [each.get_text() for each in plot_parameters(rows).axes[0].texts]
    assert texts[0] == "encoder 60%"
    query = next(box for box in boxes(rows) if box.name == "query")
    assert [fitting(query, 20, room) for room in (12.0, 5.0, 1.0)] == ["query 30%", "q", ""]
