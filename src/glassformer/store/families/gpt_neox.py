"""GPT-NeoX (Black et al. 2022; Pythia): a decoder, rotary positions, norms before branches that are often parallel."""

from __future__ import annotations

from glassformer.store.families.family import Family
from glassformer.store.families.rotary import Rotary
from glassformer.store.families.settings import Activation, Flag, Number, Whole
from glassformer.store.families.shape import Shape

SHAPE = Shape(
    fixed={
        "norm": "layer",
        "feed_forward": "plain",
        "positions": "rotary",
        "bias": True,
        "scale_embeddings": False,
        "init": "normal",
    },
    rows=[
        Whole("vocab_size", ("vocab_size",), 50_432),
        Whole("d_model", ("hidden_size",), 6144),
        Whole("n_heads", ("num_attention_heads",), 64),
        Whole("n_layers", ("num_hidden_layers",), 44),
        Whole("d_ff", ("intermediate_size",), 24_576),
        Whole("max_len", ("max_position_embeddings",), 2048),
        Number("dropout", ("hidden_dropout",), 0.0),
        Number("attention_dropout", ("attention_dropout",), 0.0),
        Number("norm_eps", ("layer_norm_eps",), 1e-5),
        Activation("activation", "hidden_act", "gelu"),
        Rotary("rotary", "rotary_emb_base", "rotary_pct", partly=True),
        Flag("tie_embeddings", "tie_word_embeddings", usual=False),
        Flag("parallel_branches", "use_parallel_residual", usual=True),
    ],
    wanted={"attention_bias": True},
    usual={"rotary_pct": 0.25},
)
GPT_NEOX = Family(
    names=[
        (r"^decoder\.embedding\.", "gpt_neox.embed_in."),
        (r"^decoder\.norm\.", "gpt_neox.final_layer_norm."),
        (r"^decoder\.blocks\.", "gpt_neox.layers."),
        (r"self_attention\.norm_in", "input_layernorm"),
        (r"feed_forward\.norm_in", "post_attention_layernorm"),
        (r"self_attention\.branch\.output", "attention.dense"),
        (r"self_attention\.branch", "attention"),
        (r"feed_forward\.branch\.up", "mlp.dense_h_to_4h"),
        (r"feed_forward\.branch\.down", "mlp.dense_4h_to_h"),
        (r"^head\.", "embed_out."),
    ],
    joined="query_key_value.",
    by_head=True,
    architecture="GPTNeoXForCausalLM",
    shape=SHAPE,
    base="gpt_neox.",
    computed=r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",
)
