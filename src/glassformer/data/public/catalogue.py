"""Public data sets, from `catalogue.toml`: addresses, sizes, hashes, licences, citations; and which files are here.

What was measured on each of them, and by which commands, is in `recipes.toml`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup

HOST = "https://raw.githubusercontent.com"
BLOCK = 2**16
HERE, MISSING, DIFFERENT = "here", "missing", "different"
"""States of a file: as the catalogue says, missing, or there with other bytes (or as a folder)."""


@dataclass(frozen=True)
class DataFile:
    """One file of a data set."""

    name: str
    address: str
    size: int
    """Bytes."""
    sha256: str

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name or self.name in ("", ".", ".."):
            raise ConfigError(
                f"A file of a data set must be in the set's own folder; got {self.name!r}. Give a name without folders."
            )

    def state(self, folder: Path) -> str:
        """The state of the file in a folder, plain or packed as NAME.gz: `HERE`, `MISSING` or `DIFFERENT`."""
        found = MISSING
        ways: tuple[tuple[str, Callable[[Path], BufferedIOBase]], ...] = (("", _plain), (".gz", _unpacked))
        for ending, opened in ways:
            path = folder / (self.name + ending)
            if path.is_file():
                if self.agrees(path, opened):
                    return HERE
                found = DIFFERENT
            elif path.exists():
                found = DIFFERENT
        return found

    def agrees(self, path: Path, opened: Callable[[Path], BufferedIOBase]) -> bool:
        """Whether a file's size and hash are those of the catalogue; reading stops once there are too many bytes."""
        seen, digest = 0, hashlib.sha256()
        try:
            with opened(path) as file:
                while seen <= self.size and (block := file.read(BLOCK)):
                    seen += len(block)
                    digest.update(block)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            return False
        return seen == self.size and digest.hexdigest() == self.sha256


@dataclass(frozen=True)
class Measured:
    """What was measured on a data set: what to expect, and how to get there."""

    name: str
    """That of the row in the project's benchmarks."""
    expected: str
    """Which figure on which split, its mean and its spread over the seeds; seconds of training, and on what."""
    steps: tuple[str, ...]
    """Shell commands that rewrite files, train and score; `{folder}` is where the files are."""


@dataclass(frozen=True)
class DataSet:
    """A public data set: what it is, whose it is, and what was measured on it."""

    name: str
    title: str
    licence: str
    """As its source states it."""
    citation: str
    recipes: tuple[Measured, ...]
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def folder(self, data: Path) -> Path:
        """Where its files are, within a folder of data sets."""
        return data / self.name

    def states(self, data: Path) -> list[str]:
        """The state of each file, in order."""
        return [file.state(self.folder(data)) for file in self.files]


@cache
def catalogue() -> dict[str, DataSet]:
    """All data sets by name."""
    sets, recipes = (_record(each) for each in ("catalogue.toml", "recipes.toml"))
    return {name: _data_set(name, entry, recipes[name]) for name, entry in sets.items()}


def data_set(name: str) -> DataSet:
    """The data set of this name. Errors: `ConfigError` with the nearest, for an unknown name."""
    return lookup(catalogue(), name, "NAME")


def data_folder(asked: str | None) -> Path:
    """The folder of data sets: as asked, else GLASSFORMER_DATA, else glassformer/data in the user's data folder.

    Errors: `ConfigError` for an empty name.
    """
    given = asked if asked is not None else os.environ.get("GLASSFORMER_DATA") or None
    if given is not None:
        if not given:
            raise ConfigError(
                "--data-dir must be the folder of the data sets; got ''. Give a folder, or remove --data-dir."
            )
        return Path(given).expanduser()
    home = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share") / "glassformer" / "data"


def _record(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


def _data_set(name: str, entry: dict[str, Any], recipes: list[dict[str, Any]]) -> DataSet:
    measured = [Measured(each["name"], each["expected"], tuple(each["steps"])) for each in recipes]
    files = [
        DataFile(
            each["name"], f"{HOST}/{each['repository']}/{each['commit']}/{each['path']}", each["size"], each["sha256"]
        )
        for each in entry["files"]
    ]
    return DataSet(name, entry["title"], entry["licence"], entry["citation"], tuple(measured), tuple(files))


def _plain(path: Path) -> BufferedIOBase:
    return path.open("rb")


def _unpacked(path: Path) -> BufferedIOBase:
    return gzip.GzipFile(path, "rb")
