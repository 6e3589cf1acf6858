"""The terminal's picture of attention: which head is shown, and with what shades."""

from __future__ import annotations

import pytest
import torch

from glassformer.lens.picture import SHADES, heat_map, sharpest_head


def test_the_most_decided_head_of_the_kind_is_shown() -> None:
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
def test_each_weight_has_its_shade(weight: float, shade: int) -> None:
    line = heat_map(torch.tensor([[weight]]), ["q"], ["k"]).splitlines()[1]
    assert line == "q  " + SHADES[shade]


def test_a_row_for_each_query_and_a_column_for_each_key() -> None:
    drawn = heat_map(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), ["c", "bb", "a"], ["xx", "y"])
    assert drawn.splitlines() == ["    xx y ", " c  ██   ", "bb     ██", " a       "]
