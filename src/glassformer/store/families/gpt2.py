"""GPT-2 (Radford et al. 2019): a decoder, learned positions, norms before the branches, a tied head."""

from __future__ import annotations

from glassformer.store.families.family import Family
from glassformer.store.families.settings import Activation, Flag, Number, Ours, Whole
from glassformer.store.families.shape import Shape


def four_times(found: Ours) -> int:
    """The usual width of the feed-forward branch."""
    return 4 * found["d_model"]


SHAPE = Shape(
    fixed={
        "norm": "layer",
        "feed_forward": "plain",
        "positions": "learned",
        "bias": True,
        "scale_embeddings": False,
        "init": "normal",
    },
    rows=[
        Whole("vocab_size", ("vocab_size",), 50_257),
        Whole("d_model", ("n_embd", "hidden_size"), 768),
        Whole("n_heads", ("n_head", "num_attention_heads"), 12),
        Whole("n_layers", ("n_layer", "num_hidden_layers"), 12),
        Whole("d_ff", ("n_inner",), four_times),
        Whole("max_len", ("n_positions", "max_position_embeddings"), 1024),
        Number("dropout", ("resid_pdrop", "embd_pdrop"), 0.1),
        Number("attention_dropout", ("attn_pdrop",), 0.1),
        Number("norm_eps", ("layer_norm_epsilon",), 1e-5),
        Activation("activation", "activation_function", "gelu_new"),
        Flag("tie_embeddings", "tie_word_embeddings", usual=True),
    ],
    wanted={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "is_decoder": False,
    },
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
    shape=SHAPE,
    base="transformer.",
    computed=r"\.attn\.(bias|masked_bias)$",
)
