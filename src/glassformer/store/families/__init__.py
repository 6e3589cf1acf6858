"""Hugging Face's names for our weights: one table for each family of models."""

from __future__ import annotations

from glassformer.store.families.bart import BART
from glassformer.store.families.bert import BERT
from glassformer.store.families.family import Family
from glassformer.store.families.gpt2 import GPT2
from glassformer.store.families.gpt_neox import GPT_NEOX
from glassformer.store.families.llama import LLAMA
from glassformer.store.families.marian import MARIAN
from glassformer.store.families.mistral import MISTRAL
from glassformer.store.families.t5 import T5, T5_GATED

__all__ = ["FAMILIES", "Family"]

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
