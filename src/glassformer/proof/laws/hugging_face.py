"""Tiny random models of Hugging Face's transformers and ours agree in logits, losses and every gradient."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.base.schemes import RelativeConfig, RotaryConfig
from glassformer.data.batch import Batch
from glassformer.nn.outputs import Lm
from glassformer.nn.transformer import Transformer
from glassformer.proof.laws.law import (
    VOCAB,
    Law,
    NotHere,
    Setting,
    apart,
    gradients,
    model,
    padded,
    same_gradients,
    tokens,
)
from glassformer.store.families import FAMILIES
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for

# Helpers for all Hugging Face families: a model of theirs with our weights, and the comparison of answers.

SIZES = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
"""No padding id, because theirs would keep the gradient of its embedding at zero."""
Pair = tuple[Transformer, nn.Module, str]
"""Our model, theirs with our weights, and the family."""


def tiny(setting: Setting, family: str, task: str, **sizes: Any) -> nn.Module:
    """Return a small model of theirs without dropout. It uses eager attention unless the sizes name another.

    Errors: `NotHere` if transformers is not installed.
    """
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError:
        raise NotHere("transformers is not installed; pip install transformers") from None
    library.logging.set_verbosity_error()  # it prints advice for every new model
    config = getattr(library, f"{family}Config")(**(SIZES | {"attn_implementation": "eager"} | sizes))
    return getattr(library, f"{family}{task}")(config).to(setting.device, setting.dtype).eval()


def carry_over(ours: Transformer, theirs: nn.Module, family: str) -> Pair:
    """Copy our weights into their model, which must have exactly the same learnable parameters; return all three."""
    weights: dict[str, Tensor] = FAMILIES[family].export(dict(ours.named_parameters()), ours.config.stack.n_heads)
    wanted = {name: each for name, each in theirs.named_parameters() if each.requires_grad}
    assert weights.keys() == wanted.keys(), weights.keys() ^ wanted.keys()
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(weights[name])
    return ours, theirs, family


def compared(answer: Tensor, ours: Transformer, expected: Tensor, theirs: nn.Module, family: str) -> float:
    """Return the larger of the errors of logits and gradients, matched by their names."""
    mine = FAMILIES[family].export(gradients(answer, ours), ours.config.stack.n_heads)
    return max(apart(answer, expected), same_gradients(mine, gradients(expected, theirs)))


def take_wide_norms(theirs: nn.Module) -> None:
    """Replace each norm that computes its mean square in float32 by torch.nn.RMSNorm with the same weight."""
    for name, norm in [*theirs.named_modules()]:
        if hasattr(norm, "variance_epsilon"):
            weight = cast(nn.Parameter, norm.weight)
            wide = nn.RMSNorm(len(weight), eps=cast(float, norm.variance_epsilon))
            wide.weight = weight
            parent, _, own = name.rpartition(".")
            setattr(theirs.get_submodule(parent), own, wide)


def blanked(labels: Tensor, counted: Tensor) -> Tensor:
    """Return labels in their convention: -100 where a label does not count."""
    return labels.masked_fill(~counted, -100)


# Laws of decoders: GPT-2, GPT-NeoX, Llama and Mistral.

B, T = 3, 7
SCALINGS = ("none", "llama3")
WIDTHS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "max_position_embeddings": 24}  # fmt: skip
LLAMA = {"norm": "rms", "feed_forward": "gated", "activation": "silu", "positions": "rotary", "bias": False}
PLAIN = {"scale_embeddings": False, "tie_embeddings": False}
LLAMA3 = RotaryConfig(scaling="llama3", factor=4.0, original_max_len=12, slow_turns=1.0, fast_turns=2.0)


def gpt2(setting: Setting) -> Pair:
    """Return our model and GPT2LMHeadModel."""
    ours = model(setting, "decoder", own={"scale_embeddings": False}, positions="learned", activation="gelu_tanh")
    sizes = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_inner": 24, "n_positions": 24, "n_ctx": 24}
    theirs = tiny(setting, "GPT2", "LMHeadModel", **sizes)
    return carry_over(ours, theirs, "gpt2")


def llama(setting: Setting, scaling: str, attention: str = "eager") -> Pair:
    """Return our model and LlamaForCausalLM with grouped heads, without rotary scaling ("none") or with Llama 3's."""
    bands = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 12}
    kind = {"rope_type": "default"} if scaling == "none" else {"rope_type": scaling} | bands
    rotary = RotaryConfig() if scaling == "none" else LLAMA3
    ours = model(setting, "decoder", own=PLAIN, rotary=rotary, n_kv_heads=2, norm_eps=1e-6, **LLAMA)
    turns = {"rope_parameters": {"rope_theta": 10_000.0} | kind, "attn_implementation": attention}
    theirs = tiny(setting, "Llama", "ForCausalLM", **WIDTHS, **turns, num_key_value_heads=2, rms_norm_eps=1e-6)
    return carry_over(ours, theirs, "llama")


