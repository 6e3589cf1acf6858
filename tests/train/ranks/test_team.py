"""What a process asks of its team in a step."""

from __future__ import annotations

import pytest
import torch

from glassformer import Batch
from glassformer.base.launched import Launched
from glassformer.train.loop import train_steps
from glassformer.train.objective import objective_for
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.ranks.team import Team, pieces_of
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Update
from train.examples import Agreeing, batch, model


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 5, 12])
def test_each_row_is_computed_once_by_one_of_the_processes(count, accumulate, rows):
    """And all make the same number of calls (R12: whatever the number of processes)."""
    lengths = list(range(2, rows + 2))
    whole = Batch.pairs([[7] * length for length in lengths], [[8]] * rows)
    shares = [pieces_of(whole, accumulate, Ranks(Launched(n, count, n, count))) for n in range(count)]
    counted = [piece.batch for share in shares for piece in share if piece.counts]
    assert len({len(share) for share in shares}) == 1
    assert sorted(n for each in counted for n in (each.source == 7).sum(1).tolist()) == lengths


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
    list(train_steps(network, data, optimizer, Schedule("constant", 0.1, 1), Update(precision=precision)))
    assert Rehearsed.seen == [precision == "bfloat16"]


def test_weights_that_another_process_has_spoiled_are_spoiled():
    """Else one would leave the update out and the other end."""
    network = model()
    assert Team(network, objective_for(network), 0.0, Agreeing()).is_spoiled()
    assert not Team(network, objective_for(network), 0.0).is_spoiled()
