"""Configs of published models and of the five notebooks' models: their shapes, not their weights.

The parameters of each, as `glassformer params NAME` counts them (shared ones once), and the number in its paper:

    preset         parameters      published
    -------------  --------------  -------------------------------------------------------------------------------
    vaswani-base       63,082,496  65M (Vaswani et al. 2017, table 3), with "about 37000" tokens; here 37,000
    vaswani-big       214,245,376  213M (the same table, the same vocabulary)
    gpt2              124,439,808  117M (Radford et al. 2019, table 2), a miscount, as the code published with it says
    gpt2-medium       354,823,168  345M (the same table)
    gpt2-large        774,030,080  762M (the same table)
    gpt2-xl         1,557,611,200  1542M (the same table)
    pythia-70m         70,426,624  70M, 18,915,328 without embeddings (Biderman et al. 2023, table 1)
    pythia-160m       162,322,944  160M, 85,056,000 without embeddings (the same table)
    pythia-410m       405,334,016  410M, 302,311,424 without embeddings (the same table)
    bert-base         109,514,298  110M (Devlin et al. 2019, section 3): encoder and pooler are 109,482,240. Here the
                                   head for masked tokens stands in the pooler's place
    bert-large        335,174,458  340M (the same section): encoder and pooler are 335,141,888
    t5-small           60,506,624  60M (Raffel et al. 2020, section 3.7)
    t5-base           222,903,552  220M (the same section)
    bart-base         139,417,344  139,420,416 of the published weights, whose two tables of positions have two rows
                                   each that no token reads (2 x 2 x 768); Lewis et al. 2020 give no figure
    llama-2-7b      6,738,415,616  6.7B (Touvron et al. 2023, table 2 of Llama 1, with the same shape)
    llama-3-8b      8,030,261,248  8B (Llama Team 2024, table 3)

A notebook's preset is the model that it builds (in 004: that it trains). 000 and 001 output vectors; here they get a
tied head, which adds no parameters. 003 reads and outputs vectors; here it gets a map of 32 features and two labels.

>>> from glassformer import PRESETS
>>> PRESETS["gpt2"].decoder.n_layers
12
"""

from __future__ import annotations

from typing import Any

from glassformer.base.registry import lookup
from glassformer.base.schemes import RotaryConfig
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Lm, Tag


def _sizes(d_model: int, n_heads: int, n_layers: int, **more: int) -> dict[str, Any]:
    """The sizes of a stack whose feed-forward branch is four times as wide as its residual stream, as most are."""
    return {"d_model": d_model, "n_heads": n_heads, "n_layers": n_layers, "d_ff": 4 * d_model, **more}


def _vaswani(**sizes: Any) -> ModelConfig:
    """Vaswani et al. 2017, table 3: one vocabulary, and one matrix shared by both embeddings and the head."""
    stack = StackConfig(n_layers=6, norm_placement="post", **sizes)
    return ModelConfig(37_000, encoder=stack, decoder=stack)


def _gpt2(d_model: int, n_heads: int, n_layers: int) -> ModelConfig:
    """Radford et al. 2019, section 2.3: pre-norm, learned positions, a tied head."""
    sizes = _sizes(d_model, n_heads, n_layers, max_len=1024)
    stack = StackConfig(positions="learned", activation="gelu_tanh", attention_dropout=0.1, causal=True, **sizes)
    return ModelConfig(50_257, decoder=stack, scale_embeddings=False, init="normal")


def _pythia(d_model: int, n_heads: int, n_layers: int) -> ModelConfig:
    """Biderman et al. 2023, section 2.2, after Black et al. 2022: parallel branches, rotary positions, an untied head.

    The vocabulary is that of the published weights: 50,277 tokens, padded to 50,304.
    """
    stack = StackConfig(
        positions="rotary",
        rotary=RotaryConfig(share=0.25),
        parallel_branches=True,
        activation="gelu",
        dropout=0.0,
        causal=True,
        **_sizes(d_model, n_heads, n_layers, max_len=2048),
    )
    return ModelConfig(50_304, decoder=stack, tie_embeddings=False, scale_embeddings=False, init="normal")


def _bert(d_model: int, n_heads: int, n_layers: int) -> ModelConfig:
    """Devlin et al. 2019: two segments, learned positions, post-norm, and the head for masked tokens."""
    sizes = _sizes(d_model, n_heads, n_layers, max_len=512)
    stack = StackConfig(
        n_segments=2,
        embedding_norm=True,
        norm_placement="post",
        norm_eps=1e-12,
        positions="learned",
        activation="gelu",
        attention_dropout=0.1,
        **sizes,
    )
    head = Lm(transform="gelu")
    return ModelConfig(30_522, encoder=stack, scale_embeddings=False, head_bias=True, init="normal", head=head)