def mistral(setting: Setting, attention: str = "sdpa") -> Pair:
    """Return our model and MistralForCausalLM, in which a query reads three keys.

    Its eager attention gives NaN at padding that has no key in its window, which then is in every gradient.
    """
    ours = model(setting, "decoder", own=PLAIN, window=3, n_kv_heads=2, norm_eps=1e-6, **LLAMA)
    sizes = {"num_key_value_heads": 2, "rms_norm_eps": 1e-6, "sliding_window": 3, "attn_implementation": attention}
    theirs = tiny(setting, "Mistral", "ForCausalLM", **WIDTHS, **sizes)
    return carry_over(ours, theirs, "mistral")


def gpt_neox(setting: Setting, attention: str = "eager") -> Pair:
    """Return our model and GPTNeoXForCausalLM, with one branch after the other and whole heads rotated."""
    return of_gpt_neox(setting, attention, parallel=False, share=1.0)


def pythia(setting: Setting, attention: str = "eager") -> Pair:
    """Return our model and GPTNeoXForCausalLM as Pythia has it: branches in parallel, half of each head rotated."""
    return of_gpt_neox(setting, attention, parallel=True, share=0.5)


def of_gpt_neox(setting: Setting, attention: str, *, parallel: bool, share: float) -> Pair:
    """Return our model and GPTNeoXForCausalLM with a tied head."""
    inside = {"positions": "rotary", "rotary": RotaryConfig(share=share), "parallel_branches": parallel}
    ours = model(setting, "decoder", own={"scale_embeddings": False}, activation="gelu", **inside)
    part = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share}}
    own = {"use_parallel_residual": parallel, "tie_word_embeddings": True, "attn_implementation": attention}
    theirs = tiny(setting, "GPTNeoX", "ForCausalLM", **WIDTHS, **part, **own)
    return carry_over(ours, theirs, "gpt_neox")


