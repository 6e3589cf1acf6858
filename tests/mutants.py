"""The faults that the tests are known to catch: `make mutants`, or `python tests/mutants.py -k NAME` for some of them.

A row: the law it breaks in words, the file below src/glassformer, the text there (it must stand there exactly once),
the text instead, and the tests that must fail (as few as show it, separated by spaces). Every law of the library has a
row; a new law comes with one. A row whose tests hang instead of failing is a bad row.
"""

from __future__ import annotations

import sys

from mutant_runner import Mutant, main

REGISTRY = "src/glassformer/foundation/registry.py"  # its examples are its tests

# One row on two or three lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("an unknown name is answered without the nearest", "foundation/registry.py",
        "if nearest else text", "if False else text", REGISTRY),
    Mutant("an unknown name is answered without the known ones", "foundation/registry.py",
        '", ".join(repr(each) for each in names)', '"many"', REGISTRY),
    Mutant("the field is not named", "foundation/registry.py",
        'f"{what}={name!r} is not', 'f"{name!r} is not', REGISTRY),
]
# fmt: on

if __name__ == "__main__":
    sys.exit(main(ROWS))
