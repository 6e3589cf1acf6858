"""Mixture of experts: its equation, its limits, its gradients; the balance of the router by hand; who counts in it."""

import pytest
import torch

from glassformer import Batch, Mask
from glassformer.base.errors import DataError
from glassformer.nn.build import build_block
from glassformer.nn.feed_forward import EXPERTS, Experts, route
from glassformer.train.loss import loss_of
from glassformer.train.objective import next_token, regress
from glassformer.train.routing_loss import balance_loss, routing_loss, watch_routers, z_loss
from specimens import VOCAB, close, model, normal, padded, scramble, stack, tokens
from train import examples

E, D = 4, 6
kinds = pytest.mark.parametrize("expert", EXPERTS)
MIXED = {"feed_forward": "experts", "n_experts": E}


def experts(k: int, expert: str = "plain", **settings: object) -> Experts:
    made = Experts(D, 7, torch.nn.functional.silu, n_experts=E, experts_per_token=k, expert=expert, **settings)
    return scramble(made.double())


@kinds
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_each_position_gets_the_weighted_sum_of_its_best_experts(expert, k):
    """Written out for one position at a time, with the softmax over the chosen logits alone."""
    made, x = experts(k, expert), normal(3, 5, D)
    answer = made(x)
    for b in range(3):
        for t in range(5):
            logits = made.router.weight @ x[b, t]
            best = logits.argsort(descending=True)[:k].tolist()
            weights = logits[best].softmax(-1) if k > 1 else logits.softmax(-1)[best]
            expected = sum(w * made.experts[e](x[b, t]) for w, e in zip(weights, best, strict=True))
            close(answer[b, t], expected, (b, t))


@kinds
def test_all_experts_active_and_equal_are_one(expert):
    made, x = experts(E, expert), normal(2, 5, D)
    for each in made.experts:
        each.load_state_dict(made.experts[0].state_dict())
    close(made(x), made.experts[0](x))


def test_the_gradient_reaches_router_and_experts():
    for k in (1, 2):
        made, x = experts(k), normal(4, 16, D)
        made(x).square().sum().backward()
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 1e-6, name  # rounding is no lesson


def test_an_expert_that_nobody_asks_has_a_gradient_of_zeros():
    made, x = experts(1), normal(1, 1, D)
    made(x).sum().backward()
    idle = [each for each in made.experts if not any(p.grad.abs().sum() > 0 for p in each.parameters())]
    assert len(idle) == E - 1


def test_any_number_of_positions_may_ask_one_expert():
    """No capacity: what one position gets does not change when all others want the same expert."""
    made, x = experts(2), normal(1, 1, D)
    close(made(x.expand(3, 50, D)), made(x).expand(3, 50, D))


def test_no_position_at_all():
    assert experts(2)(torch.zeros(0, 3, D).double()).shape == (0, 3, D)


def test_the_router_stays_wide_under_autocast():
    made, x = experts(2).float(), torch.randn(2, 5, D)
    seen = []
    made.route = lambda logits, k: seen.append(logits.dtype) or route(logits, k)
    with torch.autocast("cpu", torch.bfloat16):
        assert made(x).dtype == torch.bfloat16
    assert seen == [torch.float32]
    assert made.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_writers_are_those_of_the_experts():
    block = build_block(stack(**MIXED), reads_memory=False)
    named = {id(module): name for name, module in block.named_modules()}
    written = [named[id(writer)] for writer in block.writers]
    assert written == ["self_attention.branch.output", *(f"feed_forward.branch.experts.{e}.down" for e in range(E))]
    assert block(torch.randn(2, 3, 16), mask=Mask()).shape == (2, 3, 16)


# --- the balance


@pytest.mark.parametrize("k", [1, 2])
def test_balance_by_hand(k):
    """Fedus et al. 2022, equations 4 to 6, one position at a time; k = 1 is the paper's case."""
    logits, real = normal(9, E), torch.tensor([1, 1, 0, 1, 0, 1, 1, 1, 1]).bool()
    share, chance = [0.0] * E, [torch.zeros(()).double()] * E
    n = int(real.sum())
    for row in logits[real]:
        for e in row.argsort(descending=True)[:k].tolist():
            share[e] += 1 / (n * k)
        chance = [before + p / n for before, p in zip(chance, row.softmax(-1), strict=True)]
    expected = E * sum(f * p for f, p in zip(share, chance, strict=True))
    routing = route(logits, k)
    close(balance_loss(routing, real), expected)
    ours, theirs = (torch.autograd.grad(loss, logits)[0] for loss in (balance_loss(routing, real), expected))
    close(ours, theirs)
    assert (ours[~real] == 0).all()
    close(z_loss(routing, real), logits[real].exp().sum(-1).log().square().mean())
    close(balance_loss(routing), balance_loss(routing, torch.ones(9).bool()))


