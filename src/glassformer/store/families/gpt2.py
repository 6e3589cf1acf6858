"""GPT-2 (Radford et al. 2019): a decoder, learned positions, norms before the branches, a tied head."""

from __future__ import annotations

from glassformer.model.config import ModelConfig, StackConfig
from glassformer.store.families.family import Family
from glassformer.store.families.values import Values

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Hugging Face's names of activations, and ours."""


def config(values: Values) -> ModelConfig:
    """Make our config. Dropout is theirs of the branches; the training of another run may set its own."""
    values.refuse(
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
        is_decoder=False,
    )
    width = values.whole("n_embd", "hidden_size", usual=768)
    stack = StackConfig(
        d_model=width,
        n_heads=values.whole("n_head", "num_attention_heads", usual=12),
        n_layers=values.whole("n_layer", "num_hidden_layers", usual=12),
        d_ff=values.whole("n_inner", usual=4 * width),
        dropout=values.number("resid_pdrop", 0.1),
        attention_dropout=values.number("attn_pdrop", 0.1),
        norm_eps=values.number("layer_norm_epsilon", 1e-5),
        activation=values.our_name("activation_function", ACTIVATIONS, "gelu_new"),
        positions="learned",
        max_len=values.whole("n_positions", "max_position_embeddings", usual=1024),
        causal=True,
    )
    return ModelConfig(
        values.whole("vocab_size", usual=50_257),
        decoder=stack,
        tie_embeddings=values.flag("tie_word_embeddings", usual=True),
        scale_embeddings=False,
        init="normal",
    )


GPT2 = Family(
    names=[
        (r"^decoder\.embedding\.", "transformer.wte."),
        (r"^decoder\.positions\.", "transformer.wpe."),
        (r"^decoder\.norm\.", "transformer.ln_f."),
        (r"^decoder\.blocks\.", "transformer.h."),
        (r"self_attention\.norm_in", "ln_1"),
        (r"feed_forward\.norm_in", "ln_2"),
        (r"self_attention\.branch\.output", "attn.c_proj"),
        (r"self_attention\.branch", "attn"),
        (r"feed_forward\.branch\.up", "mlp.c_fc"),
        (r"feed_forward\.branch\.down", "mlp.c_proj"),
        (r"^head\.", "lm_head."),
    ],
    joined="c_attn.",
    turned=r"\.(c_attn|c_proj|c_fc)\.weight$",
    architecture="GPT2LMHeadModel",
    config=config,
    base="transformer.",
    computed=r"\.attn\.(bias|masked_bias)$",
)
