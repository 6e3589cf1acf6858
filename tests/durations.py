"""What the push tier leaves out because it takes long: the cases in tests/slow.txt, chosen by `make slow`.

Of each test the quickest case stays, so that the push tier sees every law, and `make test-all` every case of it.
"""

import resource
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow.txt")
CASE, TEST = 0.05, 2.0
"""Seconds of a processor: a case that takes more than `CASE` is slow, but for the quickest of a test, up to `TEST`."""


def thin(items: Sequence[pytest.Item]) -> None:
    """Mark as slow what the list holds."""
    slow = {*LIST.read_text("utf-8").splitlines()}
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


def processor_time() -> float:
    """Seconds that this process and those it has waited for took."""
    return sum(sum(resource.getrusage(whose)[:2]) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def write(path: Path, item: pytest.Item, seconds: float) -> None:
    """Add a line. Several processes write, each of them a line at once."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{seconds:.3f}\t{item.nodeid}\n")


def chosen(measured: Iterable[tuple[float, str]], case: float = CASE, test: float = TEST) -> list[str]:
    """Return the names of the slow ones; an example in a docstring stays."""
    tests: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for seconds, name in measured:
        if name.startswith("src/"):
            continue
        tests[name.split("[")[0]].append((seconds, name))
    return sorted(
        name
        for cases in tests.values()
        for place, (seconds, name) in enumerate(sorted(cases))
        if seconds > (case if place else max(case, test))
    )


def main(path: str) -> None:
    """Write the list anew from what was measured, and say what stays."""
    lines = [line.split("\t", 1) for line in Path(path).read_text("utf-8").splitlines()]
    measured = [(float(seconds), name) for seconds, name in lines]
    slow = {*chosen(measured)}
    LIST.write_text("".join(f"{name}\n" for name in sorted(slow)), "utf-8")
    left = [seconds for seconds, name in measured if name not in slow]
    print(f"{len(slow)} cases are slow; {len(left)} of {sum(left):.0f} seconds stay in the push tier.")


if __name__ == "__main__":
    main(sys.argv[1])
