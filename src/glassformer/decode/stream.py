"""Streaming text: turn the ids of a row into text piece by piece, in whole characters, up to a stop text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.data.tokens.decoding import Decoding
from glassformer.data.tokens.vocabulary import EOS, Tokenizer, utf8
from glassformer.decode.answer import Method
from glassformer.decode.beam import Cut, UnansweredError, beam_search, check_search, stop_in
from glassformer.decode.constraints import shown_of, tail_of
from glassformer.decode.generate import generate
from glassformer.decode.settings import BeamSettings
from glassformer.nn.transformer import Transformer

ENDED, STOPPED, LIMITED = "eos", "stop", "max_new_tokens"


class Piece(NamedTuple):
    """A further piece of a row's text; joined, a row's pieces are all that it wrote before its stop text."""

    row: int
    text: str
    tokens: int
    """How many the row has written so far, <eos> included."""
    end: str = ""
    """In its last piece, why the row ended: "eos", "stop" or "max_new_tokens"."""
    complete: bool = True
    """False in the last piece of a text that its limit ended before the grammar that it follows allows an end."""
    log_probability: float | None = None
    """With a beam: of all tokens of the text, <eos> or stop text included, in nats."""
    score: float | None = None
    """With a beam: the score by which the search ranked the text."""
    limit: str = ""
    """In the last piece of a text that its limit ended, the name of that `Limit`, if the writer knows it."""


class TextStream:
    """Takes ids and returns text once it is certain: no partial character, nothing that may become a stop text."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = (), *, behind: bool = False) -> None:
        """`behind`: whether the text continues another one (`goes_on`)."""
        check_stops(stops)
        self.stops = [tokenizer.normal(each) for each in stops]
        self.tokens = 0
        """How many ids were added."""
        self.stopped = False
        """Whether a stop text came; neither it nor what follows is returned."""
        self._decoding = Decoding(tokenizer, behind=behind)
        self._held = ""

    def __len__(self) -> int:
        """The number of characters in the text of all ids, returned or not."""
        return len(self._decoding)

    def add(self, id: int) -> str:
        """Add an id; return the text that has become certain."""
        self.tokens += 1
        return self._released(self._decoding.add(id), last=False)

    def take(self, id: int, end: str = "") -> tuple[str, str]:
        """Add an id; return the text now certain and why the row ends: `end` (given with the last id) or "stop"."""
        text = self.add(id)
        if end and not self.stopped:
            text += self.end()
        return text, STOPPED if self.stopped else end

    def end(self) -> str:
        """Return the text held back, as no more ids come; invalid bytes become U+FFFD."""
        return self._released(self._decoding.end(), last=True)

    def _released(self, more: str, *, last: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + more
        stop = stop_in(text, self.stops)
        self.stopped = stop is not None
        sure = len(text) - (0 if last else begun(text, self.stops)) if stop is None else stop
        self._held = text[sure:]
        return text[:sure]


def begun(text: str, stops: Sequence[str]) -> int:
    """The length of the longest end of `text` that is a proper prefix of a stop text."""
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
    stops: Sequence[str] = (),
    poll: Callable[[], None] | None = None,
    method: Method = generate,
    behind: Sequence[bool] | None = None,
    complete: Callable[[Sequence[int]], bool] | None = None,
    **given: Any,
) -> Iterator[Piece]:
    """Yield the text of each row of `generate` while it is written; arguments not explained here are as there.

    A row ends where one of `stops` appears, however it is split into tokens; the stop text itself is left out. Every
    row ends with one piece that says why. `method` writes the ids. `poll` is called at each step; an exception from it
    ends decoding. `behind` says which rows continue a text, so that a blank before their first word is kept (None: rows
    whose prompt has text). `complete` says whether the text of these ids may end (None: any may).
    """
    n_rows = len((prompts if sources is None else sources) or ())
    if behind is None:
        behind = [goes_on(tokenizer, prompt) for prompt in prompts or [()] * n_rows]
    streams = [TextStream(tokenizer, stops, behind=each) for each in behind]
    written: list[list[int]] = [[] for _ in streams]
    limits = list(max_new_tokens) if isinstance(max_new_tokens, Sequence) else [max_new_tokens] * n_rows

    def stopped(row: int, _: Sequence[int]) -> bool:
        return streams[row].stopped

    given |= {"sources": sources, "prompts": prompts, "max_new_tokens": max_new_tokens}
    for step in method(model, stop=stopped, **given):
        if poll is not None:
            poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            stream = streams[row]
            limited = LIMITED if stream.tokens + 1 >= limits[row] else ""
            text, end = stream.take(token, ENDED if token == EOS else limited)
            written[row].append(token)
            if text or end:
                whole = end != LIMITED or complete is None or complete(written[row])
                yield Piece(row, text, stream.tokens, end, whole)


