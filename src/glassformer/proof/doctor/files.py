"""Probes whether the checkpoints and the metrics files of a run are intact."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.base.errors import CheckpointError
from glassformer.proof.check.table import NotTestedError
from glassformer.proof.doctor.case import Case
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.store.checkpoint import Loaded
from glassformer.store.folders import check, checkpoints
from glassformer.train.record.records import FIGURES, dated_lines, step_of

DAMAGED = Ailment(
    "a checkpoint is damaged",
    "A disk error, an incomplete copy or an edit has changed it since it was saved.",
    "Restore it from a copy, or delete its folder: `glassformer resume` continues from the newest whole checkpoint.",
)
NONE = Ailment(
    "there is no checkpoint",
    "The run ended before its first one was saved.",
    "`glassformer resume` starts it again from the beginning; a smaller checkpoint.every saves sooner.",
)
UNLOADABLE = Ailment(
    "no checkpoint can be loaded",
    "Its files are whole, but their contents do not match.",
    "Restore it from a copy, or train again.",
)

UNREADABLE = Ailment(
    "a line of the figures cannot be read",
    "A disk error or an edit has changed it.",
    "Repair or delete the line; until then `glassformer resume` refuses the run.",
)
GAP = Ailment(
    "steps have no figures",
    "Lines were deleted, or the file was moved away and the run continued.",
    "The curves lack these steps; the weights are not affected. Restore the lines from a copy if there is one.",
)


def whole(case: Case) -> Iterator[Seen]:
    """Compare size and SHA-256 of every file of every checkpoint with its manifest."""
    found, intact = checkpoints(case.run), 0
    for folder in found.values():
        try:
            entries = check(folder)
        except CheckpointError as error:
            if folder.exists():  # if it is gone, a run in training has deleted it
                yield Seen(str(error), DAMAGED)
            continue
        intact += 1
        size = sum(entry.size for entry in entries.values())
        yield Seen(f"{folder.name}: {len(entries)} files, {size:,} bytes, all match the manifest")
    if not found:
        yield Seen(f"{case.run} has none, so the model is examined as initialised", NONE, serious=False)
    elif intact and not isinstance(case.loaded, Loaded):
        yield Seen(str(case.loaded), UNLOADABLE)


def figures(case: Case) -> Iterator[Seen]:
    """Check that each metrics file has a line for each step up to the newest checkpoint."""
    last = max(checkpoints(case.run), default=0)  # read first, because metrics are written before their checkpoint
    paths = [path for path in (case.run / name for name in FIGURES) if path.is_file()]
    if not paths:
        raise NotTestedError(f"{case.run} has no {FIGURES[0]}")
    for path in paths:
        try:
            told = {step_of(line.encode()) for line in dated_lines(path, last)}
        except CheckpointError as error:
            yield Seen(str(error), UNREADABLE)
            continue
        missing = [step for step in range(1, last + 1) if step not in told]
        if missing:
            yield Seen(f"{path}: {len(missing):,} of {last:,} steps, from {missing[0]:,} on", GAP, serious=False)
        else:
            yield Seen(f"{path.name}: a line for each of {last:,} steps")


PROBES = (
    Probe("checkpoints", "Every checkpoint is whole.", whole),
    Probe("figures", "Every step up to the newest checkpoint has its figures.", figures),
)
