"""The loop: any split of a batch is that batch, dropout is a function of (seed, update, piece), clipping, reports."""

from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import islice

import pytest
import torch

from glassformer import Batch, Transformer, train_steps
from glassformer.base.errors import ConfigError, DataError
from glassformer.base.runtime import Crowding, seeded, stream_of, threads_kept
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from glassformer.train.ranks.distributed import ALONE
from glassformer.train.ranks.team import team_of
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Update
from train.examples import LAYOUTS, assert_close, assert_same, batch, gradients, model, weights

CPU = torch.device("cpu")
UNEVEN = [(3, 5), (1, 1), (6, 2), (2, 8), (7, 7), (1, 9), (4, 3), (5, 1), (2, 2)]


def steps(network, batches, *, count=99, rate=0.1, start=0, ranks=ALONE, **settings):
    """Plain gradient descent, so that the weights show the gradients."""
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    schedule = Schedule("constant", rate, count)
    return train_steps(network, batches, optimizer, schedule, Update(**settings), start=start, ranks=ranks)


def trained(batches, *, layout="encoder-decoder", dropout=0.0, **settings):
    network = model(layout, dropout=dropout)
    return network, list(steps(network, batches, **settings))


def test_loss_and_gradient_are_means_over_targets():
    _, (report,) = trained([batch("encoder-decoder", UNEVEN)])
    each = [trained([row])[1][0].loss * (row.tokens.shape[1] - 1) for row in batch("encoder-decoder", UNEVEN).split(9)]
    assert report.loss == pytest.approx(sum(each) / sum(target + 1 for _, target in UNEVEN), rel=1e-12)


def test_each_step_is_compared_with_the_processors_time(monkeypatch):
    """With the threads that torch has; a step of several processes waits for them, which is no sign of others."""
    seen = []

    class Watched(Crowding):
        def __init__(self, threads):
            seen.append(threads)

        def after_step(self, seconds, computed):
            assert min(seconds, computed) > 0
            seen.append("step")

    monkeypatch.setattr("glassformer.train.loop.Crowding", Watched)
    two = copy(ALONE)
    two.count = 2
    monkeypatch.setattr("glassformer.train.loop.team_of", lambda *given: team_of(*given[:3], ALONE))
    with threads_kept():
        torch.set_num_threads(3)
        for ranks in (ALONE, two):
            trained([batch("encoder-decoder", UNEVEN)] * 2, ranks=ranks)
    assert seen == [3, "step", "step", 1, "step", "step"]


@pytest.mark.parametrize("share", [0.1, 0.999, 1.001, 0.0])
def test_clipping(share):
    data = [batch("encoder-decoder", UNEVEN)]
    free, (plain,) = trained(data)
    before = weights(model())
    clipped, (report,) = trained(data, clip=share * plain.grad_norm)
    assert report.grad_norm == plain.grad_norm
    factor = share if 0 < share < 1 else 1.0
    moved = {name: before[name] + factor * (after - before[name]) for name, after in weights(free).items()}
    assert_close(weights(clipped), moved, 1e-6)  # torch adds 1e-6 to the norm
    if factor == 1.0:
        assert_same(weights(clipped), weights(free))


def test_reports():
    data = batch("encoder-decoder", [(3, 5), (1, 1)])
    schedule = Schedule("linear", 0.5, 6, 2)
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=9.0)
    for number, report in enumerate(train_steps(network, [data] * 9, optimizer, schedule), start=1):
        assert report.number == number
        assert report.learning_rate == schedule(number) == optimizer.param_groups[0]["lr"]
        assert (report.tokens, report.pad_share) == (4 + 2 + 7 + 3, pytest.approx(1 - 16 / 22))
        assert report.seconds > 0
    assert number == 6


@pytest.mark.parametrize(("start", "taken"), [(0, 2), (1, 1), (2, 0), (5, 0)])
def test_no_batch_is_taken_that_makes_no_update(start, taken):
    stream = iter([batch("encoder", [(2, 2)])] * 4)
    trained(stream, layout="encoder", start=start, count=2)
    assert len(list(stream)) == 4 - taken


