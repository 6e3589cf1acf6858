"""Processes of a run, forked, one of which a signal strikes at a moment: a count of calls, so that it comes again.

torchrun is played by a process that keeps the place where the others meet. Fork from a process without threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch._dynamo  # this and more is read once here, not in each fork
import torch.distributed as dist
import torch.distributed.checkpoint.hf_storage
import torch.distributed.fsdp
import torch.distributed.tensor  # noqa: F401
from torch.distributed import TCPStore

from distributed.processes import environment, free_port
from glassformer.base.launched import LOOPBACK
from glassformer.cli.main import main
from glassformer.fast.native import CPP, has_cpp
from glassformer.train.recipe import Recipe, dumps_recipe
from glassformer.train.run import session
from glassformer.train.run.running import Session
from store.faults import trapped
from train.examples import recipe

COUNT = 2
STEPS, EVERY = 20, 5
TIMEOUT = 60
EXCHANGES = ("all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor")
BEGIN = {"run": session.start.__code__, "training": Session._train.__code__}
"""From which function on calls are counted."""


class Moment(NamedTuple):
    """When a process is struck: at the call number `at` of any function, to the disk, or to the other processes."""

    kind: str
    at: int
    how: str
    """Of the disk "before", "after" or "half" way through; of an exchange "before" it or "within"."""
    victim: int
    shard: bool


class Ended(NamedTuple):
    """How a process ended: exit code (minus a signal's number), what it wrote, seconds after the first, its figures."""

    code: int
    text: str
    late: float
    counts: dict[str, int]


class Watch:
    """Counts the calls of this process from the function `since` on, and strikes at the moment, if it is the victim."""

    def __init__(self, moment: Moment | None, since: CodeType, strike: int) -> None:
        self.moment, self.since, self.strike = moment, since, strike
        self.counts = {"call": 0, "exchange": 0, "disk": 0, "step": 0}
        self.armed = False

    def is_now(self, kind: str) -> bool:
        """One call more of a kind; whether the moment has come."""
        self.counts[kind] += self.armed
        return self.moment is not None and self.armed and self.moment[:2] == (kind, self.counts[kind])

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """What Python tells of each call."""
        if frame.f_code is self.since:
            self.armed = True
        if frame.f_code is Session._train.__code__:
            self.counts["step"] = frame.f_locals["self"].step
        if event == "call" and self.is_now("call"):
            os.kill(os.getpid(), self.strike)

    def exchange(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call to the other processes; struck within it, this one has sent its part and waits for theirs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self.is_now("exchange"):
                return call(*args, **kwargs)
            if self.moment.how == "before":
                os.kill(os.getpid(), self.strike)
                return call(*args, **kwargs)
            work = call(*args, **kwargs | {"async_op": True})
            os.kill(os.getpid(), self.strike)
            return work if kwargs.get("async_op") else work.wait()

        return run

    @contextmanager
    def watching(self) -> Iterator[None]:
        """All that for the length of the `with`."""
        on_disk = self.moment if self.moment and self.moment.kind == "disk" else None
        with ExitStack() as stack:
            trap = stack.enter_context(trapped(on_disk.at, on_disk.how, kills=True) if on_disk else trapped())
            for name in EXCHANGES:
                stack.enter_context(patch.object(dist, name, self.exchange(getattr(dist, name))))
            sys.setprofile(self.profile)
            try:
                yield
            finally:
                sys.setprofile(None)
                self.counts["disk"] = len(trap.log)


def short(shard: bool) -> Recipe:
    """A run with a checkpoint every five steps."""
    return recipe(
        training__steps=STEPS,
        training__evaluate_every=10,
        checkpoint__every=EVERY,
        checkpoint__keep=3,
        checkpoint__background=True,
        distributed__shard=shard,
        distributed__timeout=TIMEOUT,
    )


def forked(body: Callable[[], int]) -> int:
    """A process that does `body` and ends with its exit code. Returns its id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        code = body()
    finally:
        os._exit(code)


def member(words: list[str], number: int, port: int, place: Path, watch: Watch) -> int:
    """One of the processes: the command line, as the user types it."""
    os.environ.update(environment(number, COUNT, port), TORCHELASTIC_USE_AGENT_STORE="True")
    with (place / f"{number}.txt").open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        with watch.watching():
            code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    (place / f"{number}.json").write_text(json.dumps(watch.counts), "utf-8")
    return code


def keeper(port: int) -> int:
    """The place where the processes meet, until it is killed."""
    store = TCPStore(LOOPBACK, port, COUNT, True, timedelta(seconds=TIMEOUT), wait_for_workers=False)
    signal.pause()
    del store
    return 0


def together(words: list[str], place: Path, moment: Moment | None, *, since: str, strike: int) -> list[Ended]:
    """`glassformer WORDS` in as many processes as there are; what they write goes to `place`."""
    place.mkdir(parents=True, exist_ok=True)
    port = free_port()
    meeting = forked(lambda: keeper(port))
    running: dict[int, int] = {}
    for number in range(COUNT):
        watch = Watch(moment if moment and moment.victim == number else None, BEGIN[since], strike)
        running[forked(lambda n=number, w=watch: member(words, n, port, place, w))] = number
    codes: dict[int, int] = {}
    ends: dict[int, float] = {}
    while len(codes) < COUNT:
        child, status = os.waitpid(-1, 0)
        if child in running:
            codes[running[child]], ends[running[child]] = os.waitstatus_to_exitcode(status), time.monotonic()
    os.kill(meeting, signal.SIGKILL)
    os.waitpid(meeting, 0)
    return [Ended(codes[n], output_of(place, n), ends[n] - min(ends.values()), counts(place, n)) for n in range(COUNT)]


def output_of(place: Path, number: int) -> str:
    """What a process wrote."""
    return (place / f"{number}.txt").read_text("utf-8")


def counts(place: Path, number: int) -> dict[str, int]:
    """What a process counted; one that was killed could not tell."""
    path = place / f"{number}.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.unlink(missing_ok=True)
    return found


def whole(folder: Path, shard: bool, since: str) -> tuple[Path, list[dict[str, int]]]:
    """A run that nothing strikes, and what each of its processes counted."""
    file, run = folder / f"{'cut' if shard else 'whole'}.toml", folder / ("cut" if shard else "whole")
    file.write_text(dumps_recipe(short(shard)), "utf-8")
    for cpp in CPP.parent.glob("*.cpp"):
        has_cpp(cpp)  # forks then have no calls to the disk for its sources
    ends = together(["train", str(file), "--out", str(run)], folder / "said", None, since=since, strike=0)
    assert [each.code for each in ends] == [0] * COUNT, "\n".join(each.text for each in ends)
    return run, [each.counts for each in ends]


def moments(number: int, limits: dict[bool, list[dict[str, int]]], kinds: dict[str, tuple[str, ...]]) -> list[Moment]:
    """So many, of all kinds, victims and ways to share a model in turn, each sort spread over the whole run.

    Threads and other processes take part in the counts, so the last twentieth is left out; and of the calls to the disk
    at least a dozen, as the processes share those of a save otherwise each time (the second makes 27 to 39 of 360).
    """
    sorts = [
        (kind, victim, shard)
        for shard in limits
        for victim in range(COUNT)
        for kind in kinds
        if limits[shard][victim][kind] >= (20 if kind == "disk" else 10)
    ]
    found: list[Moment] = []
    for n in range(number):
        kind, victim, shard = sorts[n % len(sorts)]
        limit = limits[shard][victim][kind]
        at = 1 + int((limit - max(0.05 * limit, 12 if kind == "disk" else 0)) * (n + 0.5) / number)
        found.append(Moment(kind, at, kinds[kind][n // len(sorts) % len(kinds[kind])], victim, shard))
    return found
