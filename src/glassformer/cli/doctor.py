"""`glassformer doctor RUN`: what is wrong with a run, finding by finding."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from glassformer.cli.arguments import Arguments
from glassformer.cli.help import width
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.proof.check.report import wrapped
from glassformer.train.tasks import task_of

if TYPE_CHECKING:
    from glassformer.proof.doctor.finding import Finding

FAILED = 3


def run(arguments: Arguments) -> int:
    """Print each finding as soon as it is made. The exit code is 3 if any finding is a failure."""
    folder = existing_run(str(arguments.target))
    recipe = recipe_of(folder)
    from glassformer.base.runtime import choose_threads
    from glassformer.proof.doctor import probes_for
    from glassformer.proof.doctor.finding import FAILURE, STATES, examine
    from glassformer.proof.doctor.text_case import case_of

    choose_threads(1)  # the probes are too small to gain from a second thread
    as_json, found = "json" in arguments.options, list["Finding"]()
    probes = probes_for(task_of(recipe.data))
    print(f"Looking at {folder}: {len(probes)} probes.", file=sys.stderr)
    for finding in examine(case_of(folder, recipe), probes):
        found.append(finding)
        if not as_json:
            print("\n".join(lines(finding)), flush=True)
    code = FAILED if any(each.state == FAILURE for each in found) else 0
    if as_json:
        print(json.dumps({"run": str(folder), "findings": [each._asdict() for each in found], "exit_code": code}))
        return code
    counts = {state: sum(each.state == state for each in found) for state in STATES}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    failed = dict.fromkeys(each.what for each in found if each.state == FAILURE)
    print(f"{folder}: {told}{': ' if failed else ''}{'; '.join(failed)}.")
    return code


def lines(finding: Finding) -> list[str]:
    """Return one line for a finding without a cause; for a problem also its evidence, likely cause and remedy."""
    wide = max(width(), 60)
    head = f"{finding.state.upper() if finding.cause else finding.state:10}  {finding.probe}: "
    if not finding.cause:
        return wrapped(f"{head}{finding.what.removesuffix('.')}: {finding.evidence}", "", wide)
    told = (("evidence", finding.evidence), ("likely cause", finding.cause), ("remedy", finding.remedy))
    return [
        f"{head}{finding.what}",
        *(x for what, text in told for x in wrapped(f"{what}: {text}", " " * 12, max(width(), 60))),
    ]
