"""One request while it is written: tokens arrive on the model's thread, pieces of text leave on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glassformer.data.tokens.decoding import Decoding, begins_in
from glassformer.data.tokens.vocabulary import EOS, Tokenizer
from glassformer.decode.engine.requests import FAILED, Likely, Request, Ticket, Written
from glassformer.decode.stream import LIMITED, TextStream


@dataclass
class Logprobs:
    """Log-probabilities of the tokens of a piece, in the layout of OpenAI's API."""

    tokens: list[str] = field(default_factory=list[str])
    token_logprobs: list[float | None] = field(default_factory=list[float | None])
    """None for a token before which nothing was read."""
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list[dict[str, float] | None])
    """The most probable tokens, and the one that is there, each by its own name."""
    text_offset: list[int] = field(default_factory=list[int])
    """Where each token begins, in characters from the start of the text."""

    def append(self, tokenizer: Tokenizer, id: int, likely: Likely | None, offset: int) -> None:
        """Add a token."""
        (token,) = tokenizer.names([id])
        self.tokens.append(token)
        self.text_offset.append(offset)
        self.token_logprobs.append(None if likely is None else likely.log_probability)
        if likely is None:
            self.top_logprobs.append(None)
            return
        ids, values = [id for id, _ in likely.top], [value for _, value in likely.top]
        best = dict(zip(tokenizer.names(ids), values, strict=True))
        self.top_logprobs.append(best | {token: likely.log_probability})


class Echoed(NamedTuple):
    """A prompt that is part of the answer."""

    text: str
    ids: Sequence[int]
    """Its tokens, without a <bos> that is not in the text."""
    typed: bool = False
    """Whether the text was given, and the tokens are what was read of it; otherwise it is the text of the tokens."""


@dataclass
class Piece:
    """The next part of one text of a request."""

    text: str = ""
    tokens: int = 0
    """The number of tokens in this piece, <eos> included."""
    end: str = ""
    """In the last piece, why the text ended: "eos", "stop", "max_new_tokens" or "error"; else empty."""
    logprobs: Logprobs = field(default_factory=Logprobs)
    error: Exception | None = None

    def add(self, more: Piece) -> None:
        """Append the piece that follows this one."""
        self.text += more.text
        self.tokens += more.tokens
        self.end, self.error = more.end, more.error
        for name, values in vars(more.logprobs).items():
            getattr(self.logprobs, name).extend(values)


class Job:
    """A client's request: `n` texts for each of its prompts. Text k of prompt i has number i * n + k.

    Pieces that are not fetched yet are joined, so a slow reader costs no more memory than its own text. With `whole`,
    each text comes in one piece. `behind`: for each prompt, whether its texts continue the prompt's text (`goes_on`).
    `echoed`: the prompts, if the answer begins with them; with `nothing`, it has nothing else.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        behind: Sequence[bool],
        n: int,
        stops: Sequence[str],
        *,
        whole: bool,
        echoed: Sequence[Echoed] = (),
        nothing: bool = False,
    ) -> None:
        n_texts = len(behind) * n
        self.tokenizer, self.n, self.whole, self.nothing = tokenizer, n, whole, nothing
        self.echoed = [echoed[number // n] if echoed else Echoed("", ()) for number in range(n_texts)]
        self.requests: list[Request] = []
        self.tickets: list[Ticket] = []
        self.warnings: list[str] = []
        self.gone = False
        """Whether the client no longer waits."""
        self._streams = [TextStream(tokenizer, stops, behind=each) for each in behind for _ in range(n)]
        self._held = [Piece() for _ in range(n_texts)]
        self._ready: dict[int, Piece] = {}
        self._open = n_texts
        self._news = asyncio.Event()

    def take(self, number: int, written: Written) -> Piece | None:
        """Return what a token lets us send of its text, or None if nothing yet. Runs on the model's thread."""
        piece, stream = Piece(tokens=1, end=written.end, error=written.error), self._streams[number]
        if written.prompt is not None:
            self._explain_prompt(piece.logprobs, self.echoed[number], written.prompt)
        if self.nothing and written.end != FAILED:  # the token that had to be written is not part of the answer
            piece.tokens, piece.end = 0, LIMITED
        elif written.end != FAILED:
            if written.likely is not None and written.id != EOS:
                offset = len(self.echoed[number].text) + len(stream)
                piece.logprobs.append(self.tokenizer, written.id, written.likely, offset)
            piece.text, piece.end = stream.take(written.id, written.end)
        held = self._held[number]
        held.add(piece)
        if held.end or (not self.whole and (held.text or held.logprobs.tokens)):
            self._held[number] = Piece()
            return held
        return None

    def _explain_prompt(self, logprobs: Logprobs, prompt: Echoed, told: Sequence[Likely]) -> None:
        first: list[Likely | None] = [None] * (len(prompt.ids) - len(told))  # unless a <bos> was read before it
        for id, likely, begin in zip(prompt.ids, [*first, *told], self._begins(prompt), strict=True):
            logprobs.append(self.tokenizer, id, likely, begin)

    def _begins(self, prompt: Echoed) -> list[int]:
        if prompt.typed:
            return begins_in(prompt.text, prompt.ids, self.tokenizer)
        decoding, begins = Decoding(self.tokenizer), list[int]()
        for id in prompt.ids:
            begins.append(len(decoding))
            decoding.add(id)
        return begins

    def deliver(self, number: int, piece: Piece) -> None:
        """Make a piece available to `pieces`. Runs on the event loop."""
        if number in self._ready:
            self._ready[number].add(piece)
        else:
            self._ready[number] = piece
        self._news.set()

    def leave(self) -> None:
        """End `pieces`, as the client left. Runs on the event loop."""
        self.gone = True
        self._news.set()

    async def pieces(self) -> AsyncGenerator[dict[int, Piece]]:
        """Yield new pieces by text number until all texts end or the client leaves. Runs on the event loop."""
        while self._open and not self.gone:
            await self._news.wait()
            self._news.clear()
            ready, self._ready = self._ready, {}
            self._open -= sum(bool(piece.end) for piece in ready.values())
            if ready:
                yield ready
