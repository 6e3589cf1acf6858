"""The service: requests become tokens on the model's one thread, and pieces of text on the event loop."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import NamedTuple, cast

from glassformer.base.errors import GlassformerError, TooLongError
from glassformer.data.tokens.decoding import Decoding, begins_in
from glassformer.data.tokens.vocabulary import BOS, EOS, Tokenizer
from glassformer.decode.answer import limit_of
from glassformer.decode.choose import chooser
from glassformer.decode.constraints import States
from glassformer.decode.engine import Engine, warm_up
from glassformer.decode.filters import Choose, Filter, Named, logit_bias, without
from glassformer.decode.requests import FAILED, Likely, Limits, Request, Ticket, Written
from glassformer.decode.settings import Sampling
from glassformer.decode.stream import LIMITED, TextStream
from glassformer.serve.http import RefusalError, Say
from glassformer.serve.request import USUAL_TOKENS, GrammarField, Wanted, followed
from glassformer.serve.settings import ServeConfig
from glassformer.train.finished.writing import Writer, note_of

# One request while it is written: tokens arrive on the model's thread, pieces of text leave on the event loop.


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

    def _explain_prompt(self, logprobs: Logprobs, prompt: Echoed, scored: Sequence[Likely]) -> None:
        first: list[Likely | None] = [None] * (len(prompt.ids) - len(scored))  # unless a <bos> was read before it
        for id, likely, begin in zip(prompt.ids, [*first, *scored], self._begins(prompt), strict=True):
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


# Turning a checked request into requests to the engine: token ids, limits, and how tokens are chosen.

TOO_LONG = "context_length_exceeded"


class Texts:
    """Makes jobs for a run's model."""

    def __init__(self, writer: Writer, config: ServeConfig) -> None:
        self.writer, self.config = writer, config
        self.states = States(writer.tokenizers.target, config.rows)
        """Shared by all grammars."""

        @lru_cache(maxsize=64)
        def follow(constraint: GrammarField) -> Filter:
            return followed(constraint, self.states)

        @lru_cache(maxsize=64)
        def choice(
            sampling: Sampling, biases: tuple[tuple[int, float], ...], constraint: GrammarField | None
        ) -> Choose:
            own: list[Filter] = [Named(logit_bias(dict(biases)), "logit_bias")] if biases else []
            never = writer.never(constrained=constraint is not None)
            own += [without(never), *writer.ends(never)]
            return chooser(sampling, own if constraint is None else [*own, Named(follow(constraint), constraint.field)])

        self.choice, self.unwritable = choice, lru_cache(maxsize=256)(writer.unwritable)
        """Equal settings give the same function object, so the engine chooses for rows of several clients together."""

    def job(self, wanted: Wanted) -> Job:
        """Make the job for a request. Errors: `RefusalError` 400 for prompts that the model cannot read, or score.

        Tokenises the texts, which may be slow: do not call it on the server's event loop.
        """
        scored = wanted.echo and wanted.logprobs is not None
        if scored and self.writer.recipe.data.objective == "prefix":
            rule = "This model reads a prompt in both directions, so its tokens have no log-probabilities"
            raise RefusalError(400, f"{rule}; got echo and logprobs. Remove one of them.", param="echo")
        read = [self._ids(prompt, place, wanted.field) for place, prompt in enumerate(wanted.prompts)]
        behind = [self.writer.goes_on(*each) for each in zip(read, wanted.prompts, strict=True)]
        job = Job(
            self.writer.tokenizers.target,
            behind,
            wanted.n,
            wanted.stops,
            whole=not wanted.stream,
            echoed=[self._echoed(*each) for each in zip(read, wanted.prompts, strict=True)] if wanted.echo else (),
            nothing=wanted.max_tokens == 0,
        )
        if unknown := self.writer.unknown(wanted.prompts, wanted.field):
            job.warnings.append(unknown)
        if note := note_of(self.writer.untrained(read), wanted.field):
            job.warnings.append(note)
        job.warnings += [f"stop: {each}." for each in self.unwritable(wanted.stops)]
        choose = self.choice(wanted.sampling, tuple(sorted((wanted.biases or {}).items())), wanted.constraint)
        seed = secrets.randbits(63) if wanted.seed is None else wanted.seed
        for place, ids in enumerate(read):
            prompts: dict[str, list[int]] = {"prompt" if self.writer.continues else "source": ids}
            request = Request(
                **prompts,
                max_new_tokens=max(1, self._most(ids, wanted.max_tokens)),
                n=wanted.n,
                choose=choose,
                seed=seed,
                first=place * wanted.n,
                logprobs=wanted.logprobs,
                scored=scored,
                tag=(job, place),
            )
            job.requests.append(request)
        return job

    def _ids(self, prompt: str | list[int], place: int, field: str) -> list[int]:
        try:
            ids = prompt if isinstance(prompt, list) else self.writer.ids(prompt, place + 1, called=field)
        except GlassformerError as error:
            code = TOO_LONG if isinstance(error, TooLongError) else None
            raise RefusalError(400, str(error), param=field, code=code) from None
        size, most = self.writer.tokenizers.source.vocab_size, self.config.max_prompt
        if max(ids) >= size:
            came = f"{field} {place + 1} has {max(ids)}"
            message = f"Token ids must be from 0 to {size - 1}; {came}. Use this model's tokenizer, or give a text."
            raise RefusalError(400, message, param=field)
        most = min(most, self.writer.max_context or most)
        if len(ids) > most:
            message = f"A {field} may have at most {most} tokens here; {field} {place + 1} has {len(ids)}. Shorten it."
            raise RefusalError(400, message, param=field, code=TOO_LONG)
        return ids

    def _most(self, ids: list[int], requested: int | None) -> int:
        """Return the most tokens that a text may have. Past its context, the model reads only a completion's end."""
        most = self.config.max_new_tokens
        if not self.writer.continues:
            return min(limit_of(self.writer.model, ids, requested).tokens, most)
        return min(USUAL_TOKENS, most) if requested is None else requested

    def _echoed(self, ids: list[int], prompt: str | list[int]) -> Echoed:
        if isinstance(prompt, str):
            return Echoed(prompt, ids[1:] if ids[:1] == [BOS] else ids, typed=True)
        return Echoed(self.writer.tokenizers.target.decode(ids), ids)


