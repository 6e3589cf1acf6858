"""The one thread that runs the model: it steps the engine while there is work and passes new text to the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import cast

from glassformer.decode.engine.batching import Engine
from glassformer.decode.engine.requests import FAILED, Written
from glassformer.serve.job import Job, Piece


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
            news = [each for written in self._stepped() if (each := self._told(written)) is not None]
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

    def _told(self, written: Written) -> tuple[Job, int, Piece] | None:
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
