"""Mistral 7B (Jiang et al. 2023): Llama whose attention may have a sliding window."""

from __future__ import annotations

from glassformer.store.families.llama import FIXED, LLAMA, ROWS
from glassformer.store.families.settings import Optional, Usual, Whole
from glassformer.store.families.shape import Shape

OTHER: dict[str, Usual] = {"n_kv_heads": None, "d_ff": 14_336, "max_len": 131_072}
"""The usual values that differ from Llama's; without `num_key_value_heads` a file is refused, as 8 is usual there but
null stands for `num_attention_heads`."""
OWN = [
    row._replace(usual=OTHER[row.ours], implied=False) if isinstance(row, Whole) and row.ours in OTHER else row
    for row in ROWS
]
MISTRAL = LLAMA._replace(
    architecture="MistralForCausalLM",
    shape=Shape(FIXED, [*OWN, Optional("window", "sliding_window", 4096)], wanted={}),
)
