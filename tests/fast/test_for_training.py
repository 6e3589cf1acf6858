"""Speed is put on and taken off: same parameters and names, equal losses and gradients, and no trace afterwards."""

import copy

import pytest
import torch
from torch import nn

from glassformer import Transformer, fast
from glassformer.data.batch import Batch
from glassformer.fast.attention import FastAttention
from glassformer.fast.dropout import FastDropout, FastStochasticDepth
from glassformer.nn.attention import Attention
from glassformer.train.loss import loss_of
from glassformer.train.muon import Muon, by_products
from glassformer.train.objective import objective_for
from specimens import model, native_cpp

SETTINGS = {"convolution": 2, "qk_norm": "rms", "positions": "rotary"}


BATCH = Batch(torch.tensor([[1, 3, 4, 5], [4, 4, 5, 0]]), torch.tensor([[True] * 4, [True] * 3 + [False]]))


def kinds(network: nn.Module) -> list[type]:
    return [type(each) for each in network.modules()]


def learned(network: Transformer) -> list[torch.Tensor]:
    """The loss and all gradients."""
    loss = loss_of(network.train(), BATCH, objective_for(network), label_smoothing=0.1)
    return [*loss, *torch.autograd.grad(loss.objective, list(network.parameters()))]


@native_cpp
def test_losses_and_gradients_are_those_of_plain_torch():
    network = model("decoder", norm="rms", **SETTINGS).double()
    before, names, own = learned(network), list(network.state_dict()), kinds(network)
    with fast.for_training(network):
        assert {FastAttention, FastDropout} < {*kinds(network)}
        assert list(network.state_dict()) == names
        torch.testing.assert_close(learned(network), before, rtol=1e-11, atol=1e-11)
    assert kinds(network) == own
    assert "loss_kernel" not in vars(network.head)
    assert all(torch.equal(one, other) for one, other in zip(learned(network), before, strict=True))


def test_what_is_exchanged_is_still_of_its_kind():
    network = model("decoder", stochastic_depth=0.2, dropout=0.1, **SETTINGS)
    with fast.for_training(network):
        assert sum(isinstance(each, Attention) for each in network.modules()) > 0
        assert sum(type(each) is FastStochasticDepth for each in network.modules()) > 0
        assert nn.Dropout not in kinds(network)


def test_evaluation_changes_no_bit():
    network, ids = model("decoder", norm="rms", dropout=0.3, **SETTINGS).eval(), torch.tensor([[1, 3, 4, 5]])
    before = network(ids)
    with fast.for_training(network):
        assert torch.equal(network(ids), before)


@native_cpp
def test_putting_it_on_twice_takes_off_once():
    network = model("decoder", **SETTINGS)
    own = kinds(network)
    with fast.for_training(network):
        fast.for_training(network).take_off()
        assert kinds(network) != own
    assert kinds(network) == own


@native_cpp
@pytest.mark.parametrize("settings", [{"attention": "reference"}, {"attention_dropout": 0.1}])
def test_attention_that_computes_otherwise_is_left_alone(settings):
    network = model("decoder", **settings)
    fast.for_training(network)
    assert FastAttention not in kinds(network)


def test_a_part_with_a_forward_of_its_own_is_left_alone():
    network = model("decoder", dropout=0.1)
    changed = network.decoder.dropout
    changed.forward = lambda x: x
    fast.for_training(network)
    assert type(changed) is nn.Dropout


@native_cpp
def test_muon_turns_in_cpp_until_it_is_taken_off():
    network = model("decoder")
    matrix, *others = network.decoder.blocks[0].feed_forward.branch.parameters()
    optimizer = Muon([{"params": [matrix]}], [{"params": others}], lr=0.1)
    with fast.for_training(network, optimizer):
        assert optimizer.iterate is not by_products
    assert optimizer.iterate is by_products


def test_a_copy_has_it_too():
    network = model("decoder", **SETTINGS)
    fast.for_training(network)
    assert kinds(copy.deepcopy(network)) == kinds(network)


def test_the_environment_leaves_it_off(monkeypatch):
    monkeypatch.setenv("GLASSFORMER_FAST", "0")
    network = model("decoder", **SETTINGS)
    own = kinds(network)
    (note,) = fast.for_training(network).notes
    assert note.startswith("fast: off, as GLASSFORMER_FAST=0 says; ")
    assert kinds(network) == own


def test_without_a_compiler_a_line_says_what_it_costs(monkeypatch):
    monkeypatch.setattr("glassformer.fast.compiler.compiler", lambda: None)
    monkeypatch.setattr("glassformer.fast.training.has_cpp", lambda source: False)
    network = model("decoder", dropout=0.1, **SETTINGS)
    (note,) = fast.for_training(network).notes
    assert "no C++ compiler" in note
    assert "g++" in note
    assert "as long" in note
    assert FastAttention not in kinds(network)
    assert FastDropout in kinds(network)  # which needs none


def test_other_devices_keep_their_own():
    network = model("decoder", **SETTINGS).to("meta")
    own = kinds(network)
    assert not fast.for_training(network).notes
    assert kinds(network) == own
