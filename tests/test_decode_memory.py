"""What the benchmark of decoding takes for the weights that a token needs."""

from __future__ import annotations

import importlib

import pytest

from documents import ROOT
from glassformer import ModelConfig, StackConfig, Transformer


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_reads_all_maps_and_the_head(monkeypatch, tied):
    """By hand: four maps of 8 x 8 a block, 8 x 32 up and down, and the head; one row of the embedding is nothing."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    memory = importlib.import_module("decode_memory")
    stack = StackConfig(d_model=8, n_heads=2, n_layers=3, d_ff=32, causal=True)
    model = Transformer(ModelConfig(20, decoder=stack, tie_embeddings=tied))
    assert memory.weights(model) == 3 * (4 * 8 * 8 + 2 * 8 * 32) + 20 * 8
