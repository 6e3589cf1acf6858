"""Golden losses: a refactor changes none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.golden import FEW, losses, recipes

LINES = [line.split() for line in Path(__file__).with_name("golden.txt").read_text("utf-8").splitlines()]
GOLDEN = {name: [float(loss) for loss in line] for name, *line in LINES}
TOLERANCE = 1e-6  # the first weights are drawn in float32, whose last digits hang on the processor's instructions


def test_every_recipe_that_makes_its_own_data_has_its_losses():
    assert [*GOLDEN] == recipes()
    assert {len(line) for line in GOLDEN.values()} == {FEW["training.steps"]}


@pytest.mark.parametrize("name", recipes())
def test_losses_are_golden(name):
    assert losses(name) == pytest.approx(GOLDEN[name], rel=TOLERANCE), (
        "the model, its first weights, its data, their order or its training changed; if that is meant, see golden.py"
    )
