"""The state of the server: the model, the threads that work for it, and the number of open answers."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter

from glassformer.decode.engine.batching import Engine
from glassformer.decode.engine.requests import Limits
from glassformer.decode.engine.warm_up import warm_up
from glassformer.serve.guard import Say
from glassformer.serve.job import Job
from glassformer.serve.refusal import draining
from glassformer.serve.runner import Runner
from glassformer.serve.settings import ServeConfig
from glassformer.serve.texts import Texts
from glassformer.serve.wanted import Wanted
from glassformer.train.finished.writing import Writer


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
        self._answering = 0
        self._idle = asyncio.Event()
        self._reader = ThreadPoolExecutor(1, "glassformer-reader")
        self._builder = ThreadPoolExecutor(1, "glassformer-builder")

    @contextmanager
    def answering(self) -> Generator[None]:
        """Count an answer as open for the length of the block. Errors: `RefusalError` 503 while shutting down."""
        if self.draining:
            raise draining()
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                self._idle.set()

    async def prepare(self, wanted: Wanted) -> Job:
        """Make the job for a request, tokenising its texts on the reader thread.

        Requests with a grammar go to the builder thread: grammars take longer, and no other request waits for them.
        """
        thread = self._reader if wanted.wish is None else self._builder
        return await asyncio.get_running_loop().run_in_executor(thread, self._prepared, wanted)

    def _prepared(self, wanted: Wanted) -> Job:
        try:
            return self.texts.job(wanted)
        except Exception:
            raise
        except BaseException as error:  # a tokenizer or a grammar in Rust that panics raises a BaseException
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    @property
    def unfinished(self) -> int:
        """How many answers are not finished."""
        return self._answering

    async def drain(self, seconds: float) -> int:
        """Refuse new requests and wait at most `seconds` for the open answers. Returns how many are left unfinished."""
        self.draining = True
        while self._answering:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                break
        return self._answering

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
