"""`glassformer translate RUN`: lines in, one answer for each line out."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.foundation.errors import ConfigError, DataError

UTF8_MARK = b"\xef\xbb\xbf"


def run(arguments: Arguments) -> int:
    """Translate standard input to standard output; both are UTF-8, whatever the system's language is set to."""
    folder = existing_run(str(arguments.target))
    talking = sys.stdin.isatty()
    size = batch_size(arguments.options.get("batch-size"), 1 if talking else recipe_of(folder).decode.batch_size)
    if talking:
        print("Type a line and press Enter; Ctrl-D ends.", file=sys.stderr)
    from glassformer.train.session import translate

    def translated(lines: Iterator[str]) -> Iterator[str]:
        return translate(folder, lines, size)

    for answer in answers(lines_of(sys.stdin.buffer), translated):
        sys.stdout.buffer.write(answer.encode() + b"\n")
        if talking:
            sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()
    return 0


def batch_size(given: str | None, usual: int) -> int:
    """How many lines are translated together."""
    if given is None:
        return usual
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(f"--batch-size takes a whole number from 1 on; got {given!r}. Try --batch-size {usual}.")
    return int(given)


def lines_of(file: BinaryIO) -> Iterator[str]:
    """The lines of a UTF-8 file, as they come. LF and CRLF end a line; a byte order mark at the head is taken off."""
    for number, line in enumerate(file, start=1):
        bare = line.removeprefix(UTF8_MARK) if number == 1 else line
        try:
            yield bare.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"Standard input, line {number}: byte {error.start + 1} (0x{bare[error.start]:02x}) is not valid "
                "UTF-8. Convert it first, for instance: iconv -f latin1 -t utf-8."
            ) from None


def answers(lines: Iterable[str], translated: Callable[[Iterator[str]], Iterable[str]]) -> Iterator[str]:
    """One answer for each line, in order. Blank lines are not translated, and stay blank.

    `translated` may read ahead, as it does to fill a batch, but gives back its answers in order. An answer with line
    ends in it would shift all that follow, so they become spaces.
    """
    waiting: deque[bool] = deque()  # a line that was read and not yet answered: whether it is blank

    def asked() -> Iterator[str]:
        for line in lines:
            waiting.append(not line.strip())
            if line.strip():
                yield line

    for answer in translated(asked()):
        while waiting.popleft():
            yield ""
        yield answer.replace("\r", " ").replace("\n", " ")
    yield from ("" for _ in waiting)
