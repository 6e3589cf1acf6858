"""What a broken law is: one function or constant of the package, and what takes its place."""

from collections.abc import Callable
from typing import Any

ROWS: list[Callable[[Any], Any]] = []
"""Every row of the files imported so far, in order."""


def breaks(target: str, tests: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a function as a row: it gets what stands at `target` and returns what breaks the law it is named for.

    `target`: `glassformer.module:name` or `:Class.name`. `tests`: the files, or ids `file::test`, of which at least one
    test must fail; the fewer, the sharper.
    """

    def register(row: Callable[[Any], Any]) -> Callable[[Any], Any]:
        row.target, row.tests = target, tests.split()  # pyright: ignore
        ROWS.append(row)
        return row

    return register
