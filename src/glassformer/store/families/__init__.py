"""Foreign weights as data: one table for each family of models, from our names to theirs."""

from __future__ import annotations

from glassformer.store.families.family import Family
from glassformer.store.families.gpt2 import GPT2
from glassformer.store.families.llama import LLAMA

__all__ = ["FAMILIES", "Family"]

FAMILIES: dict[str, Family] = {"gpt2": GPT2, "llama": LLAMA}
