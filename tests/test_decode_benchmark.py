"""The benchmark of decoding: the weights and keys that a token needs, and the models that CTranslate2 cannot load."""

import importlib
from dataclasses import replace

import pytest

from documents import ROOT
from glassformer import ModelConfig, StackConfig, Transformer


@pytest.fixture
def module(monkeypatch):
    """A file of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_reads_all_maps_and_the_head(module, tied):
    """By hand: four maps of 8 x 8 a block, 8 x 32 up and down, and the head; one row of the embedding is nothing."""
    stack = StackConfig(d_model=8, n_heads=2, n_layers=3, d_ff=32, causal=True)
    model = Transformer(ModelConfig(20, decoder=stack, tie_embeddings=tied))
    assert module("decode_memory").weights(model) == 3 * (4 * 8 * 8 + 2 * 8 * 32) + 20 * 8


def test_a_step_reads_keys_and_values_of_all_layers(module):
    """By hand: a key and a value of one head of 4 numbers in each of three layers."""
    stack = StackConfig(d_model=8, n_heads=2, n_kv_heads=1, n_layers=3, d_ff=32, causal=True)
    assert module("decode_memory").cached(Transformer(ModelConfig(20, decoder=stack))) == 3 * 2 * 4


def test_the_limits_are_of_the_weights_and_of_what_a_step_reads_besides(module, monkeypatch):
    """Three steps after 4 tokens read 4, 5 and 6 columns: 5 on average."""
    memory = module("decode_memory")
    monkeypatch.setattr(memory, "reads", lambda n_bytes, times: (n_bytes, times))
    stack = StackConfig(d_model=8, n_heads=2, n_kv_heads=1, n_layers=3, d_ff=32, causal=True)
    model = Transformer(ModelConfig(20, decoder=stack))
    weights = 2 * (3 * (2 * 8 * 8 + 2 * 4 * 8 + 2 * 8 * 32) + 20 * 8)
    expected = {"reading the weights": (weights, 3), "reading weights and cache": (weights + 5 * 24 * 4, 3)}
    assert memory.limits(model, of_weight=2, of_cache=4, read=4, steps=3) == expected


SMALL = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=32)


def test_a_run_of_the_benchmarks_own_shape_is_translated(module):
    module("decode_lines").check_shape(Transformer(ModelConfig(20, encoder=SMALL, decoder=SMALL)), "runs/de")


@pytest.mark.parametrize(
    ("change", "named"),
    [({"convolution": 2}, "convolution"), ({"positions": "rotary", "norm": "rms"}, "positions, norm")],
)
def test_a_run_that_cannot_be_converted_is_named_with_what_it_has(module, change, named):
    stack = replace(SMALL, **change)
    model = Transformer(ModelConfig(20, encoder=stack, decoder=stack))
    with pytest.raises(SystemExit, match=rf"cannot load runs/de, because of {named}\. .*--model\.convolution 1"):
        module("decode_lines").check_shape(model, "runs/de")


def test_a_run_without_an_encoder_is_refused_for_its_layout(module):
    model = Transformer(ModelConfig(20, decoder=replace(SMALL, causal=True)))
    with pytest.raises(SystemExit, match="because of its layout"):
        module("decode_lines").check_shape(model, "runs/de")
