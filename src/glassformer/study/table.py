"""The table of a study: for each combination the mean over its seeds, and the lowest and highest beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from glassformer.study.grid import combination, shown
from glassformer.study.result import SHARES, Result

NONE = "-"


def table(results: Sequence[Result], combinations: Sequence[Mapping[str, Any]] = ()) -> str:
    """A row for each combination, in markdown; the notes say of how many seeds and pairs.

    `combinations`: those asked for, so that one without any result has its row too; none: as they come in `results`.
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
    """What the figures are means of."""
    seeds = ", ".join(str(each) for each in sorted({each.seed for each in results}))
    pairs = " or ".join(f"{each:,}" for each in sorted({int(each.test["n"]) for each in results}))
    lines = [f"Mean (lowest–highest) of seeds {seeds}; {pairs} test samples each."]
    if results[0].metric in SHARES:
        lines.append(f"Steps to 99 %: the first evaluation on dev at or above it{every(results)}; - where none was.")
    return lines


def every(results: Sequence[Result]) -> str:
    """How far evaluations are apart, where they all are equally far."""
    gaps = {each.curve[0][0] for each in results if len(each.curve) > 1}
    return f", one every {gaps.pop()} steps" if len(gaps) == 1 else ""


def figure(figures: Sequence[Mapping[str, Any]], metric: str) -> str:
    """One metric over the seeds; shares in percent."""
    values = [float(each[metric]) for each in figures if metric in each]
    if metric in SHARES:
        return spread([100.0 * each for each in values], 2, " %")
    return spread(values, 4 if metric == "loss" else 2)


def steps_to_enough(results: Sequence[Result]) -> str:
    """Over those seeds that got there, and how many did if not all."""
    reached = [float(step) for step in (each.steps_to_enough() for each in results) if step is not None]
    some = f", {len(reached)} of {len(results)}" if 0 < len(reached) < len(results) else ""
    return spread(reached, 0) + some


def parameters(results: Sequence[Result]) -> str:
    """As many as the model has, with each seed."""
    return " or ".join(f"{each:,}" for each in sorted({result.parameters for result in results})) or NONE


def spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Mean, lowest and highest; of one value the value."""
    if not values:
        return NONE
    low, mean, high = (f"{each:.{digits}f}" for each in (min(values), fmean(values), max(values)))
    return f"{mean}{unit} ({low}–{high})" if len(values) > 1 else f"{mean}{unit}"


def short_names(values: Mapping[str, Any]) -> list[str]:
    """The settings without their sections, where that is not ambiguous."""
    ends = [name.rpartition(".")[2] for name in values]
    return [end if ends.count(end) == 1 else name for name, end in zip(values, ends, strict=True)]


def short_combination(values: Mapping[str, Any]) -> str:
    """Settings and values in words, without sections."""
    return combination(dict(zip(short_names(values), values.values(), strict=True)))


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A markdown table whose columns also stand under each other on a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    ruler = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, ruler, *body)
    )
