"""Cache token files: KEY, below, is a hash of the text, its part, the tokenizer and whether documents are marked.

    $GLASSFORMER_CACHE, else $XDG_CACHE_HOME/glassformer, else ~/.cache/glassformer
        tokens/KEY/    a token file; written under another name, and renamed once it is complete

A damaged or incomplete file, which its hashes reveal whenever it is opened, is made anew, and the user is told. So
nothing here waits for the disk, and deleting the folder costs only time. Two processes that make the same file at once
each write their own; the first to finish gives it its name, and the other uses that.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from glassformer.base.cache_folder import cache_folder, unwritable
from glassformer.base.errors import GlassformerError
from glassformer.data.running.corpus import Part
from glassformer.data.running.token_file import TokenFile, digest_of, open_tokens, write_tokens
from glassformer.data.tokens.vocabulary import Tokenizer

FORMAT = 1
BUILDING = ".building-"
ABANDONED = 24 * 3600.0
"""Seconds after which an unfinished folder is removed: its process is gone."""


def tokens_of(
    part: Part, tokenizer: Tokenizer, *, documents: bool, note: Callable[[str], None] | None = None
) -> TokenFile:
    """The tokens of this part of a text: those in the cache, or new ones put there.

    `documents`: put each between <bos> and <eos>. `note` gets a sentence if those in the cache were damaged. Errors:
    `DataError` from reading; `ConfigError` or `ResourceError` if the cache cannot be written (`unwritable`).
    """
    folder = cache_folder() / "tokens" / key_of(part, tokenizer, documents=documents)
    wrong = ""
    if folder.is_dir():
        found, wrong = found_in(folder)
        if found is not None:
            return found
        if note is not None:
            note(f"The token file {folder} was damaged ({wrong}) and is made again.")
    try:
        with building(folder.parent) as new:
            write_tokens(new, part, tokenizer, documents=documents)
            put_in_place(new, folder)
        return replace(open_tokens(folder), new=True)
    except (OSError, ValueError) as error:
        if isinstance(error, GlassformerError):
            raise
        raise unwritable(folder, error) from error


def key_of(part: Part, tokenizer: Tokenizer, *, documents: bool) -> str:
    """The name of this part's tokens in the cache; another text, part or tokenizer gives another name."""
    told = [FORMAT, part.corpus.sha256, part.first, part.last, digest_of(tokenizer), documents]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def found_in(folder: Path) -> tuple[TokenFile | None, str]:
    """The tokens in a folder, or what is wrong with them."""
    try:
        return open_tokens(folder), ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, str(error)


@contextmanager
def building(beside: Path) -> Generator[Path, None, None]:
    """A new folder to fill, removed at the end unless it was renamed; also removes what others abandoned."""
    beside.mkdir(parents=True, exist_ok=True)
    for each in beside.glob(f"{BUILDING}*"):
        with suppress(OSError):
            if time.time() - each.stat().st_mtime > ABANDONED:
                shutil.rmtree(each, ignore_errors=True)
    new = beside / f"{BUILDING}{uuid.uuid4().hex}"
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def put_in_place(new: Path, folder: Path) -> None:
    """Give the finished folder its name, unless a good one has it by now; a damaged one is removed."""
    if folder.is_dir() and found_in(folder)[0] is None:
        aside = new.with_name(f"{new.name}-damaged")
        with suppress(OSError):  # another process may be faster
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    with suppress(OSError):  # where another has put its own there, which opening shows
        new.rename(folder)
