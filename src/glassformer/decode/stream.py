"""Text as it is written: the ids of a row become text piece by piece, whole characters only, up to a stop text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from glassformer.data.tokens.decoding import Decoding
from glassformer.data.tokens.vocabulary import EOS, Tokenizer, utf8
from glassformer.decode.choose.context import Choose
from glassformer.decode.generate import generate, greedy
from glassformer.decode.method import Method
from glassformer.foundation.errors import ConfigError
from glassformer.model.transformer import Transformer

ENDED, STOPPED, LIMITED = "eos", "stop", "max_new_tokens"


class Piece(NamedTuple):
    """More text of a row; joined, the pieces of a row are all that it wrote before its stop text."""

    row: int
    text: str
    tokens: int
    """How many the row has written so far, <eos> included."""
    end: str = ""
    """Why the row ended, with its last piece: "eos", "stop" or "max_new_tokens"."""


class TextStream:
    """Ids in, text out as soon as it is sure: no half character, and nothing that may turn out to be a stop text."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = (), *, behind: bool = False) -> None:
        """`behind`: whether the text goes on from another (`goes_on`)."""
        check_stops(stops)
        self.stops = stops
        self.tokens = 0
        """How many ids came."""
        self.stopped = False
        """Whether a stop text came; it is told no more, nor is what follows."""
        self._decoding = Decoding(tokenizer, behind=behind)
        self._held = ""

    def __len__(self) -> int:
        """Characters that all ids spell, told or not."""
        return len(self._decoding)

    def add(self, id: int) -> str:
        """The text that is sure since the last id came."""
        self.tokens += 1
        return self._tell(self._decoding.add(id), last=False)

    def take(self, id: int, end: str = "") -> tuple[str, str]:
        """The text that is sure with this id, and why the row ends: as given with its last id, or at a stop text."""
        text = self.add(id)
        if end and not self.stopped:
            text += self.end()
        return text, STOPPED if self.stopped else end

    def end(self) -> str:
        """What was held back, where no more ids come; bytes that are no character are U+FFFD."""
        return self._tell(self._decoding.end(), last=True)

    def _tell(self, more: str, *, last: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + more
        found = [(at + len(each), at) for each in self.stops if (at := text.find(each)) >= 0]
        self.stopped = bool(found)  # by the one that is whole first, so that it hangs on no token's length
        sure = min(found)[1] if found else len(text) - (0 if last else begun(text, self.stops))
        self._held = text[sure:]
        return text[:sure]


def begun(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of `text` a stop text may begin with; the most of all stop texts."""
    return max(
        (n for each in stops for n in range(1, min(len(each), len(text) + 1)) if text.endswith(each[:n])), default=0
    )


def write(
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    choose: Choose = greedy,
    stops: Sequence[str] = (),
    max_context: int | None = None,
    drop: int = 1,
    numbers: Sequence[int] | None = None,
    prefix: bool = False,
    poll: Callable[[], None] | None = None,
    method: Method | None = None,
    behind: Sequence[bool] | None = None,
) -> Iterator[Piece]:
    """The text of each row of `generate`, as it is written; all but `stops`, `poll`, `method` and `behind` is as there.

    A row ends where one of `stops` comes, whatever tokens it is made of; the stop text is left out. Every row ends
    with one piece that says why. `method` writes in place of `generate`, and then `choose` is its own.
    `poll` is called at each step; what it raises ends the writing. `behind`: which rows go on from a text, so that the
    blank before a word is told (none: those of which a prompt holds text).
    """
    n_rows = len((prompts if sources is None else sources) or ())
    if behind is None:
        behind = [goes_on(tokenizer, prompt) for prompt in prompts or [()] * n_rows]
    streams = [TextStream(tokenizer, stops, behind=each) for each in behind]
    limits = list(max_new_tokens) if isinstance(max_new_tokens, Sequence) else [max_new_tokens] * n_rows

    def stopped(row: int, _: Sequence[int]) -> bool:
        return streams[row].stopped

    writes = partial(generate, choose=choose) if method is None else method
    for step in writes(
        model,
        sources=sources,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        stop=stopped,
        max_context=max_context,
        drop=drop,
        numbers=numbers,
        prefix=prefix,
    ):
        if poll is not None:
            poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            stream = streams[row]
            limited = LIMITED if stream.tokens + 1 >= limits[row] else ""
            text, end = stream.take(token, ENDED if token == EOS else limited)
            if text or end:
                yield Piece(row, text, stream.tokens, end)


def goes_on(tokenizer: Tokenizer, prompt: Sequence[int], text: str | None = None) -> bool:
    """Whether what is written behind a prompt goes on from a text; behind special ids alone it begins one.

    `text` is the prompt as it was typed: white space at its end that its ids do not hold stands for the blank.
    """
    read = tokenizer.decode(prompt)
    return bool(read) and (text is None or not text[-1:].isspace() or read[-1:].isspace())


def check_stops(stops: Sequence[str]) -> None:
    """Refuse a stop text without characters, which would stop every text at once, and one of half characters.

    Errors: `ConfigError`, and `DataError` for half characters, which never come.
    """
    if any(not each for each in stops):
        raise ConfigError("A stop text has at least one character; got ''. Leave it out.")
    for each in stops:
        utf8(each)
