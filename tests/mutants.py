"""The faults that the tests are known to catch: `make mutants`, or `python tests/mutants.py -k NAME` for some of them.

The rows stand in `mutant_rows/`, by floor. A row: the law it breaks in words, the file below src/glassformer, the text
there (it must stand there exactly once), the text instead, and the tests that must fail (as few as show it, separated
by spaces). Every law of the library has a row; a new law comes with one. A row whose tests hang instead of failing is a
bad row.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import mutant_rows
from mutant_runner import Mutant, main

FILES = sorted(each.name for each in iter_modules(mutant_rows.__path__))
ROWS: list[Mutant] = [row for name in FILES for row in import_module(f"mutant_rows.{name}").ROWS]

if __name__ == "__main__":
    sys.exit(main(ROWS))
