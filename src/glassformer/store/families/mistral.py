"""Mistral 7B (Jiang et al. 2023): Llama whose attention may have a sliding window."""

from __future__ import annotations

from glassformer.store.families.llama import FIXED, LLAMA, ROWS
from glassformer.store.families.settings import WholeOrNone
from glassformer.store.families.shape import Shape

MISTRAL = LLAMA._replace(
    architecture="MistralForCausalLM",
    shape=Shape(
        FIXED,
        [*ROWS, WholeOrNone("window", "sliding_window")],
        wanted={},
        usual={
            "num_key_value_heads": 8,
            "intermediate_size": 14_336,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
        },
    ),
)
