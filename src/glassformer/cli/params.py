"""`glassformer params RUN`: where the parameters are."""

from __future__ import annotations

import json

from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_run


def run(arguments: Arguments) -> int:
    """Print a row for each tensor, and the total; a tensor that stands in two places counts once."""
    folder = existing_run(str(arguments.target))
    from glassformer.train.session import parameters

    rows, total = parameters(folder)
    if "json" in arguments.options:
        print(json.dumps({"total": total, "rows": [row._asdict() for row in rows]}))
        return 0
    cells = [("module", "shape", "count", "share")]
    for row in rows:
        shape = " x ".join(map(str, row.shape))
        share = f"same as {row.same_as}" if row.same_as else f"{row.share:.2%}"
        cells.append((row.name, shape, f"{row.count:,}", share))
    cells.append(("total", "", f"{total:,}", "100%"))
    name, shape, size = (max(len(row[column]) for row in cells) for column in range(3))
    for row in cells:
        print(f"{row[0]:{name}}  {row[1]:{shape}}  {row[2]:>{size}}  {row[3]}".rstrip())
    return 0