def take_wide_angles(ours: Transformer, theirs: nn.Module) -> None:
    """Replace their float32 cosines and sines by ours."""
    assert ours.decoder is not None
    positions = ours.decoder.positions

    def angles(x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
        turned = positions.rotation(position_ids, x)
        assert turned is not None
        return tuple(torch.cat([each, each], dim=-1) for each in turned[:2])

    cast(Any, theirs).base_model.rotary_emb.forward = angles


OTHERS, LLAMAS = [gpt_neox, pythia, mistral], [partial(llama, scaling=scaling) for scaling in SCALINGS]


def as_they_are(makes: Sequence[Callable[[Setting], Pair]], setting: Setting) -> Iterator[float]:
    """Logits and gradients of models, with their own float32 operations."""
    for make in makes:
        yield from values(setting, *make(setting))


def widened(makes: Sequence[Callable[..., Pair]], setting: Setting) -> Iterator[float]:
    """Logits and gradients of models with rotary positions, with all parts computed in the setting's dtype."""
    for make in makes:
        ours, theirs, family = make(setting, attention="sdpa")  # the eager softmax would be in float32
        take_wide_norms(theirs)
        take_wide_angles(ours, theirs)
        yield from values(setting, ours, theirs, family)


def losses(setting: Setting) -> Iterator[float]:
    """The loss, which theirs computes from float32 logits."""
    others = (gpt2(setting), gpt_neox(setting), mistral(setting))
    for ours, theirs, _ in (*others, *(make(setting) for make in LLAMAS)):
        for ids, keep, real in rows(setting):
            expected = theirs(input_ids=ids, attention_mask=real.long(), labels=blanked(ids, real)).loss
            loss = loss_of(ours, Batch(ids, keep), objective_for(ours)).nll / real[:, 1:].sum()
            yield apart(loss, expected)


def values(setting: Setting, ours: Transformer, theirs: nn.Module, family: str) -> Iterator[float]:
    """Logits and gradients of a decoder, on full rows and on rows of unequal length."""
    for ids, keep, real in rows(setting):
        expected = theirs(input_ids=ids, attention_mask=real.long()).logits
        yield compared(ours(ids, keep=keep)[real], ours, expected[real], theirs, family)


def rows(setting: Setting) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
    """Yield ids, their keep mask or None, and which ids are real."""
    whole = (tokens(setting, B, T), None)
    for ids, keep in (whole, padded(setting, [tokens(setting, n) for n in (7, 2, 5)], T, "right")):
        yield ids, keep, keep if keep is not None else ids >= 0


DECODER_LAWS = [
    Law("Hugging Face", "GPT-2", partial(as_they_are, [gpt2])),
    Law(
        "Hugging Face",
        "Llama, also with Llama 3's rotary scaling, unchanged",
        partial(as_they_are, LLAMAS),
        narrow=True,
    ),
    Law("Hugging Face", "Llama, with their float32 parts in the wider dtype", partial(widened, LLAMAS)),
    Law("Hugging Face", "GPT-NeoX and Mistral, unchanged", partial(as_they_are, OTHERS), narrow=True),
    Law("Hugging Face", "GPT-NeoX and Mistral, with their float32 parts in the wider dtype", partial(widened, OTHERS)),
    Law("Hugging Face", "GPT-2, GPT-NeoX, Llama and Mistral, the loss", losses, narrow=True),
]


# Laws of encoder-decoders: T5, BART and Marian.

S, N = 11, 12
BUCKETS = RelativeConfig(n_buckets=8, max_distance=10)
SIDES = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
         (("layers", 2), ("ffn_dim", 24), ("attention_heads", 4))}  # fmt: skip
Rows = tuple[Tensor, Tensor | None]
"""Ids, and which of them are real; None if all are."""
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
    return carry_over(ours, theirs, "t5_gated" if gated else "t5")


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


def bart_pair(setting: Setting) -> Pair:
    """Return our model and BartForConditionalGeneration, in whose tables of positions nothing reads the first two."""
    settings = {**POST, "positions": "learned", "embedding_norm": True}
    ours = model(setting, "encoder-decoder", own={"scale_embeddings": False}, **settings)
    theirs = tiny(setting, "Bart", "ForConditionalGeneration", d_model=16, max_position_embeddings=24, **SIDES)
    return carry_over(ours, theirs, "bart")


def bart(setting: Setting) -> Iterator[float]:
    """BartForConditionalGeneration."""
    yield from translation(setting, *bart_pair(setting))


def marian(setting: Setting) -> Iterator[float]:
    """MarianMTModel, with its float32 table of sinusoids replaced by ours."""
    ours, theirs, family = marian_pair(setting)
    for exact, table in tables(setting, ours, theirs):
        with torch.no_grad():
            table.copy_(exact)
    yield from translation(setting, ours, theirs, family)


