"""What commands read from a terminal or pipe, and what they say to the user: single keys, notes."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Self

# Notes of the library for the user of a command: what it chose, and slow work that begins. It logs them at INFO.


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


# Reads single keys where a terminal allows it, else words with Enter; nothing where there is no terminal.


class Keys:
    """While the context lasts, the terminal hands over each key at once; the terminal is put back in any case."""

    def __init__(self) -> None:
        self.terminal = sys.stdin.isatty()
        self.saved: Any = None

    def __enter__(self) -> Self:
        """Begin to read single keys, on systems that have termios."""
        self.raw()
        return self

    def __exit__(self, *_: object) -> None:
        """Put the terminal back."""
        self.back()

    def raw(self) -> None:
        """Let keys come one by one, without echo."""
        with suppress(ImportError, OSError):
            termios: Any = import_module("termios")
            if self.terminal:
                self.saved = termios.tcgetattr(sys.stdin)
                import_module("tty").setcbreak(sys.stdin)

    def back(self) -> None:
        """Put the terminal as it was."""
        if self.saved is not None:
            termios: Any = import_module("termios")
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self.saved)

    @contextmanager
    def paused(self) -> Generator[None]:
        """While the context lasts, the terminal is as usual, for a question."""
        self.back()
        try:
            yield
        finally:
            self.raw()

    def read(self, seconds: float) -> str:
        """Return what was typed within so many seconds; "" for nothing."""
        if not self.terminal:
            time.sleep(seconds)
            return ""
        with suppress(ImportError):
            msvcrt: Any = import_module("msvcrt")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if msvcrt.kbhit():
                    return str(msvcrt.getwch())
                time.sleep(0.02)
            return ""
        import select

        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return (os.read(sys.stdin.fileno(), 1).decode("utf-8", "replace") or "q") if ready else ""
