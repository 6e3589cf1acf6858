"""Our parameters under the names of torch.nn: joined projections, numbered norms."""

from __future__ import annotations

import re

import torch
from torch import Tensor

NAMES = [
    (r"\bblocks\.", "layers."),
    (r"\bself_attention\.branch\.", "self_attn."),
    (r"\bcross_attention\.branch\.", "multihead_attn."),
    (r"\bfeed_forward\.branch\.up\b", "linear1"),
    (r"\bfeed_forward\.branch\.down\b", "linear2"),
    (r"\bself_attention\.norm_(in|sum)\b", "norm1"),
    (r"\bcross_attention\.norm_(in|sum)\b", "norm2"),
    (r"\bfeed_forward\.norm_(in|sum)\b", "norm3"),
    (r"\boutput\.", "out_proj."),
]


def as_torch(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors (weights, or their gradients) by torch's names; embedding and head, which it lacks, left out."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if "embedding." in name or name.startswith("head.") or re.search(r"\b(key|value)\.(weight|bias)$", name):
            continue
        if "query." in name:
            tensor = torch.cat([tensors[name.replace("query.", f"{each}.")] for each in ("query", "key", "value")])
            name = name.replace("query.", "in_proj_")
        new = name
        for ours, theirs in NAMES:
            new = re.sub(ours, theirs, new)
        if not any("cross_attention" in other for other in tensors if other.startswith(block_of(name))):
            new = new.replace("norm3", "norm2")  # a layer without cross-attention has two norms
        found[new] = tensor
    return found


def block_of(name: str) -> str:
    """The part of a name up to its block: "decoder.blocks.1."."""
    return name[: match.end()] if (match := re.search(r"blocks\.\d+\.", name)) else ""
