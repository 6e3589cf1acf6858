"""Our speed beside that of named peers, in one run: `make bench`, or `python benchmarks/run.py NAME [options]`.

Without a name it runs the quick ones and prints their tables. `checkpoint` measures what saving costs training, `live`
what it costs to be followed by the explorer, `decode` the speed of generation, `heads` the time of a diagnosis, `learn`
the time from a save to a verdict, `page` the explorer's page in Chromium, `words` what words alone tell about the
reviews that --data holds; `tokenized` scores translations as papers do. `memory` starts 24 processes, `ranks` several,
`serve` a server, `text` one for each tokenizer, `busy` some that keep the processors from it. `language` trains on a
text that --data holds; `results` trains every recipe and `studies` runs the studies of docs/studies.md, which takes an
hour each.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

QUICK = ("attend", "attention", "sparse", "dropout", "cross_entropy", "muon", "train_step")
KNOWN = (
    *QUICK,
    *(
        "busy",
        "checkpoint",
        "decode",
        "heads",
        "language",
        "learn",
        "live",
        "memory",
        "page",
        "ranks",
        "results",
        "serve",
        "studies",
        "text",
        "tokenized",
        "words",
    ),
)
USAGE = f"Usage: python benchmarks/run.py [{' | '.join(KNOWN)}] [--json] [options; --help after a name lists them]"


def main(words: Sequence[str]) -> int:
    """Run one benchmark, or all quick ones. Options without a name go to each of them."""
    name = words[0] if words and not words[0].startswith("-") else None
    if words and words[0] in ("-h", "--help"):
        print(__doc__, USAGE, sep="\n")
        return 0
    if name is None:
        return max(import_module(each).main(list(words)) for each in QUICK)
    if name not in KNOWN:
        print(f"There is no benchmark {name!r}. {USAGE}", file=sys.stderr)
        return 2
    return import_module(name).main(list(words[1:]))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Stopped.")
