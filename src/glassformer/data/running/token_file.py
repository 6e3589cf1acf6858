"""The tokens of a text in their own folder, written as a stream and read through a memory map.

tokens.bin       ids, 2 bytes each if the vocabulary has at most 65,536, else 4; little-endian
documents.bin    the place of the first token of each document, 8 bytes each
MANIFEST.json    `TokenCounts`, the SHA-256 of both files, and that of the manifest's own content

Cache token files: KEY, below, is a hash of the text, its part, the tokenizer and whether documents are marked.

    $GLASSFORMER_CACHE, else $XDG_CACHE_HOME/glassformer, else ~/.cache/glassformer
        tokens/KEY/    a token file; written under another name, and renamed once it is complete

A damaged or incomplete file, which its hashes reveal whenever it is opened, is made anew, and a note says so. So
nothing here waits for the disk, and deleting the folder costs only time. Two processes that make the same file at once
each write their own; the first to finish gives it its name, and the other uses that.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
import time
import uuid
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.cache_folder import cache_folder, unwritable
from glassformer.base.errors import ConfigError, DataError, GlassformerError
from glassformer.data.running.text import END, Part
from glassformer.data.tokens.subword import ByteTokenizer
from glassformer.data.tokens.vocabulary import (
    BOS,
    EOS,
    SPECIALS,
    UNK,
    CharacterTokenizer,
    CodePoints,
    Tokenizer,
    shares,
    utf8,
)

TOKENS, DOCUMENTS, MANIFEST = "tokens.bin", "documents.bin", "MANIFEST.json"
SMALL = 2**16
"""The largest vocabulary whose ids fit into two bytes."""

LARGE = 2**26
"""Pages of a file with more bytes are not held in memory."""

BLOCK = 2**20
"""Tokens that are examined at once."""


@dataclass(frozen=True)
class TokenCounts:
    """What was counted while the tokens were made."""

    sha256: str
    """SHA-256 of the text in UTF-8, with the ends of its documents."""
    tokenizer: str
    """SHA-256 of the tokenizer's JSON text."""
    vocab_size: int
    documents: bool
    """Whether each document is between <bos> and <eos>."""
    n_tokens: int
    """Including <bos> and <eos>."""
    n_unknown: int
    """Tokens that are <unk>."""
    n_documents: int
    n_bytes: int
    """Bytes of the text in UTF-8. Like `n_characters` and `n_words` this does not count <bos> and <eos>."""
    n_characters: int
    n_words: int
    """Stretches between white space."""


