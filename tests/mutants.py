"""The faults that the tests are known to catch: `make mutants`, or `python tests/mutants.py -k NAME` for some of them.

The rows stand in `mutant_rows/`, by floor. A row: the law it breaks in words, the file below src/glassformer, the text
there (it must stand there exactly once), the text instead, and the tests that must fail (as few as show it, separated
by spaces). Every law of the library has a row; a new law comes with one. A row whose tests hang instead of failing is a
bad row.
"""

from __future__ import annotations

import sys

from mutant_rows import (
    attend,
    blocks,
    cli,
    data,
    families,
    labels,
    model,
    parts,
    positions,
    proof,
    rules,
    store,
    train,
    use,
)
from mutant_runner import Mutant, main

ROWS: list[Mutant] = [
    *[*attend.ROWS, *rules.ROWS, *parts.ROWS, *positions.ROWS, *blocks.ROWS],
    *[*data.ROWS, *model.ROWS, *families.ROWS, *store.ROWS],
    *[*train.ROWS, *use.ROWS, *labels.ROWS, *proof.ROWS, *cli.ROWS],
]

if __name__ == "__main__":
    sys.exit(main(ROWS))
