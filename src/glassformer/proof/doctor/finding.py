"""What the doctor says: a finding for each probe, and the running of a list of probes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glassformer.foundation.errors import GlassformerError
from glassformer.proof.check.table import NotTestedError
from glassformer.proof.doctor.case import Case

OK, WARNING, FAILURE, NOT_PROBED = "ok", "warning", "failure", "not probed"
STATES = (OK, WARNING, FAILURE, NOT_PROBED)


class Finding(NamedTuple):
    """What one probe found. Cause and remedy are there for a warning and a failure."""

    probe: str
    state: str
    what: str
    """What is so, in words: the law that holds, or what is wrong."""
    evidence: str = ""
    """The figures; of what was not probed, the reason."""
    cause: str = ""
    remedy: str = ""


class Ailment(NamedTuple):
    """One thing that can be wrong with a run."""

    what: str
    cause: str
    remedy: str


class Seen(NamedTuple):
    """The figures that a probe saw, and what they show to be wrong; none: nothing."""

    evidence: str
    ailment: Ailment | None = None
    serious: bool = True
    """Whether it is a failure, and not only a warning."""


@dataclass(frozen=True)
class Probe:
    """A law, and a look at whether it holds; `needs`: the look means nothing where one of these fails.

    A look that has no handle on a run raises `NotTestedError`, which says why.
    """

    name: str
    law: str
    look: Callable[[Case], Iterable[Seen] | Seen]
    needs: tuple[str, ...] = ()


def examine(case: Case, probes: Sequence[Probe]) -> Iterator[Finding]:
    """The findings of each probe in order, as they come."""
    blocked: dict[str, str] = {}
    """Probes that failed, or need one that did: which one is to be mended."""
    for probe in probes:
        root = next((blocked[name] for name in probe.needs if name in blocked), None)
        if root is not None:
            blocked[probe.name] = root
            yield Finding(probe.name, NOT_PROBED, probe.law, f"mend `{root}` first")
            continue
        for finding in looked(probe, case):
            if finding.state == FAILURE:
                blocked[probe.name] = probe.name
            yield finding


def looked(probe: Probe, case: Case) -> list[Finding]:
    """What one probe found."""
    try:
        seen = probe.look(case)
        found = [seen] if isinstance(seen, Seen) else list(seen)
    except (NotTestedError, GlassformerError) as reason:
        return [Finding(probe.name, NOT_PROBED, probe.law, str(reason))]
    return [finding_of(probe, each) for each in found]


def finding_of(probe: Probe, seen: Seen) -> Finding:
    """In the user's words."""
    if seen.ailment is None:
        return Finding(probe.name, OK, probe.law, seen.evidence)
    state = FAILURE if seen.serious else WARNING
    return Finding(probe.name, state, seen.ailment.what, seen.evidence, seen.ailment.cause, seen.ailment.remedy)
