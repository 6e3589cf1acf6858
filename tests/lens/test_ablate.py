"""Silencing heads, importance by gradient, and pruning for good."""

import random
from collections.abc import Iterator

import pytest
import torch

from glassformer import Transformer
from glassformer.base.errors import ConfigError
from glassformer.lens.ablate import all_heads, gradient_importance, mean_outputs, per_sequence, place, silence
from glassformer.lens.prune import pruned
from glassformer.lens.roles.probe import read
from glassformer.lens.roles.roles import similar
from glassformer.nn.observe import Attended, attentions, watch_attention
from glassformer.train.loop import train_steps
from glassformer.train.loss import loss_of
from glassformer.train.optimizer import build_optimizer
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OptimizerConfig
from lens.learners import IDS, LAYOUTS, backwards, some_pairs, untrained

TOLERANCE = {"atol": 1e-12, "rtol": 0.0}


def model_of(shape: str, **settings: object) -> Transformer:
    return untrained(shape, d_model=16, n_heads=4, **settings).double().eval()


def batch_of(shape: str, n: int = 6, *, equal: bool = False):
    draw = random.Random(2)
    pairs = some_pairs(draw, n, backwards, repeats=True)
    if equal:
        pairs = [(source, source[::-1]) for source in (draw.choices(IDS, k=5) for _ in range(n))]
    return LAYOUTS[shape][0](pairs)


def logits(model: Transformer, batch) -> torch.Tensor:
    return model(batch.tokens, keep=batch.keep, source=batch.source, source_keep=batch.source_keep)


def outputs(model: Transformer, batch) -> dict[tuple[str, int], torch.Tensor]:
    found: dict[tuple[str, int], torch.Tensor] = {}

    def note(call: Attended) -> None:
        found[place(call.name)] = call.output

    with watch_attention(model, note), torch.no_grad():
        logits(model, batch)
    return found


@pytest.mark.parametrize("shape", LAYOUTS)
def test_a_silenced_head_gives_nothing_and_the_others_what_they_gave(shape):
    """In the first layer of each attention, whose input is as before."""
    model, batch = model_of(shape), batch_of(shape)
    before, block = outputs(model, batch), "decoder" if "decoder" in shape else "encoder"
    with silence(model, [(block, 0, 2)]):
        after = outputs(model, batch)
    assert not bool(after[block, 0][:, 2].any())
    rest = [0, 1, 3]
    assert torch.equal(after[block, 0][:, rest], before[block, 0][:, rest])
    assert not torch.equal(after[block, 1], before[block, 1])


def test_the_model_is_as_before_also_after_an_exception():
    model, batch = model_of("encoder-decoder"), batch_of("encoder-decoder")
    seams = {name: each.attend for name, each in attentions(model).items()}
    before = logits(model, batch)
    with pytest.raises(RuntimeError, match="halfway"), silence(model, all_heads(model)):
        raise RuntimeError("halfway")
    assert {name: each.attend for name, each in attentions(model).items()} == seams
    assert torch.equal(logits(model, batch), before)


def test_the_mean_is_that_of_the_counted_queries():
    model, batch = model_of("decoder"), batch_of("decoder")
    given = outputs(model, batch)["decoder", 0]
    counted = batch.keep
    means = mean_outputs([(("decoder", 0), given, counted)])
    by_hand = torch.stack([given[:, head][counted].mean(0) for head in range(4)])
    torch.testing.assert_close(means["decoder", 0], by_hand, **TOLERANCE)
    with silence(model, [("decoder", 0, 3)], "mean", means=means):
        after = outputs(model, batch)["decoder", 0]
    assert torch.equal(after[:, 3], by_hand[3].expand_as(after[:, 3])) or torch.allclose(after[:, 3], by_hand[3])
    assert torch.equal(after[:, :3], given[:, :3])


def test_a_resample_is_the_same_place_of_another_sequence():
    model, batch = model_of("decoder"), batch_of("decoder", equal=True)
    before = outputs(model, batch)["decoder", 0]
    with silence(model, [("decoder", 0, 1)], "resample", seed=3):
        after = outputs(model, batch)["decoder", 0]
    came_from = [[row for row in range(6) if torch.equal(after[to, 1], before[row, 1])] for to in range(6)]
    assert all(len(each) == 1 for each in came_from)
    assert {each[0] for each in came_from} == {*range(6)}
    assert all(each[0] != to for to, each in enumerate(came_from))


@pytest.mark.shapes(False)
def test_a_head_is_silenced_by_its_place_not_by_its_short_name():
    with (
        pytest.raises(ConfigError, match=r"\(block, layer, head\).*got 'x.0.1'"),
        silence(model_of("encoder-decoder"), ["x.0.1"]),
    ):
        pass


