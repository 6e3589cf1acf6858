"""What the laws of all families share: a model of theirs with our weights, and answers side by side."""

from __future__ import annotations

import importlib
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.model.transformer import Transformer
from glassformer.proof.laws.law import NotHere, Setting, apart, gradients, same_gradients
from glassformer.proof.laws.specimens import VOCAB
from glassformer.store.families import FAMILIES

SIZES = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
"""Without an id of padding: theirs would keep the gradient of its embedding at zero."""


def tiny(setting: Setting, family: str, task: str, **sizes: Any) -> nn.Module:
    """A small model of theirs without dropout; eager, unless the sizes name another attention.

    Errors: `NotHere` where transformers is not installed.
    """
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError:
        raise NotHere("transformers is not installed; pip install transformers") from None
    library.logging.set_verbosity_error()  # it advises on every model that is made
    config = getattr(library, f"{family}Config")(**(SIZES | {"attn_implementation": "eager"} | sizes))
    return getattr(library, f"{family}{task}")(config).to(setting.device, setting.dtype).eval()


def carry_over(ours: Transformer, theirs: nn.Module, family: str) -> None:
    """Our weights into their model, all that can be learned and no others."""
    weights: dict[str, Tensor] = FAMILIES[family].export(dict(ours.named_parameters()))
    wanted = {name: each for name, each in theirs.named_parameters() if each.requires_grad}
    assert weights.keys() == wanted.keys(), weights.keys() ^ wanted.keys()
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(weights[name])


def compared(answer: Tensor, ours: Transformer, expected: Tensor, theirs: nn.Module, family: str) -> float:
    """The larger error of logits and of gradients, by their names."""
    mine = FAMILIES[family].export(gradients(answer, ours))
    return max(apart(answer, expected), same_gradients(mine, gradients(expected, theirs)))


def take_wide_norms(theirs: nn.Module) -> None:
    """torch.nn.RMSNorm, with the same weight, in the place of each norm that takes its mean square in float32."""
    for name, norm in [*theirs.named_modules()]:
        if hasattr(norm, "variance_epsilon"):
            weight = cast(nn.Parameter, norm.weight)
            wide = nn.RMSNorm(len(weight), eps=cast(float, norm.variance_epsilon))
            wide.weight = weight
            parent, _, own = name.rpartition(".")
            setattr(theirs.get_submodule(parent), own, wide)


def blanked(labels: Tensor, counted: Tensor) -> Tensor:
    """Labels as theirs want them: -100 where none counts."""
    return labels.masked_fill(~counted, -100)
