"""T5 (Raffel et al. 2020): encoder and decoder, RMS norms before the branches, distance buckets, no biases."""

from __future__ import annotations

from glassformer.store.families.family import Family
from glassformer.store.rename import Table

BOTH: Table = [
    (r"^(encoder|decoder)\.embedding\.", "shared."),
    (r"^(encoder|decoder)\.positions\.", r"\1.block.0.layer.0.SelfAttention.relative_attention_bias."),
    (r"^(encoder|decoder)\.norm\.", r"\1.final_layer_norm."),
    (r"^(encoder|decoder)\.blocks\.", r"\1.block."),
    (r"self_attention\.", "layer.0."),
    (r"cross_attention\.", "layer.1."),
    (r"^(encoder\..*)feed_forward\.", r"\1layer.1."),
    (r"^(decoder\..*)feed_forward\.", r"\1layer.2."),
    (r"\.norm_in\.", ".layer_norm."),
    (r"layer\.0\.branch\.(q|k|v|o)\w+\.", r"layer.0.SelfAttention.\1."),
    (r"layer\.1\.branch\.(q|k|v|o)\w+\.", r"layer.1.EncDecAttention.\1."),
    (r"branch\.down\.", "DenseReluDense.wo."),
    (r"^head\.", "lm_head."),
]
T5 = Family(names=[*BOTH, (r"branch\.up\.", "DenseReluDense.wi.")])
T5_GATED = Family(
    names=[*BOTH, (r"branch\.gate\.", "DenseReluDense.wi_0."), (r"branch\.up\.", "DenseReluDense.wi_1.")],
)
"""T5 1.1 and later models, with gated feed-forwards (Shazeer 2020, section 3.1)."""
