"""Llama (Touvron et al. 2023): a decoder, rotary positions, RMS norms before the branches, SwiGLU, no biases."""

from __future__ import annotations

from glassformer.store.families.family import Family

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
)