@dataclass(frozen=True)
class TokenFile:
    """The tokens of a text, and where its documents start; both stay on disk until they are read."""

    path: Path
    tokens: NDArray[Any]
    """[n_tokens] of uint16 or uint32"""
    documents: NDArray[np.int64]
    """[n_documents]: the place of the first token of each."""
    counts: TokenCounts
    new: bool = False
    """Whether it was written just now, instead of found."""

    def __len__(self) -> int:
        return self.counts.n_tokens

    def take(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """[rows, length]: the tokens from each start on. No start may be larger than n_tokens - length."""
        taken = self.tokens[self._places(starts, length)].astype(np.int64)
        let_go(self.tokens)
        return taken

    def most_special(self, length: int) -> int:
        """The most special tokens (<bos>, <unk> and so on) in a window of this length. Reads the file if it has any."""
        if not (self.counts.documents or self.counts.n_unknown):
            return 0
        most = 0
        for at in range(0, len(self), BLOCK):  # a long text may hold more of them than memory does
            counts = np.append(0, (self.tokens[at : at + BLOCK + length] < len(SPECIALS)).cumsum())
            reach = min(length, len(counts) - 1)
            most = max(most, int((counts[reach:] - counts[: len(counts) - reach]).max()))
            let_go(self.tokens)
        return most

    def _places(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        places = starts[:, None] + np.arange(length)
        assert 0 <= places.min(initial=0) <= places.max(initial=0) < len(self), (starts, length)
        return places


def write_tokens(folder: Path, part: Part, tokenizer: Tokenizer, *, documents: bool) -> None:
    """Write the tokens of a text into an empty folder, piece by piece. Errors: `DataError` from reading; `OSError`."""
    encode, kind = encoder(tokenizer), token_type(tokenizer.vocab_size)
    text_hash, token_hash, firsts = hashlib.sha256(), hashlib.sha256(), array("q")
    n_tokens = n_unknown = n_bytes = n_characters = n_words = 0
    begins, in_word = True, False
    with (folder / TOKENS).open("xb") as file:
        for piece in part.pieces(tokenizer.cuts):
            if begins:
                firsts.append(n_tokens)
            ids = encode(piece.text, not begins)
            marked = (
                [[BOS]] * (documents and begins and tokenizer.begins) + [ids] + [[EOS]] * (documents and piece.ends)
            )
            data = np.concatenate(marked).astype(kind).tobytes()
            token_hash.update(data)
            file.write(data)
            text = piece.text.encode("utf-8")
            text_hash.update(text + END * piece.ends)
            n_tokens += len(data) // kind.itemsize
            n_unknown += int((ids == UNK).sum())
            n_bytes, n_characters = n_bytes + len(text), n_characters + len(piece.text)
            n_words += len(piece.text.split()) - (in_word and not piece.text[0].isspace())  # a word cut in two is one
            begins, in_word = piece.ends, not (piece.ends or piece.text[-1].isspace())
    (folder / DOCUMENTS).write_bytes(np.array(firsts, "<i8").tobytes())
    vocabulary = digest_of(tokenizer)
    counts = TokenCounts(
        text_hash.hexdigest(), vocabulary, tokenizer.vocab_size, documents, n_tokens, n_unknown,
        len(firsts), n_bytes, n_characters, n_words,
    )  # fmt: skip
    files = {TOKENS: token_hash.hexdigest(), DOCUMENTS: file_hash(folder / DOCUMENTS)}
    (folder / MANIFEST).write_text(manifest_text(counts, files), encoding="utf-8")


def open_tokens(folder: Path) -> TokenFile:
    """Open the tokens in a folder and check its hashes. Errors: `ValueError`, `OSError`: what is wrong."""
    text = (folder / MANIFEST).read_text("utf-8")
    record = json.loads(text)
    counts, files = TokenCounts(**record["counts"]), record["files"]
    if text != manifest_text(counts, files):
        raise ValueError(f"{MANIFEST} has changed since it was written")
    for name in (TOKENS, DOCUMENTS):
        if file_hash(folder / name) != files[name]:
            raise ValueError(f"{name} has changed since it was written")
    tokens = mapped(folder / TOKENS, token_type(counts.vocab_size))
    return TokenFile(folder, tokens, mapped(folder / DOCUMENTS, np.dtype("<i8")), counts)


def mapped(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    """The numbers in a file, on disk until they are read; an empty file cannot be mapped."""
    return np.memmap(path, kind, "r") if path.stat().st_size else np.zeros(0, kind)


def manifest_text(counts: TokenCounts, files: dict[str, str]) -> str:
    """The only way to write a manifest, so that one with any byte changed is invalid."""
    content = {"counts": asdict(counts), "files": files}
    own = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "content": own}, indent=2) + "\n"


def let_go(numbers: NDArray[Any]) -> None:
    """Give pages that were read from a large file back to the system, which may keep them cached or not.

    If held, they would count as this process's memory, in the end the whole file.
    """
    if numbers.nbytes > LARGE and isinstance(numbers.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        numbers.base.madvise(mmap.MADV_DONTNEED)


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The integer type of the ids on disk."""
    return np.dtype("<u2" if vocab_size <= SMALL else "<u4")


def digest_of(tokenizer: Tokenizer) -> str:
    """SHA-256 of a tokenizer, in hex."""
    return hashlib.sha256(tokenizer.to_json().encode("utf-8")).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    parts = [FORMAT, part.corpus.sha256, part.first, part.last, digest_of(tokenizer), documents]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


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


# Text to an array of ids: those of `Tokenizer.encode`, if possible without a Python number for each.

Ids = NDArray[Any]
"""[n], of an integer type that holds every id."""
Encode = Callable[[str, bool], Ids]
"""Takes a part of a text, and whether others came before it (`Tokenizer.encode_parts`)."""


def encoder(tokenizer: Tokenizer) -> Encode:
    """A function from text to its ids, the same as those of `tokenizer`; parts are cut as it allows."""
    if isinstance(tokenizer, CharacterTokenizer):
        return by_table(tokenizer)
    if isinstance(tokenizer, ByteTokenizer):
        return lambda text, behind: np.frombuffer(utf8(text), np.uint8) + np.uint16(len(SPECIALS))
    return lambda text, behind: joined(tokenizer, text, behind)


def by_table(tokenizer: CharacterTokenizer) -> Encode:
    """Look code points up in a table of ids."""
    points = CodePoints(tokenizer.entries)

    def encode(text: str, behind: bool) -> Ids:
        utf8(text)
        return points.array(text)

    return encode


def joined(tokenizer: Tokenizer, text: str, behind: bool) -> Ids:
    """Encode the text in shares, and join their ids."""
    parts = list(shares(text, tokenizer.cuts))
    return np.concatenate([np.array(row, np.uint32) for row in tokenizer.encode_parts(parts, behind=behind)])


# Which windows of tokens a step trains on, and which ones an evaluation reads, as functions of numbers alone.

Places = NDArray[np.int64]


class Windows:
    """The training windows of `n_tokens` tokens: `window` to read and one more, because each predicts the next."""

    def __init__(self, n_tokens: int, window: int, order: str = "random", seed: int = 0) -> None:
        if n_tokens <= window:
            raise DataError(
                f"A training window has data.window={window} tokens and the one after them, but the training text has "
                f"{n_tokens} tokens. Give a longer text, or set data.window to at most {n_tokens - 1}."
            )
        if seed < 0:
            raise ConfigError(f"seed must be at least 0; got {seed}. Try seed=0.")
        self.n_tokens, self.window, self.order, self.seed = n_tokens, window, order, seed
        self.whole = (n_tokens - 1) // window
        """The number of windows one after the other, without a gap."""

    def starts(self, step: int, rows: int, again: int = 0) -> Places:
        """[rows]: the first token of each window of this step (counted from 0).

        `again`: draw other windows at random for the same step, because the earlier ones are of no use.
        """
        assert min(step, rows - 1, again) >= 0, (step, rows, again)
        if self.order == "random" or again:
            return self._random(step, rows, (2, again) if again else ())  # (1,) is the key of what is hidden
        number = np.arange(rows, dtype=np.int64) + step * rows
        epoch, place = np.divmod(number, self.whole)
        # each epoch starts one token later, so that the tokens after the last whole window are read, too
        return place * self.window + epoch % (self.n_tokens - self.whole * self.window)

    def _random(self, step: int, rows: int, key: tuple[int, ...]) -> Places:
        # Raw output of Philox: numpy promises it for all versions, which it does not for its integers.
        random = np.random.Philox(np.random.SeedSequence((self.seed, step), spawn_key=key))
        return (random.random_raw(rows) % np.uint64(self.n_tokens - self.window)).astype(np.int64)


class EvaluationWindow(NamedTuple):
    """Reads the tokens `start` to `stop` (not included); of the tokens that these predict, `scored` to `stop` count."""

    start: int
    stop: int
    scored: int
    """The first token that is scored here; the last one is the token at `stop`. Means nothing for hidden tokens."""


def evaluation_windows(n_read: int, window: int, stride: int | None = None) -> Iterator[EvaluationWindow]:
    """The windows that read the first `n_read` tokens of a text, of which each predicts the next, once.

    `n_read`: all tokens but the last, which predicts nothing; all of them where those that are hidden are scored.
    `stride` is at most `window`; None: equal to it. Only where all are read, nothing follows the last window.
    """
    stride = stride or window
    assert n_read >= 1, n_read
    assert 1 <= stride <= window, (stride, window)
    scored = 1
    for start in range(0, n_read, stride):
        stop = min(start + window, n_read)
        yield EvaluationWindow(start, stop, scored)
        scored = stop + 1
        if stop == n_read:
            return


def count_evaluation_windows(n_read: int, window: int, stride: int | None = None) -> int:
    """The number of windows that `evaluation_windows` yields."""
    return 1 + -(-max(0, n_read - window) // (stride or window))
