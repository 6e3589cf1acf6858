"""Notes of the library for the user of a command: what it chose, and slow work that begins. It logs them at INFO.

Who uses the library from Python sees them only where they set up logging.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Notes(logging.Handler):
    """Passes the text of each note on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a note on."""
        self.say(record.getMessage())


@contextmanager
def notes_to(say: Callable[[str], None]) -> Generator[None]:
    """Context manager: each note of the library goes to `say`, and nowhere else it went before."""
    log = logging.getLogger("glassformer")
    handlers, level = log.handlers, log.level
    log.handlers = [Notes(say)]
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.handlers = handlers
        log.setLevel(level)


def say(text: str) -> None:
    """Print a message to standard error, so that it does not mix with output."""
    print(text, file=sys.stderr, flush=True)
