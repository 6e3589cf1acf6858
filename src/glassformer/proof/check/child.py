"""The process that runs a learner's file: it checks the file and writes the report."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import DataError
from glassformer.proof.check.examine import check_file


def main(words: Sequence[str]) -> None:
    """Check a file. The words are: file, output folder, seconds, names in the file, names asked for."""
    path, out, limit, names, only = words
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.path.append(str(Path(path).parent))  # for imports of modules in the same folder
    with (Path(out) / "stack.txt").open("w") as stack:
        faulthandler.dump_traceback_later(float(limit), exit=True, file=stack)
        found: dict[str, Any]
        try:
            found = check_file(Path(path), names.split(","), list(filter(None, only.split(",")))).as_json()
        except DataError as error:
            found = {"problem": str(error)}
        faulthandler.cancel_dump_traceback_later()
    (Path(out) / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
