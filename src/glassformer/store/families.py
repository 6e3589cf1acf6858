"""The families of models that are read and written: one table each, from our names and settings to theirs.

A new family is a table here and a line in `FAMILIES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from glassformer.store.family import (
    Activation,
    Family,
    Flag,
    Number,
    Ours,
    Rotary,
    Row,
    Shape,
    Table,
    Whole,
    join_projections,
    rename,
)

# GPT-2 (Radford et al. 2019): a decoder, learned positions, norms before the branches, a tied head.


GPT2_SHAPE = Shape(
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
        Whole("d_ff", ("n_inner",), lambda found: 4 * found["d_model"]),
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
    shape=GPT2_SHAPE,
    base="transformer.",
    computed=r"\.attn\.(bias|masked_bias)$",
)


# GPT-NeoX (Black et al. 2022; Pythia): a decoder, rotary positions, norms before branches that are often parallel.

GPT_NEOX_SHAPE = Shape(
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
    shape=GPT_NEOX_SHAPE,
    base="gpt_neox.",
    computed=r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",
)


# Llama (Touvron et al. 2023): a decoder, rotary positions, RMS norms before the branches, SwiGLU, no biases.


def head_width(found: Ours) -> int:
    """The usual width of a head."""
    return max(1, found["d_model"] // found["n_heads"])


LLAMA_FIXED: dict[str, object] = {
    "norm": "rms",
    "feed_forward": "gated",
    "positions": "rotary",
    "bias": False,
    "scale_embeddings": False,
    "dropout": 0.0,
    "init": "normal",
}
LLAMA_ROWS: list[Row] = [
    Whole("vocab_size", ("vocab_size",), 32_000),
    Whole("d_model", ("hidden_size",), 4096),
    Whole("n_heads", ("num_attention_heads",), 32),
    Whole("n_kv_heads", ("num_key_value_heads",), lambda found: found["n_heads"], implied=True),
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
    shape=Shape(LLAMA_FIXED, LLAMA_ROWS, wanted={"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}),
    base="model.",
    computed=r"\.rotary_emb\.inv_freq$",
)


# Mistral 7B (Jiang et al. 2023): Llama whose attention may have a sliding window.

MISTRAL = LLAMA._replace(
    architecture="MistralForCausalLM",
    shape=Shape(
        LLAMA_FIXED,
        [*LLAMA_ROWS, Whole("window", ("sliding_window",), optional=True)],
        wanted={},
        usual={
            "num_key_value_heads": 8,
            "intermediate_size": 14_336,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
        },
    ),
)


# BERT (Devlin et al. 2019): an encoder with segments, norms after the sum, and a head for masked tokens.

BERT = Family(
    names=[
        (r"^encoder\.embedding\.", "bert.embeddings.word_embeddings."),
        (r"^encoder\.positions\.", "bert.embeddings.position_embeddings."),
        (r"^encoder\.segments\.", "bert.embeddings.token_type_embeddings."),
        (r"^encoder\.embedding_norm\.", "bert.embeddings.LayerNorm."),
        (r"^encoder\.blocks\.", "bert.encoder.layer."),
        (r"self_attention\.norm_sum", "attention.output.LayerNorm"),
        (r"feed_forward\.norm_sum", "output.LayerNorm"),
        (r"self_attention\.branch\.output", "attention.output.dense"),
        (r"self_attention\.branch", "attention.self"),
        (r"feed_forward\.branch\.up", "intermediate.dense"),
        (r"feed_forward\.branch\.down", "output.dense"),
        (r"^head\.transform\.dense\.", "cls.predictions.transform.dense."),
        (r"^head\.transform\.norm\.", "cls.predictions.transform.LayerNorm."),
        (r"^head\.bias$", "cls.predictions.bias"),
        (r"^head\.weight$", "cls.predictions.decoder.weight"),
    ],
)


# T5 (Raffel et al. 2020): encoder and decoder, RMS norms before the branches, distance buckets, no biases.

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


# BART (Lewis et al. 2020): encoder and decoder, learned positions, norms after the sum and after the embedding.

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


# Marian (Junczys-Dowmunt et al. 2018): both stacks as in Vaswani et al. 2017, but with sinusoids in halves.

MARIAN = Family(names=BART.names)
"""BART's names; names of parts that only BART has never occur. Marian computes its position table, and so do we."""


# Renaming our parameters to those of torch.nn's transformer layers: joined projections, numbered norms.

NAMES = [
    (r"\bblocks\.", "layers."),
    (r"\bself_attention\.branch\.", "self_attn."),
    (r"\bcross_attention\.branch\.", "multihead_attn."),
    (r"\bfeed_forward\.branch\.up\b", "linear1"),
    (r"\bfeed_forward\.branch\.down\b", "linear2"),
    (r"\bself_attention\.norm_(in|sum)\b", "norm1"),
    (r"\bcross_attention\.norm_(in|sum)\b", "norm2"),
    (r"\bfeed_forward\.norm_(in|sum)\b", "norm3"),
    (r"\boutput\.", "out_proj."),
]


def as_torch(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors (weights or their gradients) to torch's names; drops embedding and head, which torch.nn lacks."""
    with_memory = {block_of(name) for name in tensors if "cross_attention" in name}
    kept = {name: each for name, each in tensors.items() if "embedding." not in name and not name.startswith("head.")}
    found: dict[str, Tensor] = {}
    for name, tensor in join_projections(kept, "in_proj_").items():
        [(new, _)] = rename({name: tensor}, NAMES).items()
        if block_of(name) not in with_memory:
            new = new.replace("norm3", "norm2")  # a layer without cross-attention has two norms
        found[new] = tensor
    return found


def block_of(name: str) -> str:
    """Return the part of a name up to its block, such as "decoder.blocks.1."; empty if it has none."""
    return name[: match.end()] if (match := re.search(r"blocks\.\d+\.", name)) else ""


# Hugging Face's names for our weights: one table for each family of models.

FAMILIES: dict[str, Family] = {
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "bert": BERT,
    "t5": T5,
    "t5_gated": T5_GATED,
    "bart": BART,
    "marian": MARIAN,
}
