"""Choosing the device and the number of threads, with the reason as text; seeding. Importing this changes nothing."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from typing import TypeVar

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.processors import PATIENCE, SPINS, THREADS, free_processors, threads_asked, waits_as_asked

Step = TypeVar("Step")
USUAL_THREADS = 8
"""With more threads, small models spend their time handing out work."""


def choose_device(name: str = "auto") -> tuple[torch.device, str]:
    """Choose a device; return it and the reason. "auto": an accelerator if there is one, else the CPU.

    Errors: `ConfigError` for a device that torch cannot reach.
    """
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is None:
            return torch.device("cpu"), "cpu, as there is no accelerator"
        return accelerator, f"{accelerator.type}, the accelerator of this machine"
    try:
        device = torch.device(name)
        reached = not torch.empty(0, device=device).is_meta  # tensors on "meta" hold no numbers
    except (RuntimeError, AssertionError, ImportError, AttributeError):
        device, reached = None, False
    if device is None or not reached:
        raise ConfigError(f"The device must be one that torch can use on this machine; got {name!r}. Try auto or cpu.")
    return device, f"{device}, as asked"


@contextmanager
def threads_kept() -> Generator[None]:
    """Whatever `choose_threads` does inside the `with`, torch has its number of threads back afterwards."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_threads(requested: int = 0, processes: int = 1) -> tuple[int, str]:
    """Set torch's number of threads; return it and the reason.

    It is `requested` if above 0; else OMP_NUM_THREADS from the environment, as in any program that uses OpenMP; else
    one per processor that this process may use, up to 8, and fewer where other programs use them now. Several
    `processes` on this machine share its processors, and none takes more than its share. Errors: those of
    `threads_asked`.
    """
    if processes > 1:
        return shared_threads(requested, processes)
    allowed, in_environment = free_processors(), threads_asked()
    most = requested or in_environment or min(allowed, USUAL_THREADS)
    torch.set_num_threads(most)
    threads = most if requested or in_environment or most == 1 else threads_to_use(most, share_of_threads(most))
    torch.set_num_threads(threads)
    processors = f"{allowed} {'processor' if allowed == 1 else 'processors'}"
    few = f", although this process may use only {processors}" if threads > allowed else ""
    few = ", as other programs use them" if threads < most else few
    whose = "as the settings say" if requested else f"as {THREADS} says" if in_environment else f"of {processors}"
    return threads, f"{threads} {'thread' if threads == 1 else 'threads'}, {whose}{few}"


class Threads:
    """A number of threads that is chosen once, for work in several parts; torch has it only during each of them."""

    def __init__(self, requested: int = 0) -> None:
        """`requested`: see `choose_threads`."""
        with threads_kept():
            self.number, self.reason = choose_threads(requested)

    def through(self, steps: Generator[Step]) -> Iterator[Step]:
        """Yield the steps of a generator, each made with these threads; between them torch has the caller's own."""
        try:
            while True:
                with threads_kept():
                    torch.set_num_threads(self.number)
                    try:
                        step = next(steps)
                    except StopIteration:
                        return
                yield step
        finally:
            steps.close()


def shared_threads(requested: int, processes: int) -> tuple[int, str]:
    """As `choose_threads`, for one of several processes. Ignores OMP_NUM_THREADS=1, torchrun's default."""
    allowed, in_environment = free_processors(), threads_asked()
    in_environment = 0 if in_environment == 1 else in_environment
    threads = min(requested or in_environment or USUAL_THREADS, max(allowed // processes, 1))
    torch.set_num_threads(threads)
    fewer = f" instead of {requested or in_environment}" if (requested or in_environment) > threads else ""
    return threads, f"{threads} a process{fewer}, as {processes} share {allowed} processors"


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers in hardware; otherwise they are emulated, which is slow."""
    if device.type == "cpu":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return False


def autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype to which autocast narrows on this type of device; None if it is off."""
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None  # for "meta" and devices that torch has no name for it would raise
    return torch.get_autocast_dtype(device)


def without_autocast(device: str) -> AbstractContextManager[object]:
    """The context in which nothing is narrowed."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


@contextmanager
def without_fused_layers() -> Generator[None]:
    """Inside the `with`, torch's own transformer layers call each of their parts, so that hooks on these are called.

    In evaluation mode a fused path leaves the parts out, or fails where some have hooks and a row has padding.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def seeded(*parts: int, device: torch.device) -> Generator[None]:
    """Within the `with`, make torch's random numbers a function of `parts`; afterwards restore CPU's and CUDA's."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream_of(*parts))
        yield


def stream_of(*parts: int) -> int:
    """The random seed that belongs to `parts` and to no other parts."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


# Other programs on the same processors: how many threads to start with, and a note once a run's threads wait.

LOG = logging.getLogger(__name__)
ENOUGH = 0.75
"""Of the time: threads that get so much of their processors are left as they are."""
LOOK, LOOKS = 0.04, 3
"""Seconds that each look at the start takes, and how many are taken where the first finds little: others may pause."""
STEPS, SECONDS = 8, 3.0
"""A look during training takes at least so many steps and so many seconds."""


def threads_to_use(threads: int, share: float) -> int:
    """How many of `threads` to use, each of which got this share of the time: as many as there are processors free."""
    return threads if share >= ENOUGH else max(1, int(threads * share))


def share_of_threads(threads: int) -> float:
    """The share of the time in which each of torch's `threads` runs: 1 if no other program is in the way.

    Measured by keeping them at work for 40 ms, up to three times.
    """
    x = torch.linspace(0, 1, threads << 17)
    y = x.sin()  # starts the threads
    best = 0.0
    for _ in range(LOOKS):
        began, used = time.perf_counter(), time.process_time()
        while (passed := time.perf_counter() - began) < LOOK:
            torch.sin(x, out=y)
        best = max(best, (time.process_time() - used) / passed / threads)
        if best >= ENOUGH:
            break
    return best


class Crowding:
    """Notices during training that other programs keep this thread from its processor, and says so, once.

    Each step's time is compared with what this thread computed of it. Waiting for other threads counts as computing
    only while it is short, so the share falls as well where another thread gets no processor.
    """

    def __init__(self, threads: int) -> None:
        """`threads`: torch's. With one there is nothing to wait for, and nothing is said."""
        self.threads = threads
        self.steps: list[tuple[float, float]] = []

    def after_step(self, seconds: float, computed: float) -> None:
        """Take in the seconds of a step and how many of them this thread computed; log the note if it is due."""
        if self.threads == 1:
            return
        self.steps.append((seconds, computed))
        if len(self.steps) < STEPS or sum(each for each, _ in self.steps) < SECONDS:
            return
        # of the steps and not of the seconds: one that waits long, for a compiler perhaps, tells nothing of the others
        share = median(done / passed for passed, done in self.steps)
        if share < ENOUGH:
            LOG.warning(self.note(share))
            self.threads = 1
        self.steps.clear()

    def note(self, share: float) -> str:
        """What is wrong, and what to do."""
        patience = "" if waits_as_asked(os.environ) else f", or {SPINS}={PATIENCE} in the environment"
        return (
            f"slow: other programs use the processors, so training runs {share:.0%} of the time and its {self.threads} "
            "threads wait for each other. One thread is faster then: training.threads 1 (to resume: --allow-change "
            f"training.threads --training.threads 1), in Python torch.set_num_threads(1){patience}."
        )
