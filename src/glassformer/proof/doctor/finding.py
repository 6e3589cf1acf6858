"""The doctor's findings, and the loop that runs a list of probes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glassformer.base.errors import CheckpointError, GlassformerError
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case
from glassformer.store.checkpoint import Loaded
from glassformer.store.folders import check, checkpoints
from glassformer.train.records import FIGURES, dated_lines, step_of

OK, WARNING, FAILURE, NOT_PROBED = "ok", "warning", "failure", "not probed"
STATES = (OK, WARNING, FAILURE, NOT_PROBED)


class Finding(NamedTuple):
    """What one probe found. A warning or failure has a cause and a remedy."""

    probe: str
    state: str
    what: str
    """The law that holds, or what is wrong."""
    evidence: str = ""
    """The figures, or the reason why nothing was probed."""
    cause: str = ""
    remedy: str = ""


class Ailment(NamedTuple):
    """One thing that can be wrong with a run."""

    what: str
    cause: str
    remedy: str


class Seen(NamedTuple):
    """The figures of a probe, and the ailment they show; None if nothing is wrong."""

    evidence: str
    ailment: Ailment | None = None
    serious: bool = True
    """Whether an ailment is a failure rather than a warning."""


@dataclass(frozen=True)
class Probe:
    """A law, and a function `look` that tests it. If one of `needs` fails, the test is meaningless and is skipped.

    `look` raises `NotTestedError` with the reason if it does not apply to a run.
    """

    name: str
    law: str
    look: Callable[[Case], Iterable[Seen] | Seen]
    needs: tuple[str, ...] = ()


def examine(case: Case, probes: Sequence[Probe]) -> Iterator[Finding]:
    """Yield the findings of the probes, in order, as they are made."""
    blocked: dict[str, str] = {}
    """Maps a probe that failed, or that needs a failed one, to the probe to mend first."""
    for probe in probes:
        root = next((blocked[name] for name in probe.needs if name in blocked), None)
        if root is not None:
            blocked[probe.name] = root
            yield Finding(probe.name, NOT_PROBED, probe.law, f"fix `{root}` first")
            continue
        for finding in looked(probe, case):
            if finding.state == FAILURE:
                blocked[probe.name] = probe.name
            yield finding


def looked(probe: Probe, case: Case) -> list[Finding]:
    """Return the findings of one probe."""
    try:
        seen = probe.look(case)
        found = [seen] if isinstance(seen, Seen) else list(seen)
    except (NotTestedError, GlassformerError) as reason:
        return [Finding(probe.name, NOT_PROBED, probe.law, str(reason))]
    return [finding_of(probe, each) for each in found]


def finding_of(probe: Probe, seen: Seen) -> Finding:
    """Return the finding for what a probe saw."""
    if seen.ailment is None:
        return Finding(probe.name, OK, probe.law, seen.evidence)
    state = FAILURE if seen.serious else WARNING
    return Finding(probe.name, state, seen.ailment.what, seen.evidence, seen.ailment.cause, seen.ailment.remedy)


# --- whether the checkpoints and the metrics files of a run are intact

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
            recorded = {step_of(line.encode()) for line in dated_lines(path, last)}
        except CheckpointError as error:
            yield Seen(str(error), UNREADABLE)
            continue
        missing = [step for step in range(1, last + 1) if step not in recorded]
        if missing:
            yield Seen(f"{path}: {len(missing):,} of {last:,} steps, from {missing[0]:,} on", GAP, serious=False)
        else:
            yield Seen(f"{path.name}: a line for each of {last:,} steps")


PROBES = (
    Probe("checkpoints", "Every checkpoint is whole.", whole),
    Probe("figures", "Every step up to the newest checkpoint has its figures.", figures),
)
