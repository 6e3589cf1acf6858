"""What a process asks of its team in a step."""

from __future__ import annotations

import pytest
import torch

from glassformer.train.loop import train_steps
from glassformer.train.objective import objective_for
from glassformer.train.schedule import Schedule
from glassformer.train.team import Team
from train.examples import Told, batch, model


class Rehearsed(Team):
    """Notes what a rehearsal computes in."""

    seen: list[bool] = []  # noqa: RUF012  (emptied by the test)

    def rehearse(self, batch, arithmetic):
        with arithmetic:
            self.seen.append(torch.is_autocast_enabled("cpu"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_rehearsal_is_in_the_arithmetic_of_the_step(monkeypatch, precision):
    Rehearsed.seen.clear()
    monkeypatch.setattr("glassformer.train.loop.team_of", Rehearsed)
    network = model().float()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    data = [batch("encoder-decoder", [(3, 5), (2, 2)])]
    list(train_steps(network, data, optimizer, Schedule("constant", 0.1, 1), precision=precision))
    assert Rehearsed.seen == [precision == "bfloat16"]


def test_weights_that_another_process_has_spoiled_are_spoiled():
    """Else one would leave the update out and the other end."""
    network = model()
    assert Team(network, objective_for(network), 0.0, Told()).is_spoiled()
    assert not Team(network, objective_for(network), 0.0).is_spoiled()
