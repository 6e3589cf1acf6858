"""`python -m glassformer` is the command `glassformer`."""

from __future__ import annotations

import sys

from glassformer.cli import entry

if __name__ == "__main__":
    sys.exit(entry())
