"""MANIFEST.json: the size and SHA-256 of every file of a checkpoint. It is written last and marks a folder complete."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError
from glassformer.store.files import write_new
from glassformer.store.json_file import RESTORE, parse_json, read_text, readable, regular_size, without_links

MANIFEST = "MANIFEST.json"
LARGEST = 2**20  # bytes of a manifest; ours have about 500
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""An allowed file name: no separator, drive or leading dot, so it names nothing outside its folder on any system."""


class Entry(NamedTuple):
    """The manifest's record of one file."""

    size: int
    sha256: str


def write_manifest(folder: Path) -> None:
    """Write the manifest of all files in `folder`, durably. Call it last."""
    entries = {path.name: Entry(path.stat().st_size, sha256(path)) for path in sorted(folder.iterdir())}
    write_new(folder / MANIFEST, manifest_text(entries).encode("utf-8"))


def manifest_text(entries: Mapping[str, Entry]) -> str:
    """Return the only valid text for these entries, so that any changed byte of a manifest is detected."""
    return json.dumps({name: entry._asdict() for name, entry in entries.items()}, indent=2) + "\n"


def read_manifest(folder: Path) -> dict[str, Entry]:
    """Read the manifest of `folder` without comparing it with the files. Errors: `CheckpointError`."""
    path = folder / MANIFEST
    text = read_text(path, LARGEST)
    values = parse_json(text, path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must be a JSON object of file names; got {type(values).__name__}. {RESTORE}")
    entries = {name: read_entry(path, name, value) for name, value in values.items()}
    if text != manifest_text(entries):
        raise CheckpointError(f"{path} is damaged: it is not formatted as glassformer writes it. {RESTORE}")
    return entries


def read_entry(path: Path, name: str, value: Any) -> Entry:
    """Check one entry of the manifest and return it. Errors: `CheckpointError`."""
    if not PLAIN.fullmatch(name) or name == MANIFEST:
        raise CheckpointError(
            f"{path} lists {name[:60]!r}, which is not a plain file name (letters, digits and . _ - only). {RESTORE}"
        )
    match value:
        case {"size": int(size), "sha256": str(digest)} if size >= 0 and re.fullmatch(r"[0-9a-f]{64}", digest):
            return Entry(size, digest)
        case _:
            raise CheckpointError(f"{path}: {name!r} needs a size in bytes and a sha256 of 64 hex digits. {RESTORE}")


def verify(folder: Path, *, read: Collection[str] | None = None, hashed: bool = True) -> dict[str, Entry]:
    """Compare files with the manifest of `folder`: those that will be `read` (None: all), by size and by SHA-256.

    Without `hashed`, by size only. Returns the manifest. Files that it does not list are not part of the checkpoint and
    are never read.
    Errors: `CheckpointError` naming the file that is missing or damaged.
    """
    entries = read_manifest(folder)
    checked = entries if read is None else {name: each for name, each in entries.items() if name in read}
    for name, listed in checked.items():
        size = regular_size(folder / name)
        if size != listed.size:
            raise CheckpointError(
                f"{folder / name} is damaged: {size:,} bytes instead of the {listed.size:,} in {MANIFEST}. {RESTORE}"
            )
    for name in checked if hashed else ():
        found = sha256(folder / name)
        if found != entries[name].sha256:
            raise CheckpointError(
                f"{folder / name} is damaged: its SHA-256 begins with {found[:12]}, but {MANIFEST} has "
                f"{entries[name].sha256[:12]}. {RESTORE}"
            )
    return entries


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with readable(path), open(path, "rb", opener=without_links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
