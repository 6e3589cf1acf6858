"""The settings of several processes that train one run: a frozen dataclass that checks itself. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.base.settings import check, setting

DAY = 86_400


@dataclass(frozen=True)
class DistributedConfig:
    """Settings of `[distributed]`: how the processes that torchrun starts share the work; one alone needs none."""

    shard: bool = False
    """Shard weights, gradients and optimizer state across the processes (FSDP2); off: each holds all of them (DDP)."""
    timeout: int = setting(600, 1, DAY)
    """Seconds a process waits for the others before it considers one lost and ends the job."""

    def __post_init__(self) -> None:
        check(self, "distributed")
