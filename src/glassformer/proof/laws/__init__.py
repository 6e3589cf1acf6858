"""The laws of `glassformer verify`. Each file holds one group of them."""

from __future__ import annotations

from glassformer.proof.laws import hugging_face, law, notebooks, torch_nn
from glassformer.proof.laws.law import Law

__all__ = ["LAWS", "Law"]

LAWS: list[Law] = [
    *law.OURS,
    *torch_nn.LAWS,
    *hugging_face.LAWS,
    *notebooks.LAWS,
]
