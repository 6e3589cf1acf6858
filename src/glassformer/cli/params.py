"""`glassformer params RUN|PRESET`: list the parameters of a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.base.figures import check_picture
from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_run
from glassformer.nn.presets import PRESETS
from glassformer.train.records import aligned

if TYPE_CHECKING:
    from glassformer.nn.transformer import Transformer


def run(arguments: Arguments) -> int:
    """Print a row for each tensor and the total, or plot them. A tensor used in two places is listed once."""
    if "shapes" in arguments.options or "by" in arguments.options:
        return parts(arguments)
    picture = arguments.options.get("plot")
    if picture is not None:
        check_picture(picture)
    model = modelled(str(arguments.target))
    from glassformer.nn.count import count_parameters

    rows, total = count_parameters(model)
    rows = [row for row in rows if row.same_as is None]
    if picture is not None:
        from glassformer.lens.plot import plot_parameters

        plot_parameters(rows, title=f"{arguments.target}: {total:,} parameters", file=picture)
        print(f"Picture: {picture}", file=sys.stderr if "json" in arguments.options else sys.stdout)
        if "json" not in arguments.options:
            return 0
    if "json" in arguments.options:
        listed = [{"module": row.name, "shape": row.shape, "count": row.numbers, "share": row.share} for row in rows]
        print(json.dumps({"rows": listed, "total": total}))
        return 0
    cells = [("module", "shape", "count", " share")]
    cells += [(row.name, " x ".join(map(str, row.shape)), f"{row.numbers:,}", f"{row.share:.2%}") for row in rows]
    cells += [("total", "", f"{total:,}", "100%")]
    print(aligned(cells, right=(2, 3)))
    return 0


def parts(arguments: Arguments) -> int:
    """Print the parameters by component, or what passes through each module of a small batch. Errors: `ConfigError`."""
    from glassformer.lens.shapes import by_component, shapes_of_model

    by = arguments.options.get("by")
    if by not in (None, "component"):
        raise ConfigError(f"--by adds up by component; got {by!r}. Type --by component.")
    model = modelled(str(arguments.target))
    totals = by_component(model)
    if by is None:
        found = shapes_of_model(model)
        if "json" in arguments.options:
            print(json.dumps({"rows": [row._asdict() for row in found.rows], "components": totals}))
        else:
            print(found)
        return 0
    total = sum(totals.values())
    if "json" in arguments.options:
        print(json.dumps({"components": totals, "total": total}))
        return 0
    for name, number in (*totals.items(), ("total", total)):
        print(f"{name:12}  {number:>15,}  {number / max(total, 1):>6.1%}")
    return 0


def modelled(target: str) -> Transformer:
    """Return the model of a run's best checkpoint or of a preset, without its numbers: on the device "meta".

    If a run and a preset have the same name, it is that of the run.
    """
    named = target in PRESETS and not Path(target, "recipe.toml").is_file()
    folder = None if named else existing_run(target, PRESETS)
    from glassformer.nn.count import on_meta  # after the checks, as importing torch takes a second
    from glassformer.train.finished.use import best_model

    # a run's is made again from its config, as moving it to "meta" would part tied weights
    return on_meta(PRESETS[target] if folder is None else best_model(folder).config)
