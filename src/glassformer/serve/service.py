"""A run that is served: its model, the thread that runs it, and how many are being answered."""

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
    """What the answers to all clients share. Everything but `prepare` belongs to the server's loop."""

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
        """While somebody is answered. Errors: `RefusalError` 503 once the server ends."""
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
        """The job for what a client wants; texts are cut into tokens on a thread of their own.

        Those with a grammar on another: it takes longer to build, and nobody else waits for it.
        """
        thread = self._reader if wanted.wish is None else self._builder
        return await asyncio.get_running_loop().run_in_executor(thread, self.texts.job, wanted)

    async def drain(self, seconds: float) -> int:
        """Takes nothing new and waits until all are answered, at most so long. Returns how many are not."""
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
        """Has steps compiled before anybody waits for them; before `start`."""
        self.say("Compiling the steps of one text and of several ...")
        began = perf_counter()
        warm_up(self.runner.engine)
        self.say(f"Steps were compiled in {perf_counter() - began:.0f} s.")

    def start(self) -> None:
        """Begins to write, from within the loop."""
        self.runner.start(asyncio.get_running_loop())

    def stop(self) -> None:
        """Ends all threads."""
        self.runner.stop()
        for each in (self._reader, self._builder):
            each.shutdown(wait=False, cancel_futures=True)
