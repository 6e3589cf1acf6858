"""What makes a model fast on this machine, and nothing else: it is put on a model, and taken off again.

`for_training(model, optimizer)` exchanges parts of a model for faster equals. Nothing below this folder knows of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.fast.training import for_training as for_training

__all__ = ["for_training"]


def __getattr__(name: str) -> object:
    """Import the public names at their first use: importing torch takes a second."""
    if name != "for_training":
        raise AttributeError(f"module 'glassformer.fast' has no attribute {name!r}")
    from glassformer.fast.training import for_training

    return for_training
