"""What makes models ready for decoding, where something was put on. It imports no torch: the command line says it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

USED: list[Callable[..., Any]] = []
"""The last one is used by `decode.prepare.prepared`; none: plain torch."""


@contextmanager
def preparing(prepare: Callable[..., Any]) -> Generator[None]:
    """Inside the `with`, whatever decodes does it with models that `prepare` made, called as `prepared`."""
    USED.append(prepare)
    try:
        yield
    finally:
        USED.remove(prepare)
