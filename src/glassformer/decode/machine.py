"""Devices that record what they are asked to compute, and do all of it again when asked once.

A step of decoding is hundreds of small operations, and asking for one takes the host longer than an accelerator needs
for it. A CUDA graph asks for all of them at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol, runtime_checkable

import torch

from glassformer.base.shapes import Float, Int, Tensor

Work = Callable[[], None]
_ONE_AT_A_TIME = Lock()
"""CUDA records one graph at a time in a process."""


@runtime_checkable
class Machine(Protocol):
    """What decoding asks of a device."""

    def record(self, work: Work) -> Work:
        """Records the operations of `work` on the device, and returns what does them on the same tensors.

        Nothing in a tensor changes meanwhile, but whatever else `work` changes on the host does.
        """
        ...

    def give(self, numbers: Sequence[float], to: Float[Tensor, " B"]) -> None:
        """Puts numbers into a tensor once what was asked for before is done. Nobody waits."""
        ...

    def sent(self, ids: Int[Tensor, " B"]) -> Callable[[], list[int]]:
        """Begins to send numbers to the host, as they will be then; returns what waits for them."""
        ...


class Cuda:
    """A CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._refuses = False

    def record(self, work: Work) -> Work:
        """As `Machine.record`. What CUDA refuses to record is asked for one by one from then on; a warning says so."""
        if self._refuses:
            return work
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        # A failure leaves the stream of the record as the current one; the outer `with` sets it back.
        with _ONE_AT_A_TIME, torch.cuda.stream(torch.cuda.current_stream(self.device)):
            try:
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    work()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._refuses = True
                first = str(error.__context__ or error).partition("\n")[0]
                warnings.warn(
                    "A step of decoding cannot be a CUDA graph here, so its operations are asked for one by one: "
                    f"{first}",
                    stacklevel=2,
                )
                return work
        return graph.replay

    def give(self, numbers: Sequence[float], to: Float[Tensor, " B"]) -> None:
        """As `Machine.give`, from memory of its own each time, which stays until it was read."""
        to.copy_(torch.tensor(numbers, dtype=to.dtype, pin_memory=True), non_blocking=True)

    def sent(self, ids: Int[Tensor, " B"]) -> Callable[[], list[int]]:
        """As `Machine.sent`."""
        here = torch.empty(ids.shape, dtype=ids.dtype, pin_memory=True)
        here.copy_(ids, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(self.device))

        def received() -> list[int]:
            arrived.synchronize()
            return here.tolist()

        return received


MACHINES: dict[str, Callable[[torch.device], Machine]] = {"cuda": Cuda}
"""By the type of a device. A CPU needs none: there our C++ takes a whole step in one call."""
