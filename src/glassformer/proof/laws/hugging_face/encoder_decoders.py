"""Laws of encoder-decoders: T5, BART and Marian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.base.order import RelativeConfig
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.proof.laws.hugging_face.theirs import blanked, carry_over, compared, take_wide_norms, tiny
from glassformer.proof.laws.law import Law, Setting, apart
from glassformer.proof.laws.specimens import model, padded, tokens
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for

B, T, S = 3, 12, 11
BUCKETS = RelativeConfig(n_buckets=8, max_distance=10)
SIDES = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
         (("layers", 2), ("ffn_dim", 24), ("attention_heads", 4))}  # fmt: skip
Rows = tuple[Tensor, Tensor | None]
"""Ids, and which of them are real; None if all are."""
Pair = tuple[Transformer, nn.Module, str]
"""Our model, theirs with our weights, and the family."""
POST = {"norm_placement": "post", "activation": "gelu"}


def t5(setting: Setting, gated: bool) -> Pair:
    """Return our model and T5ForConditionalGeneration: 1.0 (relu, tied) or 1.1 (gated gelu, untied head)."""
    kind = {"feed_forward": "gated", "activation": "gelu_tanh"} if gated else {}
    own = {"scale_embeddings": False, "tie_embeddings": not gated, "scale_head": not gated}
    settings = {"norm": "rms", "norm_eps": 1e-6, "bias": False, "positions": "t5", "attention_scale": 1.0}
    ours = model(setting, "encoder-decoder", own=own, relative=BUCKETS, d_head=6, **settings, **kind)
    sizes = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 4}
    buckets = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}
    projection = {"feed_forward_proj": "gated-gelu" if gated else "relu", "tie_word_embeddings": not gated}
    theirs = tiny(setting, "T5", "ForConditionalGeneration", **sizes, **buckets, **projection)
    if gated:  # transformers 5 ties the head of every T5, whatever the config says
        head = cast(Any, theirs).lm_head
        head.weight = nn.Parameter(head.weight.detach().clone())
    family = "t5_gated" if gated else "t5"
    carry_over(ours, theirs, family)
    return ours, theirs, family


def t5_as_it_is(setting: Setting) -> Iterator[float]:
    """Both versions, with norms that compute their mean square in float32 whatever the dtype."""
    for gated in (False, True):
        yield from translation(setting, *t5(setting, gated), ("right", "left"))


def t5_wide(setting: Setting) -> Iterator[float]:
    """Both versions, with each norm replaced by torch's RMSNorm."""
    for gated in (False, True):
        ours, theirs, family = t5(setting, gated)
        take_wide_norms(theirs)
        yield from translation(setting, ours, theirs, family, ("right", "left"))


def bart(setting: Setting) -> Iterator[float]:
    """BartForConditionalGeneration. No token reads the first two rows of its tables of positions."""
    yield from translation(setting, *bart_pair(setting), "bart")


def bart_pair(setting: Setting) -> tuple[Transformer, nn.Module]:
    """Return our model, and theirs with our weights."""
    settings = {**POST, "positions": "learned", "embedding_norm": True}
    ours = model(setting, "encoder-decoder", own={"scale_embeddings": False}, **settings)
    theirs = tiny(setting, "Bart", "ForConditionalGeneration", d_model=16, max_position_embeddings=24, **SIDES)
    carry_over(ours, theirs, "bart")
    return ours, theirs


def marian(setting: Setting) -> Iterator[float]:
    """MarianMTModel, with its float32 table of sinusoids replaced by ours."""
    ours, theirs = marian_pair(setting)
    for exact, table in tables(setting, ours, theirs):
        with torch.no_grad():
            table.copy_(exact)
    yield from translation(setting, ours, theirs, "marian")


def marian_tables(setting: Setting) -> Iterator[float]:
    """Both tables of sinusoids."""
    for exact, table in tables(setting, *marian_pair(setting)):
        yield apart(exact, table)


def marian_pair(setting: Setting) -> tuple[Transformer, nn.Module]:
    """Return our model, and theirs with our weights."""
    settings: dict[str, Any] = {**POST, "activation": "silu", "positions": "sinusoidal_halves"}
    ours = model(setting, "encoder-decoder", **settings)
    sizes = {"d_model": 16, "max_position_embeddings": 24, "activation_function": "swish", "scale_embedding": True}
    theirs = tiny(setting, "Marian", "MTModel", **sizes, **SIDES)
    carry_over(ours, theirs, "marian")
    return ours, theirs


def tables(setting: Setting, ours: Transformer, theirs: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield our sinusoids and theirs, for the encoder and for the decoder."""
    for side in ("encoder", "decoder"):
        table = cast(Tensor, theirs.get_submodule(f"model.{side}.embed_positions").weight)
        scheme = cast(Any, ours.get_submodule(f"{side}.positions"))
        yield scheme.embedding(torch.arange(24, device=setting.device), table), table


def translation(
    setting: Setting, ours: Transformer, theirs: nn.Module, family: str, paddings: tuple[str, ...] = ("right",)
) -> Iterator[float]:
    """Logits, gradients and loss, on full rows and on rows and sources of unequal length.

    `paddings` says where the sources are padded. The decoder is padded on the right, where its labels are read.
    """
    cases: list[tuple[Rows, Rows]] = [((tokens(setting, B, T), None), (tokens(setting, B, S), None))]
    for where in paddings:
        rows, sources = ([tokens(setting, n) for n in lengths] for lengths in ((12, 3, 7), (5, 11, 2)))
        cases.append((padded(setting, rows, T, "right"), padded(setting, sources, S, where)))
    for (ids, keep), (source, source_keep) in cases:
        real = keep if keep is not None else ids >= 0
        read = source_keep if source_keep is not None else source >= 0
        expected = theirs(
            input_ids=source,
            attention_mask=read.long(),
            decoder_input_ids=ids[:, :-1],
            labels=blanked(ids, real)[:, 1:].contiguous(),
            use_cache=False,
        )
        asked = real[:, 1:]
        answer = ours(ids[:, :-1], source=source, source_keep=source_keep)
        yield compared(answer[asked], ours, expected.logits[asked], theirs, family)
        if source_keep is None or source_keep[:, 0].all():  # a `Batch` has its padding on the right
            loss = loss_of(ours, Batch(ids, keep, source, source_keep), objective_for(ours)).nll / asked.sum()
            yield apart(loss, expected.loss)


LAWS = [
    Law("Hugging Face", "T5, 1.0 and 1.1, unchanged", t5_as_it_is, narrow=True),
    Law("Hugging Face", "T5, 1.0 and 1.1, with their float32 norms in the wider dtype", t5_wide),
    Law("Hugging Face", "BART", bart),
    Law("Hugging Face", "Marian", marian),
    Law("Hugging Face", "Marian, its table of sinusoids", marian_tables, narrow=True),
]