def goes_on(tokenizer: Tokenizer, prompt: Sequence[int], text: str | None = None) -> bool:
    """Whether what is written after a prompt continues a text; after only special ids it begins one.

    `text` is the prompt as typed. If it ends in white space that the ids do not hold, that is the blank already.
    """
    read = tokenizer.decode(prompt)
    return bool(read) and (text is None or not text[-1:].isspace() or read[-1:].isspace())


def check_stops(stops: Sequence[str]) -> None:
    """Refuse an empty stop text, which would stop every text at once, and one that is not valid Unicode.

    Errors: `ConfigError`, and `DataError` for half characters (lone surrogates), which can never be written.
    """
    if any(not each for each in stops):
        raise ConfigError("A stop text must have at least one character; got ''. Remove it.")
    for each in stops:
        utf8(each)


LONGEST_CHARACTER = 4
"""Bytes of the longest character in UTF-8."""


def search_texts(
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    search: BeamSettings,
    n: int,
    stops: Sequence[str],
    behind: Sequence[bool],
    complete: Callable[[Sequence[int]], bool] | None,
    **given: Any,
) -> Iterator[Piece]:
    """Yield the `n` best texts of each row, best first: a piece each, which has row i * n + k for text k of row i.

    There are fewer where the search finds no more that differ. `stops`, `behind` and `complete` are as in `write`; the
    other arguments are those of `beam_search`. Errors: those of `beam_search`; that for a row without an answer comes
    after the texts of the rows before it.
    """
    check_search(search, n)
    refused: UnansweredError | None = None
    n_best = 1 if n == 1 else search.beam  # of which some may be one text, in other tokens
    stop = stop_of(tokenizer, stops, behind) if stops else None
    try:
        found = beam_search(model, search, n_best=n_best, stop=stop, **given)
    except UnansweredError as error:
        found, refused = error.found, error
    for row, answers in enumerate(found):
        texts: dict[str, Piece] = {}
        for each in answers:
            stream = TextStream(tokenizer, stops, behind=behind[row])
            text = "".join([*map(stream.add, each.ids), stream.end()])
            end = STOPPED if stream.stopped else ENDED if each.complete else LIMITED
            whole = end != LIMITED or complete is None or complete(each.ids)
            length = len(each.ids) + (each.complete and not each.stopped)
            texts.setdefault(text, Piece(row, text, length, end, whole, each.log_probability, each.score))
        for k, piece in enumerate([*texts.values()][:n]):
            yield piece._replace(row=row * n + k)
    if refused is not None:
        raise refused


def stop_of(tokenizer: Tokenizer, stops: Sequence[str], behind: Sequence[bool]) -> Cut:
    """Make a `Cut` that ends a row once its text has a stop text. `behind`: of each row, as for `TextStream`.

    It looks at the end of a text, as no stop text came before, and reads the text as a whole only where one may stand.
    """
    spelled, words = shown_of(tokenizer), [tokenizer.normal(each) for each in stops]
    longest = max(len(utf8(each)) for each in words) + LONGEST_CHARACTER

    def before_stop(row: int, ids: Sequence[int]) -> str | None:
        tail = tail_of(ids, spelled, len(spelled[ids[-1]]) + longest).decode(errors="replace")
        if not any(each in tail for each in words):
            return None
        stream = TextStream(tokenizer, stops, behind=behind[row])
        text = "".join(map(stream.add, ids))
        return text if stream.stopped else None

    return before_stop
