"""The events of training, as values that a caller may show, keep or ignore."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Metric = float | int | str
"""One metric of an evaluation; text for the name of a measure, such as the sacrebleu signature."""


@dataclass(frozen=True)
class Started:
    """The first event: `step` of `steps` are done (0: a new run); `notes` are lines for the user.

    Notes say what was chosen and why: device, precision, threads, parameters, sizes of the data, share of padding.
    """

    step: int
    steps: int
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """One step is done and the weights are updated. `loss` is per target token, in nats."""

    step: int  # counted from 1
    steps: int
    epoch: int
    loss: float
    learning_rate: float
    grad_norm: float  # before clipping
    tokens_per_second: float  # real tokens, source and target
    pad_share: float  # of this batch, 0 to 1
    seconds: float  # since training began in this process


@dataclass(frozen=True)
class Overflowed:
    """The update of this step was skipped because its gradient overflowed float16; comes before its `Progress`."""

    step: int
    scale: float
    """The factor of the next loss."""
    so_far: int
    """The number of such updates in the whole run."""


class Sample(NamedTuple):
    """One sample of an evaluation, as text."""

    source: str
    target: str
    output: str


@dataclass(frozen=True)
class Evaluated:
    """The dev split was scored after `step` steps. Comes before the `Saved` of the same step."""

    step: int
    metrics: dict[str, Metric]
    samples: list[Sample] = field(default_factory=list)
    is_best: bool = False
    decided_by: str = ""
    """Which metric tells evaluations apart, where training.metric has been the same at each; see `deciding`."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint is complete on disk. Written in the background, it may be reported some steps after its own.

    `notes`: lines for the user, for example about an old checkpoint that could not be deleted.
    """

    step: int
    path: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsaved:
    """A checkpoint could not be written; training continues, and the next one is tried when it is due.

    Reported once for all that fail in a row. `reason` is a whole message: the system's error, bytes needed and free.
    """

    step: int
    reason: str


@dataclass(frozen=True)
class Skipped:
    """The update of this step was skipped because loss or gradient was not finite; comes before its `Progress`.

    It is number `number` of the `allowed` ones of the run; `reason` names figures, module and batch.
    """

    step: int
    number: int
    allowed: int
    reason: str


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step: "interrupted" (the last event) or "patience" (`Finished` follows)."""

    step: int
    reason: str


@dataclass(frozen=True)
class Finished:
    """The last event of a run that needs no more training. `best_step` is None if nothing was evaluated."""

    step: int
    seconds: float
    best_step: int | None = None
    best_metrics: dict[str, Metric] = field(default_factory=dict)
    decided_by: str = ""
    """As in `Evaluated`."""


Event = Started | Progress | Skipped | Overflowed | Evaluated | Saved | Unsaved | Stopped | Finished
