"""The rank of this process among those that `torchrun` started, from the environment. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from glassformer.base.errors import ConfigError

LOOPBACK = "127.0.0.1"
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launched:
    """The rank of this process and the number of processes; `Launched()` is a process that runs alone."""

    number: int = 0
    """Its rank among all processes."""
    count: int = 1
    local_number: int = 0
    """Its rank on this machine, which is also the number of its accelerator."""
    local_count: int = 1
    address: str = LOOPBACK
    """The address where all processes meet."""
    port: int = 0

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which prints and writes for all."""
        return self.number == 0


def launched(environment: Mapping[str, str] | None = None) -> Launched:
    """Read what `torchrun` put into the environment (None: this process's); `Launched()` if it started nothing.

    Errors: `ConfigError` if variables are missing, or numbers contradict each other.
    """
    found = os.environ if environment is None else environment
    if "RANK" not in found and "WORLD_SIZE" not in found:
        return Launched()
    number, count = whole(found, "RANK"), whole(found, "WORLD_SIZE")
    if not number < count:
        raise ConfigError(f"RANK must be below WORLD_SIZE; got RANK={number} and WORLD_SIZE={count}. {START}")
    if count == 1:
        return Launched()
    local_count = whole(found, "LOCAL_WORLD_SIZE", count)
    local_number = whole(found, "LOCAL_RANK", number % max(local_count, 1))
    if not local_number < local_count <= count:
        raise ConfigError(
            f"LOCAL_RANK must be below LOCAL_WORLD_SIZE, and LOCAL_WORLD_SIZE at most WORLD_SIZE; got "
            f"LOCAL_RANK={local_number}, LOCAL_WORLD_SIZE={local_count} and WORLD_SIZE={count}. {START}"
        )
    return Launched(
        number, count, local_number, local_count, found.get("MASTER_ADDR") or LOOPBACK, whole(found, "MASTER_PORT")
    )


START = (
    "Start all processes with `torchrun --standalone --nproc-per-node=N -m glassformer ...`, or unset RANK and "
    "WORLD_SIZE to run a single one."
)


def whole(environment: Mapping[str, str], name: str, usual: int | None = None) -> int:
    """Read one variable as a whole number. Errors: `ConfigError`."""
    text = environment.get(name)
    if text is None and usual is not None:
        return usual
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 10):
        came = "it is not set" if text is None else f"got {text[:20]!r}"
        raise ConfigError(
            f"If RANK or WORLD_SIZE is set, {name} must be a whole number of at most 9 digits; {came}. {START}"
        )
    return int(text)
