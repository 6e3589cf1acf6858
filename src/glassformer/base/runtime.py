"""Choosing the device and the number of threads, with the reason as text; seeding. Importing this changes nothing."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch

from glassformer.base.busy import share_of_threads, threads_to_use
from glassformer.base.errors import ConfigError
from glassformer.base.processors import THREADS, free_processors, threads_asked

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


def choose_threads(asked: int = 0, processes: int = 1) -> tuple[int, str]:
    """Set torch's number of threads; return it and the reason.

    It is `asked` if above 0; else OMP_NUM_THREADS from the environment, as in any program that uses OpenMP; else one
    per processor that this process may use, up to 8, and fewer where other programs use them now. Several `processes`
    on this machine share its processors, and none takes more than its share. Errors: those of `threads_asked`.
    """
    if processes > 1:
        return shared_threads(asked, processes)
    allowed, wished = free_processors(), threads_asked()
    most = asked or wished or min(allowed, USUAL_THREADS)
    torch.set_num_threads(most)
    threads = most if asked or wished or most == 1 else threads_to_use(most, share_of_threads(most))
    torch.set_num_threads(threads)
    processors = f"{allowed} {'processor' if allowed == 1 else 'processors'}"
    few = f", although this process may use only {processors}" if threads > allowed else ""
    few = ", as other programs use them" if threads < most else few
    whose = "as asked" if asked else f"as {THREADS} says" if wished else f"of {processors}"
    return threads, f"{threads} {'thread' if threads == 1 else 'threads'}, {whose}{few}"


class Threads:
    """A number of threads that is chosen once, for work in several parts; torch has it only during each of them."""

    def __init__(self, asked: int = 0) -> None:
        """`asked`: see `choose_threads`."""
        with threads_kept():
            self.number, self.reason = choose_threads(asked)

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


def shared_threads(asked: int, processes: int) -> tuple[int, str]:
    """As `choose_threads`, for one of several processes. Ignores OMP_NUM_THREADS=1, torchrun's default."""
    allowed, wished = free_processors(), threads_asked()
    wished = 0 if wished == 1 else wished
    threads = min(asked or wished or USUAL_THREADS, max(allowed // processes, 1))
    torch.set_num_threads(threads)
    fewer = f" instead of {asked or wished}" if (asked or wished) > threads else ""
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
