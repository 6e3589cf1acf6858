"""BART (Lewis et al. 2020): encoder and decoder, learned positions, norms after the sum and after the embedding."""

from __future__ import annotations

from glassformer.store.families.family import Family

BART = Family(
    names=[
        (r"^(encoder|decoder)\.embedding\.", "model.shared."),
        (r"^(encoder|decoder)\.positions\.", r"model.\1.embed_positions."),
        (r"^(encoder|decoder)\.embedding_norm\.", r"model.\1.layernorm_embedding."),
        (r"^(encoder|decoder)\.blocks\.", r"model.\1.layers."),
        (r"self_attention\.norm_sum", "self_attn_layer_norm"),
        (r"cross_attention\.norm_sum", "encoder_attn_layer_norm"),
        (r"feed_forward\.norm_sum", "final_layer_norm"),
        (r"self_attention\.branch\.", "self_attn."),
        (r"cross_attention\.branch\.", "encoder_attn."),
        (r"attn\.(q|k|v)\w+\.", r"attn.\1_proj."),
        (r"attn\.output\.", "attn.out_proj."),
        (r"feed_forward\.branch\.up\.", "fc1."),
        (r"feed_forward\.branch\.down\.", "fc2."),
        (r"^head\.", "lm_head."),
    ],
    unread=(r"embed_positions\.weight$", 2),
)
