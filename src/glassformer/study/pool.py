"""A pool of processes, a fixed number at a time: start them, read their output, and stop them together.

A process is asked to save and to stop by the end of its input, which every platform has; SIGTERM ends it at once on
Windows. For the same reason a thread reads the output of each: there, pipes cannot be waited for together.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

POLL = 0.2
"""The most seconds until a request to stop is passed on."""
PATIENCE = 30.0
"""The seconds that a process has to end by itself."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""The variables that the libraries under torch and the tokenizers read when they are loaded."""
NEW_GROUP = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0


@dataclass(frozen=True)
class Task:
    """A process to run."""

    name: str
    command: Sequence[str]
    message: str
    """One line for its standard input, which then stays open as long as this process lives."""
    log: Path
    """The file to which its standard error is appended."""
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Begun:
    """A task was started."""

    task: Task


@dataclass(frozen=True)
class Wrote:
    """A task wrote a line on its standard output."""

    task: Task
    line: str


@dataclass(frozen=True)
class Ended:
    """A task ended with this exit code; it is negative after a signal."""

    task: Task
    code: int


@dataclass
class Child:
    """A running task."""

    task: Task
    process: subprocess.Popen[bytes]
    reader: Thread
    stopping: bool = False
    rest: bytearray = field(default_factory=bytearray)
    """The start of a line that is not complete yet."""


class Pool:
    """Runs tasks in order, `limit` at a time. `interrupt()` may be called from a signal handler."""

    def __init__(self, tasks: Sequence[Task], limit: int) -> None:
        self.waiting = deque(tasks)
        self.limit = limit
        self.children: dict[int, Child] = {}
        """By the number of the process."""
        self.heard: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        """What processes wrote, by their numbers; nothing at the end of one's output."""
        self.stopping = False

    def interrupt(self) -> None:
        """Start nothing more, and let the running tasks save and stop."""
        self.stopping = True

    def run(self) -> Generator[Begun | Wrote | Ended]:
        """Yield events until all tasks have ended. If the generator is closed early or fails, it ends all tasks."""
        try:
            while self.children or (self.waiting and not self.stopping):
                while self.waiting and not self.stopping and len(self.children) < self.limit:
                    yield self._start(self.waiting.popleft())
                with suppress(Empty):
                    number, data = self.heard.get(timeout=POLL)
                    yield from self._hear(self.children[number], data)
                if self.stopping:
                    self._tell_to_stop()
        finally:
            self._end_all()

    def _start(self, task: Task) -> Begun:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("ab") as log:
            process = subprocess.Popen(
                task.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=task.environment,
                bufsize=0,
                process_group=None if sys.platform == "win32" else 0,  # Ctrl-C reaches it through the pool, and once
                creationflags=NEW_GROUP,
            )
        assert process.stdin is not None
        reader = Thread(target=self._read, args=(process,), daemon=True, name=f"output of {task.name}")
        self.children[process.pid] = Child(task, process, reader)
        reader.start()
        with suppress(BrokenPipeError):  # the process died at once; its exit code and its log say why
            process.stdin.write(task.message.encode() + b"\n")
        return Begun(task)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        data = b"begun"
        while data:
            data = os.read(process.stdout.fileno(), 65_536)
            self.heard.put((process.pid, data))

    def _hear(self, child: Child, data: bytes) -> Iterator[Wrote | Ended]:
        child.rest += data
        *lines, rest = bytes(child.rest).split(b"\n")
        child.rest = bytearray(rest)
        for line in lines:
            yield Wrote(child.task, line.decode("utf-8", "replace"))
        if not data:
            code = child.process.wait()
            del self.children[child.process.pid]
            closed(child)
            yield Ended(child.task, code)

    def _tell_to_stop(self) -> None:
        """Ask each task to save and to stop."""
        for child in self.children.values():
            child.stopping = True
            assert child.process.stdin is not None
            child.process.stdin.close()

    def _end_all(self) -> None:
        """End all tasks: those that were to stop before quit at once, others save first, slow ones are killed."""
        for child in self.children.values():
            if child.stopping:
                child.process.terminate()
        self._tell_to_stop()
        for child in self.children.values():
            try:
                child.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            closed(child)
        self.children.clear()


def closed(child: Child) -> None:
    """Close the pipes to a process that has ended; one from which a process of its own still hears stays open."""
    child.reader.join(timeout=1)
    for pipe in (child.process.stdin, None if child.reader.is_alive() else child.process.stdout):
        if pipe is not None:
            pipe.close()


def with_threads(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return the environment for a process that may use at most `threads` threads."""
    return {**environment, **dict.fromkeys(THREADS, str(threads))}