def _t5(d_model: int, n_heads: int, n_layers: int) -> ModelConfig:
    """Raffel et al. 2020, section 2.1: RMS norms, no biases, bucketed relative positions, scores without a scale.

    The vocabulary is that of the published weights: 32,000 pieces and 100 sentinels, padded to 32,128. T5 also has
    dropout after the last norm of a stack, which we leave out.
    """
    sizes = _sizes(d_model, n_heads, n_layers, d_head=64)
    stack = StackConfig(
        norm="rms",
        norm_eps=1e-6,
        positions="t5",
        attention_scale=1.0,
        bias=False,
        attention_dropout=0.1,
        feed_forward_dropout=0.1,
        **sizes,
    )
    return ModelConfig(32_128, encoder=stack, decoder=stack, scale_embeddings=False, scale_head=True)


def _bart_base() -> ModelConfig:
    """Lewis et al. 2020, section 2.1: GELU, post-norm, and a norm after the embedding."""
    stack = StackConfig(
        d_model=768,
        n_heads=12,
        n_layers=6,
        d_ff=3072,
        embedding_norm=True,
        norm_placement="post",
        positions="learned",
        max_len=1024,
        activation="gelu",
    )
    return ModelConfig(50_265, encoder=stack, decoder=stack, scale_embeddings=False, init="normal")


def _llama(vocab_size: int, **sizes: Any) -> ModelConfig:
    """Touvron et al. 2023, section 2.2: RMS norms, SwiGLU, rotary positions, no biases, an untied head."""
    stack = StackConfig(
        d_model=4096,
        n_heads=32,
        n_layers=32,
        norm="rms",
        feed_forward="gated",
        activation="silu",
        positions="rotary",
        bias=False,
        dropout=0.0,
        causal=True,
        **sizes,
    )
    return ModelConfig(vocab_size, decoder=stack, tie_embeddings=False, scale_embeddings=False, init="normal")


def _notebook_000() -> ModelConfig:
    sizes: dict[str, Any] = {"d_model": 512, "n_heads": 8, "n_layers": 6, "d_ff": 2048, "max_len": 512}
    stack = StackConfig(norm_placement="post", final_norm=True, feed_forward_dropout=0.1, **sizes)
    return ModelConfig(10_000, encoder=stack)


def _notebook_001() -> ModelConfig:
    sizes: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_len": 100}
    return ModelConfig(50, encoder=StackConfig(norm_placement="post", dropout=0.0, **sizes), scale_embeddings=False)


def _notebook_002() -> ModelConfig:
    """The model of the reverse task; the copy task's model has two layers."""
    drops: dict[str, Any] = {"dropout": 0.1, "attention_dropout": 0.1, "feed_forward_dropout": 0.1}
    stack = StackConfig(d_model=64, n_heads=4, n_layers=3, d_ff=256, activation="gelu", **drops)
    return ModelConfig(20, encoder=stack, tie_embeddings=False, head_bias=True)


def _notebook_003() -> ModelConfig:
    """The stack of four encoder blocks, which reads vectors."""
    sizes: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 4, "d_ff": 64, "n_features": 32}
    stack = StackConfig(norm_placement="post", final_norm=True, feed_forward_dropout=0.1, **sizes)
    return ModelConfig(encoder=stack, tie_embeddings=False, head=Tag(2))


def _notebook_004() -> ModelConfig:
    """The translator of numbers, with two vocabularies of 103 tokens each."""
    drops: dict[str, Any] = {"attention_dropout": 0.1, "feed_forward_dropout": 0.1}
    stack = StackConfig(d_model=128, n_heads=4, n_layers=2, d_ff=256, norm_placement="post", **drops)
    return ModelConfig(103, encoder=stack, decoder=stack, tie_embeddings=False, share_embeddings=False, head_bias=True)


PRESETS: dict[str, ModelConfig] = {
    "vaswani-base": _vaswani(d_model=512, n_heads=8, d_ff=2048),
    "vaswani-big": _vaswani(d_model=1024, n_heads=16, d_ff=4096, dropout=0.3),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 16, 24),
    "gpt2-large": _gpt2(1280, 20, 36),
    "gpt2-xl": _gpt2(1600, 25, 48),
    "pythia-70m": _pythia(512, 8, 6),
    "pythia-160m": _pythia(768, 12, 12),
    "pythia-410m": _pythia(1024, 16, 24),
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1024, 16, 24),
    "t5-small": _t5(512, 8, 6),
    "t5-base": _t5(768, 12, 12),
    "bart-base": _bart_base(),
    "llama-2-7b": _llama(32_000, d_ff=11_008, max_len=4096),
    "llama-3-8b": _llama(128_256, d_ff=14_336, n_kv_heads=8, max_len=8192, rotary=RotaryConfig(base=500_000.0)),
    "notebook-000": _notebook_000(),
    "notebook-001": _notebook_001(),
    "notebook-002": _notebook_002(),
    "notebook-003": _notebook_003(),
    "notebook-004": _notebook_004(),
}


def preset(name: str) -> ModelConfig:
    """Return the config of a named model. Errors: `ConfigError` for an unknown name, with the most similar known one.

    >>> from glassformer import preset
    >>> preset("gpt2").decoder.n_layers
    12
    """
    return lookup(PRESETS, name, "preset")
