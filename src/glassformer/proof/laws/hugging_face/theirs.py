"""Helpers for all Hugging Face families: a model of theirs with our weights, and the comparison of answers."""

from __future__ import annotations

import importlib
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.nn.transformer import Transformer
from glassformer.proof.laws.law import NotHere, Setting, apart, gradients, same_gradients
from glassformer.proof.laws.specimens import VOCAB
from glassformer.store.families import FAMILIES

SIZES = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
"""No padding id, because theirs would keep the gradient of its embedding at zero."""


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


def carry_over(ours: Transformer, theirs: nn.Module, family: str) -> None:
    """Copy our weights into their model, which must have exactly the same learnable parameters."""
    weights: dict[str, Tensor] = FAMILIES[family].export(dict(ours.named_parameters()), ours.config.stack.n_heads)
    wanted = {name: each for name, each in theirs.named_parameters() if each.requires_grad}
    assert weights.keys() == wanted.keys(), weights.keys() ^ wanted.keys()
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(weights[name])


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
