"""Tiny random models of Hugging Face's transformers and ours agree in logits, losses and every gradient."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.batch import Batch
from glassformer.model.transformer import Transformer
from glassformer.proof.laws.law import Law, NotHere, Setting, apart, gradients, same_gradients
from glassformer.proof.laws.specimens import VOCAB, model, padded, tokens
from glassformer.store.families import FAMILIES
from glassformer.train.objective import loss_of, objective_for

B, T = 3, 7
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
    """What makes an error of float32 comparable: their losses are computed in it, whatever the model's numbers."""
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


LAWS = [Law("Hugging Face", "GPT-2", gpt2)]
