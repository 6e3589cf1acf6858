"""One request while it is written: tokens arrive on the model's thread, pieces of text leave on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from glassformer.data.tokens.vocabulary import EOS, Tokenizer
from glassformer.decode.engine.requests import FAILED, Request, Ticket, Written
from glassformer.decode.stream import TextStream


@dataclass
class Logprobs:
    """Log-probabilities of the tokens of a piece, in the layout of OpenAI's API."""

    tokens: list[str] = field(default_factory=list[str])
    token_logprobs: list[float] = field(default_factory=list[float])
    top_logprobs: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    """The most probable tokens, and the one that was written."""
    text_offset: list[int] = field(default_factory=list[int])
    """Where each token begins, in characters from the start of the text."""


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
    """

    def __init__(
        self, tokenizer: Tokenizer, behind: Sequence[bool], n: int, stops: Sequence[str], *, whole: bool
    ) -> None:
        n_texts = len(behind) * n
        self.tokenizer, self.n, self.whole = tokenizer, n, whole
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
        if written.end != FAILED:
            if written.likely is not None and written.id != EOS:
                self._explain(piece.logprobs, written, stream)
            piece.text, piece.end = stream.take(written.id, written.end)
        held = self._held[number]
        held.add(piece)
        if held.end or (not self.whole and (held.text or held.logprobs.tokens)):
            self._held[number] = Piece()
            return held
        return None

    def _explain(self, logprobs: Logprobs, written: Written, stream: TextStream) -> None:
        assert written.likely is not None
        logprobs.tokens.extend(self.tokenizer.tokens([written.id]))
        logprobs.token_logprobs.append(written.likely.log_probability)
        ids, values = [id for id, _ in written.likely.top], [value for _, value in written.likely.top]
        own = dict(zip(logprobs.tokens[-1:], logprobs.token_logprobs[-1:], strict=True))
        logprobs.top_logprobs.append(dict(zip(self.tokenizer.tokens(ids), values, strict=True)) | own)
        logprobs.text_offset.append(len(stream))

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