def test_whoever_evaluates_in_between_does_not_end_dropout():
    data = [batch("encoder-decoder", UNEVEN)] * 3
    network, other = model(dropout=0.5), model(dropout=0.5)
    for _ in steps(network, data):
        network.eval()
    list(steps(other, data))
    assert_same(weights(network), weights(other))
    assert network.training


def test_gradients_do_not_pile_up():
    data = [batch("encoder-decoder", UNEVEN)] * 2
    network = model()
    for _ in steps(network, data[:1], rate=0.0):
        first = gradients(network)
    list(steps(network, data, rate=0.0))
    assert_same(gradients(network), first)


@pytest.mark.parametrize("steps", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_two_streams_of_random_numbers_are_one(steps):
    """Of any seed, step and piece, whichever process computes the piece (R13)."""
    streams = {stream_of(seed, step, piece) for seed in range(10) for step in range(steps) for piece in range(10)}
    assert len(streams) == 100 * steps


def test_dropout_is_a_function_of_seed_update_and_piece():
    data = [batch("encoder-decoder", UNEVEN)] * 4
    settings = {"dropout": 0.3, "accumulate": 3, "seed": 5}
    one, _ = trained(data, **settings)
    torch.manual_seed(99)
    assert_same(weights(trained(data, **settings)[0]), weights(one))
    network = model(dropout=0.3)
    for first in (0, 2):  # in two parts, as after a stop
        torch.manual_seed(first)
        list(islice(steps(network, data[first:], accumulate=3, seed=5, start=first), 2))
    assert_same(weights(network), weights(one))
    other, _ = trained(data, **settings | {"seed": 6})
    assert not torch.equal(other.head.weight, one.head.weight)


def test_random_numbers_of_others_are_untouched():
    network = model(dropout=0.5)
    before = torch.get_rng_state()
    list(steps(network, [batch("encoder-decoder", UNEVEN)]))
    with seeded(1, 2, device=CPU):
        one = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with suppress(ZeroDivisionError), seeded(1, 2, device=CPU):
        assert torch.equal(torch.rand(3), one)
        1 / 0  # noqa: B018
    assert torch.equal(torch.get_rng_state(), before)


def test_bfloat16_leaves_the_weights_in_their_own_precision():
    network = model().float()
    (report,) = steps(network, [batch("encoder-decoder", UNEVEN)], precision="bfloat16", rate=0.0)
    (expected,) = steps(model().float(), [batch("encoder-decoder", UNEVEN)], rate=0.0)
    assert {p.dtype for p in network.parameters()} == {p.grad.dtype for p in network.parameters()} == {torch.float32}
    assert report.loss != expected.loss
    assert report.loss == pytest.approx(expected.loss, rel=0.05)


@pytest.mark.parametrize(
    ("layout", "empty"), [("decoder", Batch(torch.tensor([[7]]))), ("encoder", Batch.blanks([[7]], [[]]))]
)
def test_batch_without_targets_is_refused(layout, empty):
    network = model(layout)
    with pytest.raises(DataError, match="must have at least one target; that of step 1 has none"):
        next(steps(network, [empty]))


@pytest.mark.parametrize(("settings", "message"), [
    ({"accumulate": 0}, r"at least 1; got 0\. Try 1"),
    ({"accumulate": -3}, r"at least 1; got -3\. Try 1"),
    ({"precision": "bf16"}, r"precision='bf16' is not known.*Did you mean 'bfloat16'"),
    ({"precision": "auto"}, r"precision='auto' is not known"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused_before_the_first_batch(settings, message):
    requested = iter([batch("encoder-decoder", UNEVEN)])
    with pytest.raises(ConfigError, match=message):
        next(steps(model(), requested, **settings))
    assert len(list(requested)) == 1


def test_recomputation_is_obeyed():
    network, forwards = model("decoder"), []
    network.decoder.blocks[0].register_forward_pre_hook(lambda *_: forwards.append(1))
    list(steps(network, [batch("decoder", [(3, 5)])], recompute=1))
    assert len(forwards) == 2, "one for the loss, one in the backward"


# --- Accumulation over rows of uneven lengths and ignored labels: loss and gradient of the whole batch (N11)


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
            Update(accumulate=pieces, label_smoothing=SMOOTHING),
        )
        assert report.loss == pytest.approx(loss, rel=1e-12)
        assert_close(gradients(network), expected)
