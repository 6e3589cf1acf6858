"""Renaming our parameters to those of torch.nn's transformer layers: joined projections, numbered norms."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from glassformer.store.rename import join_projections, rename

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


def as_torch(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors (weights or their gradients) to torch's names; drops embedding and head, which torch.nn lacks."""
    with_memory = {block_of(name) for name in tensors if "cross_attention" in name}
    kept = {name: each for name, each in tensors.items() if "embedding." not in name and not name.startswith("head.")}
    found: dict[str, Tensor] = {}
    for name, tensor in join_projections(kept, "in_proj_").items():
        [(new, _)] = rename({name: tensor}, NAMES).items()
        if block_of(name) not in with_memory:
            new = new.replace("norm3", "norm2")  # a layer without cross-attention has two norms
        found[new] = tensor
    return found


def block_of(name: str) -> str:
    """Return the part of a name up to its block, such as "decoder.blocks.1."; empty if it has none."""
    return name[: match.end()] if (match := re.search(r"blocks\.\d+\.", name)) else ""
