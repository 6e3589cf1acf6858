"""A transformer you can see through.

This module offers the public names. Each is imported from its file at its first use, so `import glassformer` alone does
not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names as in `_HOMES`, for type checkers and editors
    from glassformer.data.batch import Batch as Batch
    from glassformer.data.tokenizer import Tokenizer as Tokenizer
    from glassformer.decode.answer import answer as answer
    from glassformer.decode.generate import generate as generate
    from glassformer.lens.ablate import observe as observe
    from glassformer.lens.ablate import silence as silence
    from glassformer.lens.picture import heat_map as heat_map
    from glassformer.lens.picture import sharpest_head as sharpest_head
    from glassformer.lens.plot import plot_attention as plot_attention
    from glassformer.lens.plot import plot_positions as plot_positions
    from glassformer.lens.roles.diagnosis import diagnose as diagnose
    from glassformer.lens.roles.diagnosis import diagnose_run as diagnose_run
    from glassformer.lens.trace.make import read_trace as read_trace
    from glassformer.lens.trace.make import trace as trace
    from glassformer.nn.attention import Attention as Attention
    from glassformer.nn.block import Block as Block
    from glassformer.nn.block import Residual as Residual
    from glassformer.nn.config import ModelConfig as ModelConfig
    from glassformer.nn.config import StackConfig as StackConfig
    from glassformer.nn.feed_forward import FeedForward as FeedForward
    from glassformer.nn.mask import Mask as Mask
    from glassformer.nn.norm import NORMS as NORMS
    from glassformer.nn.positions import POSITIONS as POSITIONS
    from glassformer.nn.presets import PRESETS as PRESETS
    from glassformer.nn.presets import preset as preset
    from glassformer.nn.recompute import recompute as recompute
    from glassformer.nn.rules import ATTEND as ATTEND
    from glassformer.nn.transformer import Transformer as Transformer
    from glassformer.store.checkpoint import load as load
    from glassformer.store.checkpoint import save as save
    from glassformer.train.loop import train_steps as train_steps
    from glassformer.train.schedule import Schedule as Schedule
    from glassformer.train.settings import Update as Update

__version__ = "0.1.0"

__all__ = [
    "ATTEND",
    "NORMS",
    "POSITIONS",
    "PRESETS",
    "Attention",
    "Batch",
    "Block",
    "FeedForward",
    "Mask",
    "ModelConfig",
    "Residual",
    "Schedule",
    "StackConfig",
    "Tokenizer",
    "Transformer",
    "Update",
    "answer",
    "diagnose",
    "diagnose_run",
    "generate",
    "heat_map",
    "load",
    "observe",
    "plot_attention",
    "plot_positions",
    "preset",
    "read_trace",
    "recompute",
    "save",
    "sharpest_head",
    "silence",
    "trace",
    "train_steps",
]

_HOMES = {
    "ATTEND": "glassformer.nn.rules",
    "Attention": "glassformer.nn.attention",
    "Batch": "glassformer.data.batch",
    "Block": "glassformer.nn.block",
    "FeedForward": "glassformer.nn.feed_forward",
    "Mask": "glassformer.nn.mask",
    "ModelConfig": "glassformer.nn.config",
    "NORMS": "glassformer.nn.norm",
    "POSITIONS": "glassformer.nn.positions",
    "PRESETS": "glassformer.nn.presets",
    "Residual": "glassformer.nn.block",
    "Schedule": "glassformer.train.schedule",
    "StackConfig": "glassformer.nn.config",
    "Tokenizer": "glassformer.data.tokenizer",
    "Transformer": "glassformer.nn.transformer",
    "Update": "glassformer.train.settings",
    "answer": "glassformer.decode.answer",
    "diagnose": "glassformer.lens.roles.diagnosis",
    "diagnose_run": "glassformer.lens.roles.diagnosis",
    "generate": "glassformer.decode.generate",
    "heat_map": "glassformer.lens.picture",
    "load": "glassformer.store.checkpoint",
    "observe": "glassformer.lens.ablate",
    "plot_attention": "glassformer.lens.plot",
    "plot_positions": "glassformer.lens.plot",
    "preset": "glassformer.nn.presets",
    "read_trace": "glassformer.lens.trace.make",
    "recompute": "glassformer.nn.recompute",
    "save": "glassformer.store.checkpoint",
    "sharpest_head": "glassformer.lens.picture",
    "silence": "glassformer.lens.ablate",
    "trace": "glassformer.lens.trace.make",
    "train_steps": "glassformer.train.loop",
}


def __getattr__(name: str) -> object:
    """Import a public name from its file and keep it here; Python calls this only for names that are not here yet."""
    if name not in _HOMES:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """Also list the public names not imported yet, so that completion offers them."""
    return sorted({*globals(), *_HOMES})
