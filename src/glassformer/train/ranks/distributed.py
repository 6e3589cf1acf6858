"""Several processes that train one run, as `torchrun` starts them: who they are, and how they communicate.

The first process writes and speaks for all. They agree on each decision (to stop, to save, which is best), so that all
do the same after the same step. Numbers that they agree on are sent over gloo, even if gradients are sent by NCCL.
"""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from glassformer.base.errors import ConfigError, ProcessError
from glassformer.base.launched import LOOPBACK, Launched
from glassformer.base.runtime import choose_device

GRACE = 10.0
"""Seconds within which a living process that has noticed an error reports it."""
LONGEST = 300
"""Characters of an error message that the other processes get."""
LOST = ("Connection closed by peer", "Connection reset", "Broken pipe", "imed out", "imeout", "NCCL", "gloo")
"""Parts of torch's messages if another process is gone or silent: such an error is not this process's own."""
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""The variables that tell torch which network to use."""


class Ranks:
    """The processes of a run, seen from one of them. `ALONE` is the only process of its run and asks nobody."""

    def __init__(self, place: Launched, store: Store | None = None) -> None:
        self.group: dist.ProcessGroup | None = None
        """The process group for their communication; None is that of the whole job."""
        self.number = place.number
        """The number of this process, from 0."""
        self.count = place.count
        self.local_number, self.local_count = place.local_number, place.local_count
        self.address = place.address
        self.store = store

    def aside(self, timeout: int) -> Ranks:
        """The same processes with their own process group, for a thread that runs beside training.

        All call it together, once. `timeout` is in seconds.
        """
        other = copy(self)
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        other.group = cast(dist.ProcessGroup, group)
        return other

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.number == 0

    def all_sum(self, value: float | int) -> float:
        """The sum over the processes, in float64; the same on each of them."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def largest(self, value: float | int) -> float:
        """The largest of the processes' values."""
        return self._reduced(value, dist.ReduceOp.MAX)

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true in at least one process."""
        return self.largest(float(flag)) > 0

    def of_first(self, value: float | int) -> float:
        """The first process's value."""
        return self.all_sum(value if self.first else 0.0)

    def text_of_first(self, text: str) -> str:
        """The first process's text."""
        if self.count == 1:
            return text
        length = int(self.of_first(len(text.encode())))
        sent = torch.zeros(length, dtype=torch.uint8)
        if self.first:
            sent = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        dist.broadcast(sent, src=0, group=self.group)
        return bytes(sent.tolist()).decode()

    def gathered(self, values: Sequence[float | int]) -> list[list[float]]:
        """Each process's numbers as float64, in the order of the processes; the counts may differ."""
        if self.count == 1:
            return [[float(each) for each in values]]
        longest = int(self.largest(len(values)))
        own = torch.tensor([len(values), *values, *[0] * (longest - len(values))], dtype=torch.float64)
        parts = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(parts, own, group=self.group)
        lists = [part.tolist() for part in parts]
        return [part[1 : 1 + int(part[0])] for part in lists]

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        self.all_sum(0.0)

    def refuse_difference(self, what: str, value: int) -> None:
        """Refuse to train together if `value` differs between processes. Errors: `ConfigError` in each of them."""
        of_first = self.of_first(float(value))
        wrong = self.largest(self.number if value != of_first else -1)
        if wrong >= 0:
            raise ConfigError(
                f"The processes of a run must have the same settings and see the same files, but {what} of process "
                f"{int(wrong)} differs from that of process 0. Give all of them the same command, data and run folder."
            )

    def _reduced(self, value: float | int, operation: dist.ReduceOp.RedOpType) -> float:
        if self.count == 1:
            return float(value)
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, operation, group=self.group)
        return tensor.item()


ALONE = Ranks(Launched())


@contextmanager
def joined(place: Launched, device: str, timeout: int, run: Path | None = None) -> Generator[Ranks]:
    """Join the other processes for the length of the `with`; a single process joins nobody.

    `timeout` is in seconds; `run` is what they train. Errors: `ProcessError` naming the process that did not come,
    failed or fell silent; `ConfigError` for a device on which processes cannot work together.
    """
    if place.count == 1:
        yield ALONE
        return
    backend = backend_of(device)
    with own_network(place):
        store = met(place, timeout)
        dist.init_process_group(
            backend,
            store=PrefixStore("group", store),
            rank=place.number,
            world_size=place.count,
            timeout=timedelta(seconds=timeout),
        )
        ranks = Ranks(place, store)
        try:
            yield ranks
            ranks.barrier()
        except Exception as error:
            reason = explained(ranks, error, timeout)
            if reason is None:
                raise
            again = f"glassformer resume {shlex.quote(str(run or 'RUN'))}"
            raise ProcessError(
                f"{reason} What was saved is intact: run `{again}` with the same number of processes or another."
            ) from error
        dist.destroy_process_group()


