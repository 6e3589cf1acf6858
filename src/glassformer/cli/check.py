"""`glassformer check FILE.py`: find out which properties a learner's own code lacks."""

from __future__ import annotations

import json
from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.help import width
from glassformer.proof.check.file import LIMIT, check
from glassformer.proof.check.property import as_text


def run(arguments: Arguments) -> int:
    """Run the file in a separate process and print which properties hold and which fail."""
    limit = seconds(arguments.options.get("limit", str(LIMIT)))
    only = [name for name in arguments.options.get("only", "").split(",") if name]
    report = check(Path(str(arguments.target)), only, limit)
    code = report.exit_code("strict" in arguments.options)
    as_json = "json" in arguments.options
    print(json.dumps({**report.as_json(), "exit_code": code}) if as_json else as_text(report, max(width(), 60)))
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
