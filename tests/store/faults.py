"""Making the calls that change a disk fail, each in its turn, and noting them in their order."""

import builtins
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from glassformer.store import files, weights

CALLS = [
    (builtins, "open"),
    (io, "open"),
    *((os, name) for name in ("open", "fsync", "rename", "replace", "mkdir", "unlink", "remove", "rmdir", "chmod")),
    (weights, "save_file"),
    (files, "exchange"),
]
CRASHES = ("before", "after", "half")


class Crash(BaseException):
    """The process is dead: from the call that raises this first, no call does anything any more."""


class Trap:
    """Counts the calls; at number `at` it makes a crash (before, after or half way), or the call fails with `error`."""

    def __init__(
        self, at: int | None = None, how: str = "before", error: OSError | None = None, kills: bool = False
    ) -> None:
        self.at, self.how, self.error, self.kills = at, how, error, kills
        self.dead = False
        self.log: list[tuple[str, str]] = []
        self.synced: dict[str, int] = {}
        """How many bytes of a file are safe, by its path: no crash takes them away."""

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Crash
            what, path = kind(name, args), where(name, args)
            self.log.append((what, path))
            if what == "create" and "a" not in args[1]:
                self.synced.pop(path, None)
            if len(self.log) - 1 != self.at:
                answer = call(*args, **kwargs)
                if what == "fsync":
                    self.synced[path] = os.fstat(args[0]).st_size
                return answer
            if self.error is not None:
                raise self.error
            if self.how == "half":
                do_half(name, call, args, self.synced.get(path, 0))
            if self.how == "after":
                with suppress(OSError):  # also after a call that fails, as of a folder that is there already
                    close(call(*args, **kwargs))
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            self.dead = True
            raise Crash

        return run


@contextmanager
def trapped(
    at: int | None = None, how: str = "before", error: OSError | None = None, kills: bool = False
) -> Iterator[Trap]:
    """Within the block, every call in `CALLS` goes through the trap; `kills`: a crash is a real SIGKILL."""
    trap = Trap(at, how, error, kills)
    patches = [patch.object(module, name, trap.wrap(name, getattr(module, name))) for module, name in CALLS]
    for each in patches:
        each.start()
    try:
        yield trap
    finally:
        for each in reversed(patches):
            each.stop()


def kind(name: str, args: tuple[Any, ...]) -> str:
    """The name of a call; opening a file in order to write it has one of its own."""
    writes = name == "open" and len(args) > 1 and isinstance(args[1], str) and set(args[1]) & set("xwa+")
    return "create" if writes else name


def where(name: str, args: tuple[Any, ...]) -> str:
    """The path that a call is about; of two, both."""
    if name == "save_file":
        return str(args[1])
    if name == "fsync":
        with suppress(OSError):
            return str(Path(f"/proc/self/fd/{args[0]}").readlink())
    if name in ("rename", "replace", "exchange"):
        return f"{args[0]} {args[1]}"
    return str(args[0])


def do_half(name: str, call: Callable[..., Any], args: tuple[Any, ...], synced: int) -> None:
    """What a file looks like when the process or the disk stopped in the middle of writing it; `synced` bytes stay."""
    if name == "save_file":
        call(*args)
        os.truncate(args[1], Path(args[1]).stat().st_size // 2)
    if name == "fsync":
        with suppress(OSError):  # of a folder there is no half
            size = os.fstat(args[0]).st_size
            os.ftruncate(args[0], (min(synced, size) + size) // 2)


def close(opened: Any) -> None:
    """The dead hold no files."""
    if isinstance(opened, int) and not isinstance(opened, bool):
        os.close(opened)
    elif hasattr(opened, "close"):
        opened.close()
