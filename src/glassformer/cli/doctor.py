"""`glassformer doctor RUN`: what is wrong with a run, finding by finding; and `verify`: the laws on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.base.registry import one_of
from glassformer.cli.arguments import Arguments
from glassformer.cli.help import width
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.proof.check.property import wrapped
from glassformer.train.tasks import task_of

if TYPE_CHECKING:
    from glassformer.proof.doctor.finding import Finding
    from glassformer.proof.laws.law import Verdict


# `glassformer doctor RUN`: what is wrong with a run, finding by finding.

FAILED = 3


def run(arguments: Arguments) -> int:
    """Print each finding as soon as it is made. The exit code is 3 if any finding is a failure."""
    folder = existing_run(str(arguments.target))
    recipe = recipe_of(folder)
    from glassformer.base.runtime import choose_threads
    from glassformer.proof.doctor import probes_for
    from glassformer.proof.doctor.case import case_of
    from glassformer.proof.doctor.finding import FAILURE, STATES, examine

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
    counted = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    failed = dict.fromkeys(each.what for each in found if each.state == FAILURE)
    print(f"{folder}: {counted}{': ' if failed else ''}{'; '.join(failed)}.")
    return code


def lines(finding: Finding) -> list[str]:
    """Return one line for a finding without a cause; for a problem also its evidence, likely cause and remedy."""
    wide = max(width(), 60)
    head = f"{finding.state.upper() if finding.cause else finding.state:10}  {finding.probe}: "
    if not finding.cause:
        return wrapped(f"{head}{finding.what.removesuffix('.')}: {finding.evidence}", "", wide)
    parts = (("evidence", finding.evidence), ("likely cause", finding.cause), ("remedy", finding.remedy))
    return [
        f"{head}{finding.what}",
        *(x for what, text in parts for x in wrapped(f"{what}: {text}", " " * 12, max(width(), 60))),
    ]


# `glassformer verify`: test the laws on this machine and print the results.

DTYPES = ("float64", "float32")


def run_verify(arguments: Arguments) -> int:
    """Print a row for each law as soon as it was tested. The exit code is 3 if one is broken."""
    options = arguments.options
    dtype, folder = options.get("dtype", "float64"), options.get("notebooks")
    one_of(DTYPES, dtype, "--dtype")
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(
            f"--notebooks must name a folder with notebooks (.ipynb, .txt or .py); there is no folder {folder!r}."
        )
    import torch

    from glassformer.base.runtime import choose_device, choose_threads
    from glassformer.proof.laws import LAWS
    from glassformer.proof.laws.law import Setting, judge

    device, _ = choose_device(options.get("device", "cpu"))
    choose_threads()
    setting = Setting(device, getattr(torch, dtype), None if folder is None else Path(folder))
    as_json, verdicts = "json" in options, list["Verdict"]()
    width = max(len(law.claim) for law in LAWS)
    print(
        f"Laws on {device} in {dtype}; an error is relative to the larger of 1 and what is expected.", file=sys.stderr
    )
    for law in LAWS:
        verdicts.append(judge(law, setting))
        if not as_json:
            print(line(verdicts[-1], width), flush=True)
    if as_json:
        print(json.dumps([each._asdict() | {"holds": each.holds} for each in verdicts]))
    broken, missing = sum(not each.holds for each in verdicts), sum(each.missing is not None for each in verdicts)
    print(f"{len(verdicts) - broken - missing} hold, {broken} broken, {missing} not tried.", file=sys.stderr)
    return FAILED if broken else 0


def line(verdict: Verdict, width: int) -> str:
    """Return one row: the law, the number of cases, the worst error, the bound, and whether the law holds."""
    shown = f"{verdict.group:12}  {verdict.claim:{width}}"
    if verdict.missing is not None:
        return f"{shown}  not tried: {verdict.missing}"
    figures = f"{verdict.cases:3} cases  worst {verdict.worst:8.1e}  bound {verdict.bound:.1e}"
    return f"{shown}  {figures}  {'holds' if verdict.holds else 'BROKEN'}"
