"""The checkpoints of the run, and whether each of them is whole."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.foundation.errors import CheckpointError
from glassformer.proof.doctor.case import Case
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.store.checkpoint import Loaded
from glassformer.store.folders import check, checkpoints

DAMAGED = Ailment(
    "a checkpoint is damaged",
    "The disk, a copy that was cut short, or a hand has changed it since it was saved.",
    "Put it back from a copy, or delete its folder: `glassformer resume` goes on from the newest that is whole.",
)
NONE = Ailment(
    "there is no checkpoint",
    "The run ended before its first one was saved.",
    "`glassformer resume` begins it anew; a smaller checkpoint.every saves sooner.",
)
UNLOADABLE = Ailment(
    "no checkpoint can be loaded",
    "Its files are whole, but what they hold does not fit together.",
    "Put it back from a copy, or train again.",
)


def whole(case: Case) -> Iterator[Seen]:
    """Size and SHA-256 of every file of every checkpoint, beside its manifest."""
    found, intact = checkpoints(case.run), 0
    for folder in found.values():
        try:
            entries = check(folder)
        except CheckpointError as error:
            if folder.exists():  # else a run in training has deleted it meanwhile
                yield Seen(str(error), DAMAGED)
            continue
        intact += 1
        size = sum(entry.size for entry in entries.values())
        yield Seen(f"{folder.name}: {len(entries)} files, {size:,} bytes, all as their manifest says")
    if not found:
        yield Seen(f"{case.run} has none, so its model is looked at as it begins", NONE, serious=False)
    elif intact and not isinstance(case.loaded, Loaded):
        yield Seen(str(case.loaded), UNLOADABLE)


PROBES = (Probe("checkpoints", "Every checkpoint is whole.", whole),)