def test_what_cannot_be_silenced_is_named():
    model = model_of("encoder-decoder")
    with (
        pytest.raises(ConfigError, match=r"\('cross', 2, 0\).*e.0.0 to e.1.3, d.0.0 to d.1.3, x.0.0 to x.1.3"),
        silence(model, [("cross", 2, 0)]),
    ):
        pass
    with pytest.raises(ConfigError, match="'median'"), silence(model, [], "median"):
        pass
    with pytest.raises(ConfigError, match="means=None"), silence(model, [("cross", 0, 0)], "mean"):
        pass


# --- importance


@pytest.mark.parametrize("shape", LAYOUTS)
def test_gradient_importance_is_taken_sequence_by_sequence(shape):
    model, batch = model_of(shape), batch_of(shape)
    objective = LAYOUTS[shape][1]
    whole = per_sequence(model, [batch], objective)
    for row, part in enumerate(batch.split(len(batch.tokens))):
        for where, alone in per_sequence(model, [part], objective).items():
            torch.testing.assert_close(alone[0], whole[where][row], **TOLERANCE)


def test_the_gradient_is_what_a_small_gate_changes():
    model, batch = model_of("encoder-decoder"), batch_of("encoder-decoder")
    objective = LAYOUTS["encoder-decoder"][1]
    gradient = per_sequence(model, [batch], objective)["cross", 1][:, 2].sum()
    attention = attentions(model)["decoder.blocks.1.cross_attention"]
    losses = []
    for gate in (1 - 1e-6, 1 + 1e-6):
        own = attention.attend
        attention.attend = lambda *a, own=own, gate=gate, **k: (
            own(*a, **k) * torch.tensor([1.0, 1, gate, 1], dtype=torch.float64)[:, None, None]
        )
        with torch.no_grad():
            losses.append(float(loss_of(model, batch, objective).objective))
        attention.attend = own
    assert float(gradient) == pytest.approx((losses[1] - losses[0]) / 2e-6, rel=1e-5)


def test_importance_has_length_one_in_each_attention():
    model, batch = model_of("encoder-decoder"), batch_of("encoder-decoder")
    found = gradient_importance(model, [batch], LAYOUTS["encoder-decoder"][1])
    assert {*found} == {*all_heads(model)}
    for block in ("encoder", "decoder", "cross"):
        assert sum(found[block, 1, head] ** 2 for head in range(4)) == pytest.approx(1)
    assert all(each > 0 for each in found.values())


# --- heads that are alike


def test_copies_of_a_head_are_the_most_alike():
    model, batch = model_of("encoder"), batch_of("encoder")
    attention = attentions(model)["encoder.blocks.0.self_attention"]
    with torch.no_grad():
        for linear in (attention.query, attention.key):
            linear.weight[12:16] = linear.weight[4:8]
    seen = read(model, batch, LAYOUTS["encoder"][1])
    pairs = similar(seen.maps, {"encoder": seen.views["encoder"]})
    assert (pairs[0].one, pairs[0].other) == (("encoder", 0, 1), ("encoder", 0, 3))
    assert pairs[0].divergence == pytest.approx(0, abs=1e-12)
    assert pairs[1].divergence > 1e-4
    assert len(pairs) == 8 * 7 / 2


# --- pruning


@pytest.mark.parametrize("settings", [{}, {"n_kv_heads": 2}, {"positions": "shaw"}, {"bias": False}], ids=str)
@pytest.mark.parametrize("shape", LAYOUTS)
def test_a_pruned_model_is_the_masked_one(shape, settings):
    model, batch = model_of(shape, **settings), batch_of(shape)
    for heads in ([all_heads(model)[1]], all_heads(model)[::3], all_heads(model)[:2]):
        before = {name: each.clone() for name, each in model.state_dict().items()}
        with silence(model, heads):
            masked = logits(model, batch)
        torch.testing.assert_close(logits(pruned(model, heads), batch), masked, **TOLERANCE)
        assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items()), "a copy is pruned"


def test_a_key_value_head_stays_while_others_share_it():
    model = model_of("decoder", n_kv_heads=2)
    smaller = attentions(pruned(model, [("decoder", 0, 0)]))["decoder.blocks.0.self_attention"]
    assert bool(smaller.value.weight[:4].any())
    removed = attentions(pruned(model, [("decoder", 0, 0), ("decoder", 0, 1)]))["decoder.blocks.0.self_attention"]
    assert not bool(removed.value.weight[:4].any())
    assert bool(removed.value.weight[4:].any())


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_training_does_not_bring_a_pruned_head_back(name):
    heads = [("decoder", 0, 0), ("cross", 1, 3)]
    model = pruned(model_of("encoder-decoder"), heads)
    batch = batch_of("encoder-decoder")

    def batches() -> Iterator[object]:
        while True:
            yield batch

    optimizer = build_optimizer(model, OptimizerConfig(name=name), learning_rate=1e-2)
    for _ in train_steps(model, batches(), optimizer, Schedule("constant", 1e-2, 3)):
        pass
    model.eval()
    after = logits(model, batch)
    with silence(model, heads):
        torch.testing.assert_close(logits(model, batch), after, **TOLERANCE)
