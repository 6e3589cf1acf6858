"""Tiny random models of Hugging Face's transformers and ours agree in logits, losses and every gradient."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.batch import Batch
from glassformer.foundation.order import RotaryConfig
from glassformer.model.transformer import Transformer
from glassformer.proof.laws.law import Law, NotHere, Setting, apart, gradients, same_gradients
from glassformer.proof.laws.specimens import VOCAB, model, padded, tokens
from glassformer.store.families import FAMILIES
from glassformer.train.objective import loss_of, objective_for

B, T = 3, 7
LLAMA3 = RotaryConfig(scaling="llama3", factor=4.0, original_max_len=12, slow_turns=1.0, fast_turns=2.0)
SIZES = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def gpt2(setting: Setting) -> Iterator[float]:
    """GPT2LMHeadModel, without padding and with it."""
    ours = model(setting, "decoder", own={"scale_embeddings": False}, positions="learned", activation="gelu_tanh")
    theirs = tiny(
        setting,
        "GPT2",
        "LMHeadModel",
        n_embd=16,
        n_head=4,
        n_layer=2,
        n_inner=24,
        n_positions=24,
        n_ctx=24,
        **dropped(),
    )
    carry_over(ours, theirs, "gpt2")
    yield from language_model(setting, ours, theirs, "gpt2")


def llama(setting: Setting) -> Iterator[float]:
    """LlamaForCausalLM with grouped heads, without padding and with it, plain and with Llama 3's rotary scaling."""
    bands = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 12}
    for scaling in (None, bands):
        kind = {"rope_type": "default"} if scaling is None else {"rope_type": "llama3"} | scaling
        rotary = RotaryConfig() if scaling is None else LLAMA3
        settings = {"norm": "rms", "feed_forward": "gated", "activation": "silu", "positions": "rotary", "bias": False}
        own = {"scale_embeddings": False, "tie_embeddings": False}
        ours = model(setting, "decoder", own=own, rotary=rotary, n_kv_heads=2, norm_eps=1e-6, **settings)
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "max_position_embeddings": 24}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
        turns = {"rope_theta": 10_000.0} | kind
        theirs = tiny(setting, "Llama", "ForCausalLM", rope_parameters=turns, pad_token_id=None, **sizes, **heads)
        carry_over(ours, theirs, "llama")
        for error in language_model(setting, ours, theirs, "llama"):
            yield error * in_float32(setting)


def language_model(setting: Setting, ours: Transformer, theirs: nn.Module, family: str) -> Iterator[float]:
    """Logits, loss and gradients of a decoder over whole rows, then logits over rows of unequal length."""
    ids = tokens(setting, B, T)
    expected = theirs(input_ids=ids, labels=ids)
    answer = ours(ids)
    yield apart(answer, expected.logits)
    yield same_gradients(FAMILIES[family].export(gradients(answer, ours)), gradients(expected.logits, theirs))
    loss = loss_of(ours, Batch(tokens=ids), objective_for(ours)).nll / (B * (T - 1))
    yield apart(loss, expected.loss) * in_float32(setting)
    ids, keep = padded(setting, [tokens(setting, n) for n in (7, 2, 5)], T, "right")
    yield apart(ours(ids, keep=keep)[keep], theirs(input_ids=ids, attention_mask=keep.long()).logits[keep])


def in_float32(setting: Setting) -> float:
    """What makes an error of float32 comparable: their losses, and Llama's angles, are computed in it in any case."""
    return min(1.0, torch.finfo(setting.dtype).eps / torch.finfo(torch.float32).eps)


def tiny(setting: Setting, family: str, task: str, **sizes: Any) -> nn.Module:
    """A small model of theirs, eager and without dropout. Errors: `NotHere` where transformers is not installed."""
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError:
        raise NotHere("transformers is not installed; pip install transformers") from None
    library.logging.set_verbosity_error()  # it advises on every model that is made
    config = getattr(library, f"{family}Config")(**(SIZES | sizes), attn_implementation="eager")
    return getattr(library, f"{family}{task}")(config).to(setting.device, setting.dtype).eval()


def dropped() -> dict[str, float]:
    """No dropout, in GPT-2's words."""
    return {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def carry_over(ours: Transformer, theirs: nn.Module, family: str) -> None:
    """Our weights into their model, all of them and no others."""
    weights: dict[str, Tensor] = FAMILIES[family].export(dict(ours.named_parameters()))
    wanted = dict(theirs.named_parameters())
    assert weights.keys() == wanted.keys(), weights.keys() ^ wanted.keys()
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(weights[name])


LAWS = [
    Law("Hugging Face", "GPT-2", gpt2),
    Law("Hugging Face", "Llama, grouped heads, Llama 3's rotary scaling", llama),
]
