"""Public data sets, from `catalogue.toml`: addresses, sizes, hashes, licences, citations; and which files are here.

What was measured on each of them, and by which commands, is in `recipes.toml`.

A file is fetched over https only, resuming where it stopped; nothing is unpacked. Bytes go to NAME.part, which keeps
what has come if the connection ends; with the right size and SHA-256 it is renamed to NAME. A part with wrong bytes is
deleted, because to resume from it can never succeed.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import tomllib
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPMessage, HTTPResponse
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from glassformer.base.errors import ConfigError, DataError, ResourceError
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
        paths = [folder / self.name, folder / f"{self.name}.gz"]
        if any(path.is_file() and self.agrees(path) for path in paths):
            return HERE
        return DIFFERENT if any(path.exists() for path in paths) else MISSING

    def agrees(self, path: Path) -> bool:
        """Whether a file's size and hash are those of the catalogue; reading stops once there are too many bytes."""
        seen, digest = 0, hashlib.sha256()
        try:
            with path.open("rb") if path.name == self.name else gzip.open(path) as file:
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
    sets, recipes = (
        tomllib.loads(Path(__file__).with_name(each).read_text("utf-8")) for each in ("catalogue.toml", "recipes.toml")
    )
    return {name: _data_set(name, entry, recipes[name]) for name, entry in sets.items()}


def data_set(name: str) -> DataSet:
    """The data set of this name. Errors: `ConfigError` with the nearest, for an unknown name."""
    return lookup(catalogue(), name, "NAME")


def data_folder(requested: str | None) -> Path:
    """The folder of data sets: as asked, else GLASSFORMER_DATA, else glassformer/data in the user's data folder.

    Errors: `ConfigError` for an empty name.
    """
    given = requested if requested is not None else os.environ.get("GLASSFORMER_DATA") or None
    if given is not None:
        if not given:
            raise ConfigError(
                "--data-dir must be the folder of the data sets; got ''. Give a folder, or remove --data-dir."
            )
        return Path(given).expanduser()
    home = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share") / "glassformer" / "data"


def _data_set(name: str, entry: dict[str, Any], recipes: list[dict[str, Any]]) -> DataSet:
    measured = [Measured(each["name"], each["expected"], tuple(each["steps"])) for each in recipes]
    files = [
        DataFile(
            each["name"], f"{HOST}/{each['repository']}/{each['commit']}/{each['path']}", each["size"], each["sha256"]
        )
        for each in entry["files"]
    ]
    return DataSet(name, entry["title"], entry["licence"], entry["citation"], tuple(measured), tuple(files))


SECONDS = 30
"""Seconds that a server may be silent."""
TRIES = 3
"""Connections in a row that bring nothing new, before giving up."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def fetch(file: DataFile, folder: Path) -> Iterator[int]:
    """Fetch a file into a folder, which is created; yields how many bytes are there.

    Errors: `DataError` for a server that cannot be reached or sends something else, `ResourceError` for a full disk,
    `ConfigError` if something other than a file has the name.
    """
    check_address(file.address)
    # a folder or device of this name would make the renaming at the end fail
    path = folder / file.name
    if path.exists() and not path.is_file():
        raise ConfigError(
            f"{path} must be free for the download, but something that is not a regular file has this name. Move it "
            "away, and fetch again."
        )
    part = folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _opened(part) as out:
            yield from _filled(file, out)
            _check(file, out, part)
            os.fsync(out.fileno())
        _renamed(part, file, folder)
        # makes the new name durable
        if os.name == "posix":
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise ResourceError(
            f"The disk is full: {file.name} has {file.size:,} bytes, and {folder} has no room for them. Free some "
            "space and run the same command again, which continues this download, or choose another folder with "
            "--data-dir."
        ) from None
    finally:
        if part.is_file() and part.stat().st_size == 0:
            part.unlink(missing_ok=True)


def check_address(address: str) -> None:
    """Refuse an address that is not https; plain http is only for this machine itself, where tests have a server."""
    parts = urlsplit(address)
    if parts.scheme == "https" or (parts.scheme == "http" and _is_this_machine(parts.hostname or "")):
        return
    raise DataError(
        f"Data is downloaded only over https, as others could change it on the way otherwise; got {address[:200]!r}. "
        "Give an address that begins with https://."
    )


class Careful(HTTPRedirectHandler):
    """Follows a redirect only to an address that could have been asked for directly."""

    def redirect_request(  # pyright: ignore[reportIncompatibleMethodOverride] - what comes is such an answer
        self, req: Request, fp: HTTPResponse, code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The request for the new address. Errors: `DataError` for one that is not https."""
        try:
            check_address(newurl)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _filled(file: DataFile, out: BinaryIO) -> Iterator[int]:
    """Append to a part until it has all bytes, with a new connection if one ends early."""
    have, idle, reason = out.seek(0, os.SEEK_END), 0, ""
    if have > file.size:
        have = _emptied(out)
    while have < file.size:
        before = have
        try:
            yield from _received(file, out, have)
            reason = "the connection ended"
        except NetworkError as error:
            reason = str(error)
        have = out.seek(0, os.SEEK_END)
        idle = 0 if have > before else idle + 1
        if idle == TRIES:
            raise DataError(
                f"{file.address} cannot be reached, or the download ends early: {reason[:150]}. {have:,} of "
                f"{file.size:,} bytes have arrived. Check the network and run the same command again, which continues "
                f"the download; or put {file.name} into the folder yourself."
            )


