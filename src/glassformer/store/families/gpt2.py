"""GPT-2 (Radford et al. 2019): a decoder, learned positions, norms before the branches, a tied head."""

from __future__ import annotations

from glassformer.store.families.family import Family

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
)
