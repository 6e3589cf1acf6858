"""What makes a model fast on this machine, and nothing else: it is put on a model, and taken off again.

`for_training(model, optimizer)` exchanges parts of a model for faster equals, and `for_decoding(model)` gives one that
decodes faster, with the same weights; `put_on_decoding()` does so wherever something decodes. Nothing below this folder
knows of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from glassformer.decode.preparing import preparing

if TYPE_CHECKING:
    from glassformer.fast.decoding import for_decoding as for_decoding
    from glassformer.fast.training import for_training as for_training

__all__ = ["for_decoding", "for_training", "put_on_decoding"]


def put_on_decoding() -> AbstractContextManager[None]:
    """Inside the `with`, answers, evaluations and servers prepare their models by `for_decoding`, as commands do.

    It imports torch once something is decoded.
    """

    def prepare(*given: Any, **more: Any) -> Any:
        from glassformer.fast.decoding import for_decoding

        return for_decoding(*given, **more)

    return preparing(prepare)


def __getattr__(name: str) -> object:
    """Import the public names at their first use: importing torch takes a second."""
    if name not in __all__:
        raise AttributeError(f"module 'glassformer.fast' has no attribute {name!r}")
    return getattr(import_module(f"glassformer.fast.{name.removeprefix('for_')}"), name)
