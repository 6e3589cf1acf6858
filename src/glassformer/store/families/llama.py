"""Llama (Touvron et al. 2023): a decoder, rotary positions, RMS norms before the branches, SwiGLU, no biases."""

from __future__ import annotations

from glassformer.store.families.family import Family
from glassformer.store.families.rotary import Rotary
from glassformer.store.families.settings import Activation, Flag, Number, Ours, Row, Whole
from glassformer.store.families.shape import Shape


def as_many_heads(found: Ours) -> int:
    """The usual number of key/value heads."""
    return found["n_heads"]


def head_width(found: Ours) -> int:
    """The usual width of a head."""
    return max(1, found["d_model"] // found["n_heads"])


FIXED: dict[str, object] = {
    "norm": "rms",
    "feed_forward": "gated",
    "positions": "rotary",
    "bias": False,
    "scale_embeddings": False,
    "dropout": 0.0,
    "init": "normal",
}
ROWS: list[Row] = [
    Whole("vocab_size", ("vocab_size",), 32_000),
    Whole("d_model", ("hidden_size",), 4096),
    Whole("n_heads", ("num_attention_heads",), 32),
    Whole("n_kv_heads", ("num_key_value_heads",), as_many_heads, implied=True),
    Whole("d_head", ("head_dim",), head_width, implied=True),
    Whole("n_layers", ("num_hidden_layers",), 32),
    Whole("d_ff", ("intermediate_size",), 11_008),
    Whole("max_len", ("max_position_embeddings",), 2048),
    Number("attention_dropout", ("attention_dropout",), 0.0),
    Number("norm_eps", ("rms_norm_eps",), 1e-6),
    Activation("activation", "hidden_act", "silu"),
    Rotary("rotary"),
    Flag("tie_embeddings", "tie_word_embeddings", usual=False),
]
LLAMA = Family(
    names=[
        (r"^decoder\.embedding\.", "model.embed_tokens."),
        (r"^decoder\.norm\.", "model.norm."),
        (r"^decoder\.blocks\.", "model.layers."),
        (r"self_attention\.norm_in", "input_layernorm"),
        (r"feed_forward\.norm_in", "post_attention_layernorm"),
        (r"self_attention\.branch\.(q|k|v|o)\w+\.", r"self_attn.\1_proj."),
        (r"feed_forward\.branch\.(gate|up|down)\.", r"mlp.\1_proj."),
        (r"^head\.", "lm_head."),
    ],
    architecture="LlamaForCausalLM",
    shape=Shape(FIXED, ROWS, wanted={"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}),
    base="model.",
    computed=r"\.rotary_emb\.inv_freq$",
)
