"""`glassformer check FILE.py`: find out which properties a learner's own code lacks."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.help import width
from glassformer.proof.check.child_process import LIMIT, check, exit_code


def run(arguments: Arguments) -> int:
    """Run the file in a separate process and print which properties hold and which fail."""
    limit = seconds(arguments.options.get("limit", str(LIMIT)))
    only = [name for name in arguments.options.get("only", "").split(",") if name]
    report = check(Path(str(arguments.target)), only, limit)
    code = exit_code(report)
    print(json.dumps({**report, "exit_code": code}) if "json" in arguments.options else as_text(report))
    return code


def seconds(text: str) -> float:
    """Parse the time limit. Errors: `ConfigError` unless it is a number of seconds above 0 and at most a day."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit <= 86_400:
        raise ConfigError(
            f"--limit must be a number of seconds above 0 and at most 86400, a day; got {text!r}. Try --limit 60."
        )
    return limit


def as_text(report: dict[str, Any]) -> str:
    """Return the report as text: a paragraph for each piece of the file, and a summary as the last line."""
    lines: list[str] = []
    for piece in report["pieces"]:
        other = f" ({piece['found_as']})" if piece["found_as"] != piece["name"] else ""
        lines.append(f"{piece['name']}{other}")
        if piece["problem"]:
            lines += wrapped(piece["problem"], "  ")
        for each in piece["properties"]:
            lines += property_lines(each)
        lines.append("")
    lines += [f"{each['name']} is left out: {each['why']}." for each in report["left_out"]]
    return "\n".join([*lines, verdict(report)])


def property_lines(each: dict[str, str]) -> list[str]:
    """Return one line for a property, and below a failure its evidence, cause and hint."""
    name, state = each["property"], each["state"]
    if state == "holds":
        return [f"  holds       {name}: {each['law']}"]
    if state == "not tested":
        return [f"  not tested  {name}: {each['why']}."]
    told = [("evidence", each["evidence"]), ("likely cause", each["cause"]), ("hint", each["hint"])]
    return [
        f"  FAILS       {name}: {each['mistake']}",
        *(x for what, text in told for x in wrapped(f"{what}: {text}", " " * 14)),
    ]


def wrapped(text: str, margin: str) -> list[str]:
    """Wrap text to the width of the terminal."""
    return textwrap.wrap(text, max(width(), 60), initial_indent=margin, subsequent_indent=margin + "  ")


def verdict(report: dict[str, Any]) -> str:
    """Return the summary line: how many properties hold, and the names of the mistakes."""
    properties = [each for piece in report["pieces"] for each in piece["properties"]]
    tested = [each for each in properties if each["state"] != "not tested"]
    mistakes = dict.fromkeys(each["mistake"] for each in tested if each["state"] == "fails")
    broken = [piece["found_as"] for piece in report["pieces"] if piece["problem"]]
    told = f"{report['file']}: {sum(each['state'] == 'holds' for each in tested)} of {len(tested)} properties hold"
    if broken:
        told += f"; could not be checked: {', '.join(broken)}"
    return f"{told}{'; ' if mistakes else '.'}" + ("; ".join(mistakes) + "." if mistakes else "")
