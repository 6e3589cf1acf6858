"""A pool of processes, a fixed number at a time: start them, read their output, and stop them together."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

POLL = 0.2
"""The most seconds until a request to stop is passed on."""
PATIENCE = 30.0
"""The seconds that a process has to end by itself."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""The variables that the libraries under torch and the tokenizers read when they are loaded."""


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
class Told:
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
    stopping: bool = False
    heard: bytearray = field(default_factory=bytearray)
    """The start of a line that is not complete yet."""


class Pool:
    """Runs tasks in order, `limit` at a time. `interrupt()` may be called from a signal handler."""

    def __init__(self, tasks: Sequence[Task], limit: int) -> None:
        self.waiting = deque(tasks)
        self.limit = limit
        self.children: dict[int, Child] = {}
        """By the file descriptor of their standard output."""
        self.stopping = False

    def interrupt(self) -> None:
        """Start nothing more, and let the running tasks save and stop."""
        self.stopping = True

    def run(self) -> Generator[Begun | Told | Ended]:
        """Yield events until all tasks have ended. If the generator is closed early or fails, it ends all tasks."""
        with selectors.DefaultSelector() as selector:
            try:
                while self.children or (self.waiting and not self.stopping):
                    while self.waiting and not self.stopping and len(self.children) < self.limit:
                        yield self._start(selector, self.waiting.popleft())
                    for key, _ in selector.select(POLL):
                        yield from self._hear(selector, self.children[key.fd])
                    if self.stopping:
                        self._tell_to_stop()
            finally:
                self._end_all()

    def _start(self, selector: selectors.BaseSelector, task: Task) -> Begun:
        """Start a task in its own process group, so that Ctrl-C reaches it only through this pool, and once."""
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("ab") as log:
            process = subprocess.Popen(
                task.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=task.environment,
                process_group=0,
                bufsize=0,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self.children[process.stdout.fileno()] = Child(task, process)
        selector.register(process.stdout, selectors.EVENT_READ)
        with suppress(BrokenPipeError):  # the process died at once; its exit code and its log say why
            process.stdin.write(task.message.encode() + b"\n")
        return Begun(task)

    def _hear(self, selector: selectors.BaseSelector, child: Child) -> Iterator[Told | Ended]:
        assert child.process.stdout is not None
        handle = child.process.stdout.fileno()
        data = os.read(handle, 65_536)
        child.heard += data
        *lines, rest = bytes(child.heard).split(b"\n")
        child.heard = bytearray(rest)
        for line in lines:
            yield Told(child.task, line.decode("utf-8", "replace"))
        if not data:
            selector.unregister(child.process.stdout)
            code = child.process.wait()
            del self.children[handle]
            closed(child.process)
            yield Ended(child.task, code)

    def _tell_to_stop(self) -> None:
        """Terminate each task once, as a second signal would end it without a checkpoint."""
        for child in self.children.values():
            if not child.stopping:
                child.stopping = True
                child.process.terminate()

    def _end_all(self) -> None:
        """Terminate all tasks: those told to stop before quit at once, others save first, slow ones are killed."""
        for child in self.children.values():
            child.process.terminate()
        for child in self.children.values():
            try:
                child.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            closed(child.process)
        self.children.clear()


def closed(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes to a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def with_threads(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return the environment for a process that may use at most `threads` threads."""
    return {**environment, **dict.fromkeys(THREADS, str(threads))}
