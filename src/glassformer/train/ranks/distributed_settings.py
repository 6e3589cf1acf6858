"""The settings of several processes that train one run: a frozen dataclass that checks itself. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.base.bounds import at_least, at_most
from glassformer.base.typed import check_types

DAY = 86_400


@dataclass(frozen=True)
class DistributedConfig:
    """Settings of `[distributed]`: how the processes that torchrun starts share the work; one alone needs none."""

    shard: bool = False
    """Shard weights, gradients and optimizer state across the processes (FSDP2); off: each holds all of them (DDP)."""
    timeout: int = 600
    """Seconds a process waits for the others before it considers one lost and ends the job."""

    def __post_init__(self) -> None:
        check_types(self, "distributed")
        at_least(self, "distributed", 1, "timeout")
        at_most(self, "distributed", DAY, "timeout")
