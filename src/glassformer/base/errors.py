"""Errors for users: each message gives the rule, what was found and what to do; each class has an exit code."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from importlib import metadata


class GlassformerError(ValueError):
    """A mistake that the user can correct. The message gives the rule, what was found and what to do."""

    exit_code = 2


class ConfigError(GlassformerError):
    """An invalid configuration: an unknown name or key, or values that contradict each other."""

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting
        """The field of the config to change, if it is a single one."""


class RowError(ConfigError):
    """Settings with which one row of a call cannot be written. The message, in two parts, has the row between them."""

    def __init__(self, before: str, row: int, after: str) -> None:
        super().__init__(f"{before}row {row} (counted from 0){after}")
        self.before, self.row, self.after = before, row, after

    def named(self, name: str) -> ConfigError:
        """The same error, in which the row is called `name`."""
        return ConfigError(f"{self.before}{name}{self.after}")


class RecipeError(ConfigError):
    """An invalid recipe file. The message begins with the file and names settings as they are written there."""


class DataError(GlassformerError):
    """A file or value that cannot be read as data. The message gives file and line (or row and column) and a remedy."""


class ArgumentError(DataError):
    """An argument that a part of a model cannot read. The message names the part and the argument."""


class TooLongError(DataError):
    """A text with more tokens than the model can read. The message gives its number of tokens and the limit."""


class CheckpointError(GlassformerError):
    """A run or checkpoint folder that is missing, incomplete, damaged or belongs to another model."""


class DivergedError(GlassformerError):
    """The loss or gradient is no longer finite. Raised before the weights change."""

    exit_code = 4


class ResourceError(GlassformerError):
    """Memory or disk ran out."""

    exit_code = 5


class BusyError(GlassformerError):
    """The queue is full. The same request may succeed later."""


class ProcessError(GlassformerError):
    """Another process of a distributed training run failed or does not answer. The message names it."""

    exit_code = 1


def all_of(names: Sequence[str], last: str = "and") -> str:
    """Join names for a message: "a", "a and b", "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def some(names: Sequence[str], most: int = 4) -> str:
    """The first names for a message, and how many more there are: "a, b, c, d and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def firsts(numbers: Iterable[int]) -> str:
    """The first five numbers for a message: "1, 2, 3, 4, 5, ..."."""
    numbers = [*numbers]
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; torch's class is recognised by name, without importing torch."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(f in str(error) for f in ("DefaultCPUAllocator", "out of memory")))
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    )


# What to type to install an optional extra: its packages by name, which works from a clone, a wheel or an index.

MARK = re.compile(r"""^(?P<package>[^;]+);.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")


def install(extra: str) -> str:
    """The command that installs the packages of an extra, as this installation of glassformer names them.

    The name of glassformer itself is not in it, as a copy from a clone or a wheel need not be the one on an index.
    """
    try:
        found = filter(None, map(MARK.match, (metadata.requires("glassformer") or ())))
        packages = [each["package"].strip() for each in found if each["extra"] == extra]
    except metadata.PackageNotFoundError:  # imported from a folder
        packages = []
    if not packages:
        return f"pip install '.[{extra}]' (in the clone of glassformer)"
    return f"pip install {' '.join(map(repr, packages))}"
