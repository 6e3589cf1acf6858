"""Faults in what only a processor with a matrix unit runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mutant_runner import Mutant

SUMS = "tests/parts/test_int8.py::test_the_product_of_rounded_numbers_is_exact"


def has_unit() -> bool:
    """Whether Linux tells of one."""
    with suppress(OSError):
        return "amx_int8" in Path("/proc/cpuinfo").read_text("utf-8").split()
    return False


# fmt: off
UNIT: list[Mutant] = [
    Mutant("all tiles have the rows of the first", "parts/cpp/matrix_unit.h",
        "x + n * ROWS * apart", "x", SUMS),
    Mutant("the unit begins with what belongs to no output", "parts/cpp/matrix_unit.h",
        "_tile_loadd(0, head, 0);", "_tile_zero(0);", SUMS),
    Mutant("the unit leaves out its last columns", "parts/cpp/matrix_unit.h",
        "d < columns;", "d + COLUMNS < columns;", SUMS),
    Mutant("the unit says that it multiplied all columns", "parts/cpp/matrix_unit.h",
        "return whole;", "return columns;", SUMS),
    Mutant("columns are multiplied by the unit, and once more", "parts/cpp/whole.h",
        "        for (; d < in; d += STRETCH)", "        for (d = 0; d < in; d += STRETCH)", SUMS),
]
# fmt: on
ROWS = UNIT if has_unit() else []
