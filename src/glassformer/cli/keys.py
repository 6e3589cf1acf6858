"""Reads single keys where a terminal allows it, else words with Enter; nothing where there is no terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Self


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