def _received(file: DataFile, out: BinaryIO, have: int) -> Iterator[int]:
    """Receive from one connection, from byte `have` on or, if the server cannot do that, from the first."""
    headers = {"User-Agent": "glassformer", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={have}-"} if have else {}
    with _network(file):
        answer: HTTPResponse = build_opener(Careful).open(Request(file.address, headers=headers), timeout=SECONDS)
    with answer as response:
        if have and not _goes_on(response, file, have):
            have = _emptied(out)
        announced = response.headers.get("Content-Length")
        if announced is not None and announced.isdigit() and have + int(announced) != file.size:
            raise _other_size(file, f"the server announces {have + int(announced):,}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise DataError(
                f"{file.address} must be sent uncompressed, but the server compresses it. Download {file.name} by "
                "other means, and put it into the folder yourself."
            )
        while block := _block(file, response):
            have += len(block)
            if have > file.size:
                _emptied(out)
                raise _other_size(file, "the server sent more")
            out.write(block)
            out.flush()
            yield have


class NetworkError(Exception):
    """A connection that cannot be made, or that ended; what came before is kept, and another one may continue."""


@contextmanager
def _network(file: DataFile) -> Generator[None, None, None]:
    """Wrap what uses the network and writes nothing, so that a full disk is not taken for a lost connection.

    The network has many names for being away (ssl.SSLError, "no route to host", "network is down"): all are OSErrors.
    Errors: `NetworkError`; `DataError` for an answer that refuses.
    """
    try:
        yield
    except HTTPError as error:
        error.close()
        raise DataError(
            f"{file.address}: the server answers {error.code} ({error.reason}). Try again later, or get {file.name} "
            f"from another source: its SHA-256 is {file.sha256}."
        ) from None
    except (OSError, HTTPException) as error:
        raise NetworkError(str(getattr(error, "reason", "") or error or type(error).__name__)) from None


def _block(file: DataFile, response: HTTPResponse) -> bytes:
    """The next bytes; empty at the end."""
    with _network(file):
        return response.read(BLOCK)


def _goes_on(response: HTTPResponse, file: DataFile, have: int) -> bool:
    """Whether an answer continues at byte `have`. Errors: `DataError` for one that starts elsewhere."""
    if response.status != 206:
        return False
    given = response.headers.get("Content-Range", "")
    if not re.fullmatch(rf"bytes {have}-{file.size - 1}/({file.size}|\*)", given):
        raise _other_size(file, f"the server answers {given[:60]!r} to a request for byte {have:,} and all after it")
    return True


def _check(file: DataFile, out: BinaryIO, part: Path) -> None:
    """Compare the part on disk with the catalogue's hash; a part that differs is deleted."""
    out.seek(0)
    found = hashlib.sha256()
    while block := out.read(BLOCK):
        found.update(block)
    if found.hexdigest() != file.sha256:
        part.unlink(missing_ok=True)
        hashes = f"its SHA-256 must be {file.sha256[:16]}..., but is {found.hexdigest()[:16]}..."
        raise _other_file(file, f"{hashes}. The download is deleted")


def _renamed(part: Path, file: DataFile, folder: Path) -> None:
    """Give a part its name. A second process that fetches the same file may have done so: its bytes are as good."""
    try:
        part.replace(folder / file.name)
    except FileNotFoundError:
        if file.state(folder) != HERE:
            raise DataError(
                f"{part} disappeared while {file.name} was downloaded. Let only one process at a time download into "
                f"{folder}, and fetch again."
            ) from None


def _opened(part: Path) -> BinaryIO:
    """Open the part to continue, or a new one. Errors: `ConfigError` if its name is taken by something else."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    if os.path.lexists(part) and (part.is_symlink() or not part.is_file()):
        raise ConfigError(f"{part} must be a regular file, but is something else, such as a link. Delete it.")
    return os.fdopen(os.open(part, flags, 0o644), "r+b")


def _emptied(out: BinaryIO) -> int:
    out.seek(0)
    out.truncate()
    return 0


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _other_size(file: DataFile, came: str) -> DataError:
    return _other_file(file, f"it must have {file.size:,} bytes, but {came}")


def _other_file(file: DataFile, why: str) -> DataError:
    return DataError(
        f"{file.address} is not the file of the catalogue: {why}. Try once more; if this repeats, the file was changed "
        "at the server or on the way."
    )