def met(place: Launched, timeout: int) -> Store:
    """The store in which the processes leave messages for each other, once all of them are there.

    torchrun keeps one itself, which outlives each process; otherwise the first process keeps it.
    """
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    keeper = place.first and not agents
    patience = timedelta(seconds=timeout)
    try:
        store = TCPStore(place.address, place.port, place.count, keeper, patience, wait_for_workers=False)
        store = PrefixStore(f"glassformer/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        store.set(f"here/{place.number}", socket.gethostname())
        wanted = [f"here/{number}" for number in range(place.count)]
        try:
            store.wait(wanted, patience)
        except dist.DistError:
            missing = [number for number, key in enumerate(wanted) if not store.check([key])]
            raise ProcessError(
                f"{named(missing, place.count)} did not connect to {place.address}:{place.port} within {timeout} s "
                "(distributed.timeout). Look at its output for the reason, or start all processes with torchrun."
            ) from None
    except RuntimeError as error:
        raise ProcessError(
            f"The processes of a run connect to {place.address}:{place.port} (MASTER_ADDR, MASTER_PORT), where process "
            f"{place.number} got no answer within {timeout} s: {first_line(error)}. Start all processes with torchrun."
        ) from error
    return store


def explained(ranks: Ranks, error: Exception, timeout: int) -> str | None:
    """Why this process cannot continue because of another; None for an error of its own, which others get.

    Living processes that noticed the error leave a message in the store; a process that fell silent leaves none.
    """
    assert ranks.store is not None
    if not (isinstance(error, RuntimeError) and any(sign in str(error) for sign in LOST)):
        with suppress(RuntimeError):
            ranks.store.set(f"failed/{ranks.number}", f"{type(error).__name__}: {first_line(error)}"[:LONGEST])
        return None
    with suppress(RuntimeError):
        ranks.store.set(f"lives/{ranks.number}", "")
        failed, silent = word_of_others(ranks)
        reasons = [f"{named([number], ranks.count)} failed ({why})" for number, why in failed.items()]
        if silent:
            reasons.append(f"{named(silent, ranks.count)} was killed or no longer answers")
        if reasons:
            return f"{'; '.join(reasons)}; the job has ended."
        return f"The processes lost their connection although all of them are running ({first_line(error)})."
    return f"The address where the processes meet is gone: process 0, or torchrun itself, ended within {timeout} s."


def word_of_others(ranks: Ranks) -> tuple[dict[int, str], list[int]]:
    """What the failed processes reported, and which processes said nothing within `GRACE`."""
    assert ranks.store is not None
    waiting = [number for number in range(ranks.count) if number != ranks.number]
    failed: dict[int, str] = {}
    until = time.monotonic() + GRACE
    while waiting and time.monotonic() < until:
        for number in list(waiting):
            if ranks.store.check([f"failed/{number}"]):
                failed[number] = ranks.store.get(f"failed/{number}").decode("utf-8", "replace")
                waiting.remove(number)
            elif ranks.store.check([f"lives/{number}"]):
                waiting.remove(number)
        time.sleep(0.05)
    return failed, waiting


def named(numbers: list[int], count: int) -> str:
    """A text that names processes by their numbers."""
    shown = ", ".join(map(str, numbers[:8])) + (" ..." if len(numbers) > 8 else "")
    return f"Process {shown} of {count}"


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).splitlines() or [""])[0][:LONGEST]


def backend_of(device: str) -> str:
    """How tensors are sent: by gloo, those on CUDA by NCCL. Errors: `ConfigError` for another accelerator."""
    kind = choose_device(device)[0].type
    if kind not in ("cpu", "cuda"):
        raise ConfigError(
            f"Several processes can train only on processors or on CUDA; got training.device={device!r}, which is "
            f"{kind} here. Try --training.device cpu, or one process."
        )
    return "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"


def device_of(name: str, ranks: Ranks) -> tuple[torch.device, str]:
    """Like `choose_device`, but each of several processes gets the CUDA device of its number on its machine."""
    device, why = choose_device(name)
    if ranks.count == 1 or device.type != "cuda":
        return device, why
    if device.index is not None:  # pyright: ignore[reportUnnecessaryComparison] - of plain "cuda" it is none
        raise ConfigError(
            f"Each of several processes needs its own device; got training.device={name!r} for all of them. Try "
            "--training.device cuda."
        )
    device, why = choose_device(f"cuda:{ranks.local_number}")
    torch.cuda.set_device(device)
    return device, why


@contextmanager
def own_network(place: Launched) -> Generator[None]:
    """Let processes of one machine use its loopback only, unless the environment names a network."""
    ours: list[str] = []
    if place.local_count == place.count and "lo" in {name for _, name in socket.if_nameindex()}:
        ours = [name for name in INTERFACES if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "lo"))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def notes_on(ranks: Ranks, shard: bool) -> list[str]:
    """Lines for the user: how many processes, what each holds, and a warning if strangers could reach them."""
    if ranks.count == 1:
        return []
    whose = "a part of weights and optimizer (FSDP2)" if shard else "the whole model (DDP)"
    lines = [f"processes: {ranks.count}, {ranks.local_count} of them on this machine; each has {whose}"]
    if ranks.local_count < ranks.count and ranks.address != LOOPBACK:
        lines.append(
            f"network: the processes connect to {ranks.address} without encryption, and anyone who reaches that port "
            "can join the run; use a network that you trust"
        )
    return lines