def test_an_even_router_has_a_balance_of_one():
    routing = route(torch.eye(E).double() * 1e-9, 1)
    close(balance_loss(routing), torch.tensor(1.0).double(), tolerance=1e-8)
    assert balance_loss(route(torch.tensor([[9.0, 0, 0, 0]] * 5).double(), 1)) > 3.9


def test_no_real_position_has_no_penalty():
    routing = route(normal(3, E), 2)
    none = torch.zeros(3).bool()
    assert balance_loss(routing, none) == z_loss(routing, none) == 0.0


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
def test_the_penalty_is_in_the_objective(shape):
    """By hand: alpha times the balance of each router over the real tokens of its side, once for each target."""
    made = model(shape, **MIXED, balance_loss=0.3, router_z_loss=0.2)
    ids, keep = padded([tokens(6), tokens(3)], 7, "right")
    source, source_keep = padded([tokens(2), tokens(5)], 6, "right") if made.encoder else (None, None)
    batch = Batch(ids, keep, source, source_keep)
    targets = next_token(batch)
    with watch_routers(made) as seen:
        made.hidden(targets.inputs, keep=targets.inputs_keep, source=source, source_keep=source_keep)
    assert [each.side for each in seen] == ["encoder"] * (2 if made.encoder else 0) + ["decoder"] * 2
    real = {"encoder": source_keep, "decoder": keep[:, 1:]}  # right padding: what predicts a token is real itself
    penalty = sum(
        0.3 * balance_loss(each.routing, real[each.side].flatten())
        + 0.2 * z_loss(each.routing, real[each.side].flatten())
        for each in seen
    )
    loss = loss_of(made, batch, next_token)
    close(loss.objective, loss.nll + targets.n_targets * penalty)
    close(routing_loss(seen, real), penalty)


def test_the_penalty_comes_once_for_each_number():
    """A regressor that predicts two numbers a text has two targets a text."""
    made, batch = examples.model("regress", **MIXED, balance_loss=0.3), examples.batch("regress", [(3, 2), (5, 1)])
    targets = regress(batch)
    with watch_routers(made) as seen:
        made.hidden(targets.inputs, keep=targets.inputs_keep)
    loss = loss_of(made, batch, regress)
    assert targets.n_targets == 4
    close(loss.objective, loss.nll + 4 * routing_loss(seen, {"encoder": targets.counted}))


def test_padding_does_not_count_in_the_penalty():
    """Other ids and more columns of padding: the same loss, the same gradient."""
    made = model("decoder", **MIXED, balance_loss=1.0, router_z_loss=1.0)
    rows = [tokens(6), tokens(3)]
    found = []
    for width in (6, 10):
        loss = loss_of(made, Batch(*padded(rows, width, "right")), next_token)
        found.append([loss.objective, *torch.autograd.grad(loss.objective, list(made.parameters()))])
    for one, other in zip(*found, strict=True):
        close(one, other, tolerance=1e-11)


def test_watching_leaves_the_model_as_it_was():
    made, ids = model("decoder", **MIXED), tokens(2, 5)
    before, routes = made(ids), [each.route for each in made.modules() if isinstance(each, Experts)]
    with watch_routers(made):
        assert torch.equal(made(ids), before)
    with pytest.raises(DataError), watch_routers(made):
        made(ids + VOCAB)
    assert [each.route for each in made.modules() if isinstance(each, Experts)] == routes == [route, route]


def test_a_model_without_experts_pays_nothing(monkeypatch):
    made = model("encoder-decoder")
    monkeypatch.setattr(type(made.decoder), "modules", lambda self: pytest.fail("looked through for nothing"))
    with watch_routers(made) as seen:
        made(tokens(2, 3), source=tokens(2, 3))
    assert seen == []
    assert routing_loss(seen, {}) is None


def test_the_penalty_evens_an_uneven_router():
    """A router that prefers one expert for everything learns to share, by the gradient of the penalty alone."""
    made, x = experts(1), torch.randn(256, D).double() + 1.0
    with torch.no_grad():
        made.router.weight[0] += 1.0
    shares = []
    for _ in range(150):
        routing = route(made.router(x), 1)
        shares.append(routing.chosen.flatten().bincount(minlength=E).max().item() / len(x))
        (gradient,) = torch.autograd.grad(balance_loss(routing), made.router.weight)
        with torch.no_grad():
            made.router.weight -= 0.5 * gradient
    assert shares[0] > 0.9
    assert shares[-1] < 0.4, shares[-1]
