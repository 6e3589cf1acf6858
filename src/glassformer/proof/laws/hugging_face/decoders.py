"""Laws of decoders: GPT-2, GPT-NeoX, Llama and Mistral."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.base.order import RotaryConfig
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.proof.laws.hugging_face.theirs import blanked, carry_over, compared, take_wide_norms, tiny
from glassformer.proof.laws.law import Law, Setting, apart
from glassformer.proof.laws.specimens import model, padded, tokens
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for

B, T = 3, 7
SCALINGS = ("none", "llama3")
WIDTHS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "max_position_embeddings": 24}  # fmt: skip
LLAMA = {"norm": "rms", "feed_forward": "gated", "activation": "silu", "positions": "rotary", "bias": False}
PLAIN = {"scale_embeddings": False, "tie_embeddings": False}
LLAMA3 = RotaryConfig(scaling="llama3", factor=4.0, original_max_len=12, slow_turns=1.0, fast_turns=2.0)


Pair = tuple[Transformer, nn.Module, str]
"""Our model, theirs with our weights, and the family."""


def gpt2(setting: Setting) -> Pair:
    """Return our model and GPT2LMHeadModel."""
    ours = model(setting, "decoder", own={"scale_embeddings": False}, positions="learned", activation="gelu_tanh")
    sizes = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_inner": 24, "n_positions": 24, "n_ctx": 24}
    theirs = tiny(setting, "GPT2", "LMHeadModel", **sizes)
    carry_over(ours, theirs, "gpt2")
    return ours, theirs, "gpt2"


def llama(setting: Setting, scaling: str, attention: str = "eager") -> Pair:
    """Return our model and LlamaForCausalLM with grouped heads, without rotary scaling ("none") or with Llama 3's."""
    bands = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 12}
    kind = {"rope_type": "default"} if scaling == "none" else {"rope_type": scaling} | bands
    rotary = RotaryConfig() if scaling == "none" else LLAMA3
    ours = model(setting, "decoder", own=PLAIN, rotary=rotary, n_kv_heads=2, norm_eps=1e-6, **LLAMA)
    turns = {"rope_parameters": {"rope_theta": 10_000.0} | kind, "attn_implementation": attention}
    theirs = tiny(setting, "Llama", "ForCausalLM", **WIDTHS, **turns, num_key_value_heads=2, rms_norm_eps=1e-6)
    carry_over(ours, theirs, "llama")
    return ours, theirs, "llama"


def mistral(setting: Setting, attention: str = "sdpa") -> Pair:
    """Return our model and MistralForCausalLM, in which a query reads three keys.

    Its eager attention gives NaN at padding that has no key in its window, which then is in every gradient.
    """
    ours = model(setting, "decoder", own=PLAIN, window=3, n_kv_heads=2, norm_eps=1e-6, **LLAMA)
    sizes = {"num_key_value_heads": 2, "rms_norm_eps": 1e-6, "sliding_window": 3, "attn_implementation": attention}
    theirs = tiny(setting, "Mistral", "ForCausalLM", **WIDTHS, **sizes)
    carry_over(ours, theirs, "mistral")
    return ours, theirs, "mistral"


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
    carry_over(ours, theirs, "gpt_neox")
    return ours, theirs, "gpt_neox"


def take_wide_angles(ours: Transformer, theirs: nn.Module) -> None:
    """Replace their float32 cosines and sines by ours."""
    assert ours.decoder is not None
    positions = ours.decoder.positions

    def angles(x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
        turned = positions.rotation(position_ids, x)
        assert turned is not None
        return tuple(torch.cat([each, each], dim=-1) for each in turned[:2])

    cast(Any, theirs).base_model.rotary_emb.forward = angles


def gpt2_values(setting: Setting) -> Iterator[float]:
    """GPT-2's logits and gradients."""
    yield from values(setting, *gpt2(setting))


def llama_values(setting: Setting) -> Iterator[float]:
    """Llama's logits and gradients, with norms, angles and softmax computed in the setting's dtype."""
    for scaling in SCALINGS:
        yield from wide_values(setting, partial(llama, scaling=scaling))  # the eager softmax would be in float32


def llama_as_it_is(setting: Setting) -> Iterator[float]:
    """Llama's logits and gradients, with its own float32 operations."""
    for scaling in SCALINGS:
        yield from values(setting, *llama(setting, scaling))


def other_values(setting: Setting) -> Iterator[float]:
    """The logits and gradients of GPT-NeoX and Mistral, with all parts computed in the setting's dtype."""
    for make in (gpt_neox, pythia, mistral):
        yield from wide_values(setting, make)


def others_as_they_are(setting: Setting) -> Iterator[float]:
    """The logits and gradients of GPT-NeoX and Mistral, with their own float32 operations."""
    for make in (gpt_neox, pythia, mistral):
        yield from values(setting, *make(setting))


def wide_values(setting: Setting, make: Callable[..., Pair]) -> Iterator[float]:
    """Logits and gradients of a model with rotary positions, with all parts computed in the setting's dtype."""
    ours, theirs, family = make(setting, attention="sdpa")
    take_wide_norms(theirs)
    take_wide_angles(ours, theirs)
    yield from values(setting, ours, theirs, family)


def losses(setting: Setting) -> Iterator[float]:
    """The loss, which theirs computes from float32 logits."""
    others = (gpt2(setting), gpt_neox(setting), mistral(setting))
    for ours, theirs, _ in (*others, *(llama(setting, scaling) for scaling in SCALINGS)):
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


LAWS = [
    Law("Hugging Face", "GPT-2", gpt2_values),
    Law("Hugging Face", "Llama, also with Llama 3's rotary scaling, unchanged", llama_as_it_is, narrow=True),
    Law("Hugging Face", "Llama, with their float32 parts in the wider dtype", llama_values),
    Law("Hugging Face", "GPT-NeoX and Mistral, unchanged", others_as_they_are, narrow=True),
    Law("Hugging Face", "GPT-NeoX and Mistral, with their float32 parts in the wider dtype", other_values),
    Law("Hugging Face", "GPT-2, GPT-NeoX, Llama and Mistral, the loss", losses, narrow=True),
]