def marian_tables(setting: Setting) -> Iterator[float]:
    """Both tables of sinusoids."""
    for exact, table in tables(setting, *marian_pair(setting)[:2]):
        yield apart(exact, table)


def marian_pair(setting: Setting) -> Pair:
    """Return our model, and theirs with our weights."""
    settings: dict[str, Any] = {**POST, "activation": "silu", "positions": "sinusoidal_halves"}
    ours = model(setting, "encoder-decoder", **settings)
    sizes = {"d_model": 16, "max_position_embeddings": 24, "activation_function": "swish", "scale_embedding": True}
    theirs = tiny(setting, "Marian", "MTModel", **sizes, **SIDES)
    return carry_over(ours, theirs, "marian")


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
    cases: list[tuple[Rows, Rows]] = [((tokens(setting, B, N), None), (tokens(setting, B, S), None))]
    for where in paddings:
        rows, sources = ([tokens(setting, n) for n in lengths] for lengths in ((12, 3, 7), (5, 11, 2)))
        cases.append((padded(setting, rows, N, "right"), padded(setting, sources, S, where)))
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
        requested = real[:, 1:]
        answer = ours(ids[:, :-1], source=source, source_keep=source_keep)
        yield compared(answer[requested], ours, expected.logits[requested], theirs, family)
        if source_keep is None or source_keep[:, 0].all():  # a `Batch` has its padding on the right
            loss = loss_of(ours, Batch(ids, keep, source, source_keep), objective_for(ours)).nll / requested.sum()
            yield apart(loss, expected.loss)


ENCODER_DECODER_LAWS = [
    Law("Hugging Face", "T5, 1.0 and 1.1, unchanged", t5_as_it_is, narrow=True),
    Law("Hugging Face", "T5, 1.0 and 1.1, with their float32 norms in the wider dtype", t5_wide),
    Law("Hugging Face", "BART", bart),
    Law("Hugging Face", "Marian", marian),
    Law("Hugging Face", "Marian, its table of sinusoids", marian_tables, narrow=True),
]


# Laws of an encoder: BERT, with segments and the head for masked tokens.


def bert(setting: Setting) -> Iterator[float]:
    """BertForMaskedLM with and without padding: logits and gradients over two segments, loss over one."""
    own = {"scale_embeddings": False, "head_bias": True, "head": Lm(transform="gelu")}
    settings = {"norm_placement": "post", "embedding_norm": True, "n_segments": 2, "norm_eps": 1e-12}
    ours = model(setting, "encoder", own=own, positions="learned", activation="gelu", **settings)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    theirs = tiny(setting, "Bert", "ForMaskedLM", max_position_embeddings=24, **sizes)
    carry_over(ours, theirs, "bert")
    whole = (tokens(setting, B, T), None)
    for ids, keep in (whole, padded(setting, [tokens(setting, n) for n in (7, 2, 5)], T, "right")):
        real = keep if keep is not None else ids >= 0
        segments = (torch.arange(T, device=setting.device) >= 3).long().expand(B, T)
        expected = theirs(input_ids=ids, attention_mask=real.long(), token_type_ids=segments).logits
        answer = ours(ids, keep=keep, segments=segments)
        yield compared(answer[real], ours, expected[real], theirs, "bert")
        labels, requested = torch.randint(VOCAB, (B, T)).to(setting.device), real & (ids % 2 == 0)
        requested[:, 0] = True
        batch = Batch(ids, keep, labels=labels, label_keep=requested)
        theirs_says = theirs(input_ids=ids, attention_mask=real.long(), labels=blanked(labels, requested)).loss
        yield apart(loss_of(ours, batch, objective_for(ours)).nll / requested.sum(), theirs_says)


ENCODER_LAWS = [Law("Hugging Face", "BERT, segments, the head for masked tokens", bert)]


LAWS: list[Law] = [*DECODER_LAWS, *ENCODER_LAWS, *ENCODER_DECODER_LAWS]
