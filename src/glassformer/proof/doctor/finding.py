"""The doctor's findings, and the loop that runs a list of probes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glassformer.base.errors import GlassformerError
from glassformer.proof.check.table import NotTestedError
from glassformer.proof.doctor.case import Case

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