# The one thread that runs the model: it steps the engine while there is work and passes new text to the event loop.


class Runner:
    """Steps an engine on its own thread. Call the public methods on the event loop that `start` was given."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="glassformer-model", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; answers go to this event loop."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the step that is running."""
        self._ending = True
        self._wake.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Submit all requests of a job. Errors: as `Engine.submit`; the caller then cancels the job."""
        for request in job.requests:
            job.tickets.append(self.engine.submit(request))
        self._wake.set()

    def cancel(self, job: Job) -> None:
        """Cancel a job; its rows leave the engine before the next step."""
        for ticket in job.tickets:
            self.engine.cancel(ticket)
        self._wake.set()

    def _work(self) -> None:
        while not self._ending:
            if not self.engine.busy:
                self._wake.wait()
                self._wake.clear()
                continue
            news = [each for written in self._stepped() if (each := self._piece_of(written)) is not None]
            self.steps += 1
            if news and self._loop is not None:
                with suppress(RuntimeError):  # the loop has ended, so nobody waits any more
                    self._loop.call_soon_threadsafe(hand_over, news)

    def _stepped(self) -> list[Written]:
        """Step the engine; whatever is raised is the answer to the texts in hand, and the thread goes on."""
        try:
            return self.engine.step()
        except BaseException as error:  # on a thread of its own, even what ends a program is a mistake in some choice
            return self.engine.fail(error)

    def _piece_of(self, written: Written) -> tuple[Job, int, Piece] | None:
        """Return what a token adds to a text of its job; cancel a text that has reached a stop text."""
        job, prompt = cast("tuple[Job, int]", written.ticket.request.tag)
        number = prompt * job.n + written.text
        try:
            piece = job.take(number, written)
        except BaseException as error:  # a tokenizer in Rust that panics raises a BaseException
            piece = Piece(end=FAILED, error=RuntimeError(f"{type(error).__name__}: {error}"))
        if piece is not None and piece.end and not written.end:
            self.engine.cancel(written.ticket, written.text)
        return None if piece is None else (job, number, piece)


def hand_over(news: list[tuple[Job, int, Piece]]) -> None:
    """Deliver what a step wrote to its jobs. Runs on the event loop."""
    for job, number, piece in news:
        job.deliver(number, piece)


# The state of the server: the model, the threads that work for it, and the number of open answers.


class Service:
    """What all answers share: the engine, its thread and the settings. Used from the server's event loop."""

    def __init__(self, writer: Writer, model: str, config: ServeConfig, say: Say, created: int = 0) -> None:
        self.model, self.config, self.say, self.created = model, config, say, created
        self.continues = writer.continues
        self.vocab_size = writer.tokenizers.target.vocab_size
        self.texts = Texts(writer, config)
        limits = Limits(rows=config.rows, tokens=config.room, waiting=config.waiting)
        prefix = writer.recipe.data.objective == "prefix"
        context = {"max_context": writer.max_context, "drop": writer.drop} if writer.max_context else {}
        self.runner = Runner(Engine(writer.model, limits, prefix=prefix, **context))
        self.draining = False
        self.unfinished = 0
        """How many answers are open."""
        self._idle = asyncio.Event()
        self._reader = ThreadPoolExecutor(1, "glassformer-reader")
        self._builder = ThreadPoolExecutor(1, "glassformer-builder")

    @contextmanager
    def answering(self) -> Generator[None]:
        """Count an answer as open for the length of the block. Errors: `RefusalError` 503 while shutting down."""
        if self.draining:
            message = "This server is shutting down and takes no new requests. Try again later."
            raise RefusalError(503, message, code="draining")
        self.unfinished += 1
        try:
            yield
        finally:
            self.unfinished -= 1
            if not self.unfinished:
                self._idle.set()

    async def prepare(self, wanted: Wanted) -> Job:
        """Make the job for a request, tokenising its texts on the reader thread.

        Requests with a grammar go to the builder thread: grammars take longer, and no other request waits for them.
        """
        thread = self._reader if wanted.constraint is None else self._builder
        return await asyncio.get_running_loop().run_in_executor(thread, self._prepared, wanted)

    def _prepared(self, wanted: Wanted) -> Job:
        try:
            return self.texts.job(wanted)
        except Exception:
            raise
        except BaseException as error:  # a tokenizer or a grammar in Rust that panics raises a BaseException
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    async def drain(self, seconds: float) -> int:
        """Refuse new requests and wait at most `seconds` for the open answers. Returns how many are left unfinished."""
        self.draining = True
        while self.unfinished:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                break
        return self.unfinished

    def warm_up(self) -> None:
        """Compile the decoding steps before any client waits for them. Call it before `start`."""
        self.say("Compiling the steps of one text and of several ...")
        began = perf_counter()
        warm_up(self.runner.engine)
        self.say(f"Steps were compiled in {perf_counter() - began:.0f} s.")

    def start(self) -> None:
        """Start the model's thread. Call it from within the event loop."""
        self.runner.start(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop all threads."""
        self.runner.stop()
        for each in (self._reader, self._builder):
            each.shutdown(wait=False, cancel_futures=True)
