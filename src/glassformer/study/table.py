"""The table of a study: for each combination, the mean over its seeds with the lowest and the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from glassformer.study.grid import combination, shown
from glassformer.study.result import SHARES, Result, splits

NONE = "-"


def table(results: Sequence[Result], combinations: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a markdown table with a row for each combination, and notes on the seeds and samples.

    `combinations`: those that were asked for, so that one without any result gets a row too. Combinations that only
    `results` has follow them.
    """
    if not results:
        return "No arm is finished."
    wanted = {combination(each): each for each in (*combinations, *(result.values for result in results))}
    first = results[0]
    share = first.metric in SHARES
    head = [*short_names(first.values), first.metric]
    head += [f"{first.metric}, {short_combination(first.other_data)}"] if first.other_data else []
    head += [*(["steps to 99 %"] if share else []), "parameters", "seconds"]
    body: list[list[str]] = []
    for name, values in wanted.items():
        mine = [each for each in results if combination(each.values) == name]
        cells = [figure([each.test for each in mine], first.metric)]
        cells += [figure([each.other or {} for each in mine], first.metric)] if first.other_data else []
        cells += [steps_to_enough(mine)] if share else []
        cells += [parameters(mine), spread([each.seconds for each in mine], 0)]
        body.append([*map(shown, values.values()), *cells])
    return "\n".join([markdown(head, body), "", *notes(results)])


def notes(results: Sequence[Result]) -> list[str]:
    """Return notes that say what the figures are means of."""
    seeds = ", ".join(str(each) for each in sorted({each.seed for each in results}))
    pairs = " or ".join(f"{each:,}" for each in sorted({int(each.test["n"]) for each in results}))
    lines = [f"Mean (lowest–highest) of seeds {seeds}; {pairs} {splits(results)} samples each."]
    others = " or ".join(f"{each:,}" for each in sorted({int(each.other["n"]) for each in results if each.other}))
    if others not in ("", pairs):
        lines.append(f"Of {short_combination(results[0].other_data)}: {others} samples each.")
    if results[0].metric in SHARES:
        lines.append(f"Steps to 99 %: the first evaluation on dev at or above it{every(results)}; - where none was.")
    return lines


def every(results: Sequence[Result]) -> str:
    """Say how many steps apart evaluations are, if that is the same for all results."""
    gaps = {each.curve[0][0] for each in results if len(each.curve) > 1}
    return f", one every {gaps.pop()} steps" if len(gaps) == 1 else ""


def figure(figures: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Return one metric over the seeds; shares in percent."""
    values = [float(each[metric]) for each in figures if metric in each]
    if metric in SHARES:
        return spread([100.0 * each for each in values], 2, " %")
    return spread(values, 4 if metric == "loss" else 2)


def steps_to_enough(results: Sequence[Result]) -> str:
    """Return the steps to 99 % over the seeds that reached it, and how many did if not all."""
    reached = [float(step) for step in (each.steps_to_enough() for each in results) if step is not None]
    some = f", {len(reached)} of {len(results)}" if 0 < len(reached) < len(results) else ""
    return spread(reached, 0) + some


def parameters(results: Sequence[Result]) -> str:
    """Return the model's number of parameters; several numbers if seeds differ."""
    return " or ".join(f"{each:,}" for each in sorted({result.parameters for result in results})) or NONE


def spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Return mean, lowest and highest as text; for a single value, only the value."""
    if not values:
        return NONE
    low, mean, high = (f"{each:.{digits}f}" for each in (min(values), fmean(values), max(values)))
    return f"{mean}{unit} ({low}–{high})" if len(values) > 1 else f"{mean}{unit}"


def short_names(values: Mapping[str, Any]) -> list[str]:
    """Return the settings' names without their sections where that is unambiguous."""
    ends = [name.rpartition(".")[2] for name in values]
    return [end if ends.count(end) == 1 else name for name, end in zip(values, ends, strict=True)]


def short_combination(values: Mapping[str, Any]) -> str:
    """Return settings and values as text, without sections."""
    return combination(dict(zip(short_names(values), values.values(), strict=True)))


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a markdown table whose columns are also aligned on a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    ruler = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, ruler, *body)
    )
