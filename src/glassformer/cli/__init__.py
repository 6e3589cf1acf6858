"""The command line. It parses arguments and prints; the work is done in the floors below."""

from __future__ import annotations

import sys


def entry() -> int:
    """Run the command line and return its exit code; Ctrl-C is obeyed even while the command is being loaded."""
    try:
        from glassformer.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("glassformer: Stopped.", file=sys.stderr)
        return 130
