"""Accumulation over rows of uneven lengths and ignored labels: loss and gradient of the whole batch (N11)."""

from dataclasses import replace

import pytest
import torch

from glassformer import Batch, Transformer, train_steps
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from glassformer.train.schedule import Schedule
from train.examples import LAYOUTS, assert_close, batch, gradients, model

ROWS = 11
PIECES = (1, 2, 3, 4, 8)
SMOOTHING = 0.1


def drawn(case: str, seed: int) -> Batch:
    """Rows of random lengths; of the cases with ignored labels some rows have no label that counts."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 10, (ROWS, 2), generator=draw).tolist()
    layout, _, ignored = case.partition(":")
    made = batch(layout, [(source, target) for source, target in lengths], seed)
    chosen = torch.rand(made.tokens.shape, generator=draw) < 0.5
    chosen[::3] = False  # with 8 pieces some have nothing to count
    chosen[1] = True
    match ignored:
        case "labels":
            marked = made.label_keep if made.label_keep is not None else made.keep
            return replace(made, label_keep=chosen if marked is None else chosen & marked)
        case "prefix":
            return replace(made, prefix=torch.randint(0, 4, (ROWS,), generator=draw))
        case "documents":
            return replace(made, documents=(torch.arange(made.tokens.shape[1]) // 3).expand_as(made.tokens))
        case _:
            return made


def by_hand(network: Transformer, data: Batch) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the mean over all targets, by the equation; the loss without smoothing."""
    objective = objective_for(network)
    n_targets = objective(data).n_targets
    loss = loss_of(network.train(), data, objective, label_smoothing=SMOOTHING)
    (loss.objective / n_targets).backward()
    return loss.nll.item() / n_targets, gradients(network)


CASES = [*LAYOUTS, "decoder:prefix", "decoder:documents", "encoder:labels", "tag:labels"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 25))])
@pytest.mark.parametrize("case", CASES)
def test_pieces_are_the_whole_batch(case, seed):
    layout, data = case.partition(":")[0], drawn(case, seed)
    loss, expected = by_hand(model(layout, seed=seed), data)
    for pieces in PIECES:
        network = model(layout, seed=seed)
        optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
        (report,) = train_steps(
            network,
            [data],
            optimizer,
            Schedule("constant", 0.1, 1),
            accumulate=pieces,
            label_smoothing=SMOOTHING,
        )
        assert report.loss == pytest.approx(loss, rel=1e-12)
        assert_close(gradients(network), expected)
