"""`glassformer evaluate RUN ...`: score the answers of a run, or of an ensemble of several."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.base.registry import one_of
from glassformer.cli.arguments import Arguments, flag_of, refuse_idle_decoding, refuse_idle_search, refuse_idle_seed
from glassformer.cli.runs import averaged, existing_runs, recipe_of
from glassformer.data.config import SPLITS
from glassformer.train.recipe import override
from glassformer.train.records import aligned, figure
from glassformer.train.tasks import task_of

if TYPE_CHECKING:
    from glassformer.train.finished.use import Figures


def run(arguments: Arguments) -> int:
    """Score a split, with the data or decode settings of the run's recipe unless others are given."""
    folder, *others = existing_runs(arguments)
    split, average = arguments.options.get("split", "test"), averaged(arguments)
    one_of(("dev", "test"), split, "--split")
    own = recipe_of(folder)
    changes = task_of(own.data).other_text(split, arguments.changes)
    refuse_other_splits(split, changes)
    refuse_idle_decoding(folder, own.data, changes)
    recipe = override(own, changes)
    refuse_idle_seed(recipe.decode, changes)
    refuse_idle_search(recipe.decode, changes)
    task_of(recipe.data).refuse_unnamed(split)
    from glassformer.train.finished.use import evaluate

    named = changes.get("data.test_text")
    who = f"{', '.join(map(str, [folder, *others]))} as an ensemble" if others else str(folder)
    which = f", the mean of {'their' if others else 'its'} {average} newest checkpoints," if average else ""
    usual = f"the {split} split of {folder}" if others else f"its {split} split"
    by_length = "by-length" in arguments.options

    def tell() -> None:
        print(f"Scoring {who}{which} on {usual if named is None else named}.", file=sys.stderr)

    metrics = evaluate(folder, recipe, split, by_length=by_length, average=average, others=others, ready=tell)
    print(as_json(metrics) if "json" in arguments.options else as_table(metrics))
    return 0


def refuse_other_splits(split: str, changes: Iterable[str]) -> None:
    """Refuse a setting of a split that is not scored, because it would change nothing."""
    for name in changes:
        section, _, key = name.partition(".")
        whose = key.partition("_")[0]
        if section == "data" and whose in SPLITS and whose != split:
            raise ConfigError(
                f"The {split} split is scored, but {flag_of(section, key)} belongs to the {whose} split. Remove it"
                + (f", or score that split: glassformer evaluate RUN --split {whose}." if whose != "train" else ".")
            )


def as_json(metrics: Figures) -> str:
    """Return the figures as one JSON object, with null for a number that is not finite, which JSON cannot express."""
    broken = {name: None for name, each in metrics.items() if isinstance(each, float) and not math.isfinite(each)}
    return json.dumps(metrics | broken)


def as_table(metrics: Figures) -> str:
    """Return a line for each figure, followed by a table for each figure that has rows and columns."""
    flat = {name: each for name, each in metrics.items() if not isinstance(each, dict)}
    width = max(map(len, flat))
    lines = [f"{name:{width}}  {figure(each)}" for name, each in flat.items()]
    tables = [rows_of(name, each) for name, each in metrics.items() if isinstance(each, dict)]
    return "\n".join([*lines, *tables])


def rows_of(name: str, rows: Mapping[str, Mapping[str, float | int | str]]) -> str:
    """Return a table with a heading; its first column has the names of the rows."""
    columns = list(next(iter(rows.values())))
    cells = [[name, *columns]] + [[row, *(figure(values[each]) for each in columns)] for row, values in rows.items()]
    return "\n" + aligned(cells, right=range(1, 1 + len(columns)))
