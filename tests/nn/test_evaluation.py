"""Evaluation mode for as long as something is computed."""

import pytest
from torch import nn

from glassformer.nn.observe import Evaluation


def test_each_module_gets_its_own_mode_back() -> None:
    """A part that its owner froze stays as it was, and so does one in training within a model in evaluation mode."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5))).train()
    model[0].eval()
    before = [each.training for each in model.modules()]
    evaluation = Evaluation(model)
    for _ in range(2):
        with evaluation:
            assert not any(each.training for each in model.modules())
        assert [each.training for each in model.modules()] == before
    model.train()
    with evaluation:
        assert not any(each.training for each in model.modules())
    assert all(each.training for each in model.modules())


def test_after_an_error_the_mode_is_back() -> None:
    """An error inside changes nothing about it."""
    model = nn.Sequential(nn.Dropout(0.5)).train()
    with pytest.raises(ZeroDivisionError), Evaluation(model):
        _ = 1 / 0
    assert model.training
    assert model[0].training
