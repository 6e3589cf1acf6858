"""`glassformer verify`: test the laws on this machine and print the results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.base.registry import one_of
from glassformer.cli.arguments import Arguments

if TYPE_CHECKING:
    from glassformer.proof.laws.law import Verdict

FAILED = 3
DTYPES = ("float64", "float32")


def run(arguments: Arguments) -> int:
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
    said = f"{verdict.group:12}  {verdict.claim:{width}}"
    if verdict.missing is not None:
        return f"{said}  not tried: {verdict.missing}"
    figures = f"{verdict.cases:3} cases  worst {verdict.worst:8.1e}  bound {verdict.bound:.1e}"
    return f"{said}  {figures}  {'holds' if verdict.holds else 'BROKEN'}"
