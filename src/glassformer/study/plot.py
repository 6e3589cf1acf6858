"""Plots of a study, as PNG and SVG: its final metrics, its learning curves, and exact match by length.

The order of the varied settings decides their role: the values of the first are the x-axis or the colours; each
combination of the others is a colour or a panel of its own. Bars and bands reach from the lowest to the highest seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from glassformer.base.figures import as_label, matplotlib
from glassformer.store.pictures import finished, save_figure
from glassformer.study.grid import shown
from glassformer.study.result import SHARES, Result, splits
from glassformer.study.table import short_combination, short_names

MOST_PANELS = 9
MOST_BANDS = 4
MOST_MARKS = 24
"""The most marks on one line; each makes the SVG larger."""
PANEL = (4.2, 3.2)
"""Width and height, in inches."""
LONG = 20
"""Characters of a tick from which it stands upright, as a change of several settings has; then pictures are higher."""
LETTER = 0.085
"""The width of a letter of a tick, in inches."""
MARKS = "os^Dv<>Ph*"

SHARE, COUNT = (-0.03, 1.03), (0.0, None)
"""The ends of an axis of shares, and of one of counts."""
Points = dict[float, list[float]]
"""Position on the x-axis -> the values of the seeds."""


class Panel(NamedTuple):
    """One diagram: a line, or a row of points, for each entry of `series`."""

    title: str
    series: dict[str, Points]
    ends: tuple[float, float | None] | None = None
    """Where the axis begins and ends; None: around the values, as a loss differs little beside its distance from 0."""


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write plot, curves and, if other data were scored, lengths. Returns the files.

    Curves and lengths are left out if they need more than `MOST_PANELS` panels. Errors: `ConfigError` without
    matplotlib.
    """
    metric, first = results[0].metric, short_names(results[0].values)[0]
    written = save(figure_of(summary(results), "points", names(results), first), folder / "plot")
    for name, panels, across in (
        ("curves", faceted(results, curve, SHARE if metric in SHARES else None), "step"),
        ("lengths", faceted(results, lengths, SHARE), "tokens of the source"),
    ):
        if any(points for panel in panels for points in panel.series.values()) and len(panels) <= MOST_PANELS:
            what = "exact_match" if name == "lengths" else f"{metric} on dev"
            written += save(figure_of(panels, "lines", None, across, what, first), folder / name)
    return written


def summary(results: Sequence[Result]) -> list[Panel]:
    """Return panels over the first setting: the metric on the scored split, on other data, and the steps to 99 %."""
    metric = results[0].metric
    ends = SHARE if metric in SHARES else None
    held_out = f"{metric} on the {splits(results)} split"
    panels = [Panel(held_out, across(results, lambda each: float(each.test[metric])), ends)]
    if other_data := results[0].other_data:
        values = across(results, lambda each: float(each.other[metric]) if each.other else None)
        panels.append(Panel(f"{metric}, {short_combination(other_data)}", values, ends))
    if ends and any(each.steps_to_enough() for each in results):
        panels.append(Panel("steps to 99 % on dev", across(results, lambda each: each.steps_to_enough()), COUNT))
    return panels


def across(results: Sequence[Result], value: Callable[[Result], float | None]) -> dict[str, Points]:
    """Return a series for each combination of the settings after the first."""
    places = {name: float(place) for place, name in enumerate(names(results))}
    series: dict[str, Points] = {}
    for each in results:
        first, *others = each.values.items()
        points = series.setdefault(short_combination(dict(others)), {})
        if (found := value(each)) is not None:
            points.setdefault(places[shown(first[1])], []).append(float(found))
    return series


def names(results: Sequence[Result]) -> list[str]:
    """Return the values of the first setting, in order."""
    return list(dict.fromkeys(shown(next(iter(each.values.values()))) for each in results))


def faceted(
    results: Sequence[Result],
    values: Callable[[Result], dict[float, float]],
    ends: tuple[float, float | None] | None,
) -> list[Panel]:
    """Return a panel for each combination of the settings after the first, with a series for each value of the first.

    Every panel has all series in the same order, so that a colour means the same value in all panels. The series of an
    arm that is missing, or has nothing to draw, is empty.
    """
    panels: dict[str, Panel] = {}
    for each in results:
        first, *others = each.values.items()
        title = short_combination(dict(others))
        series = panels.setdefault(title, Panel(title, {name: {} for name in names(results)}, ends)).series
        for place, value in values(each).items():
            series[shown(first[1])].setdefault(place, []).append(value)
    return list(panels.values())


def curve(result: Result) -> dict[float, float]:
    """Return step -> metric on the dev split."""
    return {float(step): value for step, value in result.curve}


def lengths(result: Result) -> dict[float, float]:
    """Return source length -> exact match, on the held-out split and other data; empty if there are no other data."""
    tables = [each.get("by_length", {}) for each in (result.test, result.other) if each and result.other]
    return {float(length): row["exact_match"] for table in tables for length, row in table.items()}


def figure_of(
    panels: Sequence[Panel], kind: str, ticks: Sequence[str] | None, across: str, what: str = "", legend: str = ""
) -> Any:
    """Draw a matplotlib figure of panels, three in a row, with one legend for all."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    ticks = None if ticks is None else [in_lines(each) for each in ticks]
    longest, widest = length(ticks or ()), length([in_lines(name) for panel in panels for name in panel.series])
    upright = longest > LONG
    size = (PANEL[0] * columns + max(1.6, LETTER * widest), (PANEL[1] + (LETTER * longest if upright else 0)) * rows)
    figure = matplotlib("figure").Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey="all" if kind == "lines" else False)
    places = [axes for row in grid for axes in row]
    marks: list[Any] = []
    for axes, panel in zip(places, panels, strict=False):
        axes.set_title(as_label(panel.title), fontsize=10)
        axes.set_xlabel(across)
        axes.set_ylabel(what)
        axes.grid(alpha=0.3)
        drawn = (lines if kind == "lines" else points)(axes, panel.series)
        marks = marks or drawn
        if panel.ends is not None:
            axes.set_ylim(*panel.ends)
        if ticks is not None:
            axes.set_xticks(range(len(ticks)), ticks, rotation=90 if upright else 30 if longest > 5 else 0)
    for axes in places[len(panels) :]:
        axes.remove()
    names = [in_lines(name) for name in panels[0].series]
    if any(names):
        figure.legend(marks, names, title=legend, loc="outside right upper", frameon=False, fontsize=9)
    return finished(figure)


def in_lines(name: str) -> str:
    """Put each setting of a combination on a line of its own."""
    return ",\n".join(as_label(each) for each in name.split(", "))


def length(names: Sequence[str]) -> int:
    """The length of the longest line."""
    return max((len(line) for name in names for line in name.split("\n")), default=0)


def lines(axes: Any, series: dict[str, Points]) -> list[Any]:
    """Draw the mean as a line and lowest to highest as a band, unless there are so many that bands hide each other.

    Returns the lines.
    """
    marks: list[Any] = []
    for number, (name, values) in enumerate(series.items()):
        places = sorted(values)
        mark = {"marker": MARKS[number % len(MARKS)], "markersize": 3} if len(places) <= MOST_MARKS else {}
        means = [fmean(values[each]) for each in places]
        marks += axes.plot(places, means, label=name, linewidth=1.4, color=f"C{number % 10}", **mark)
        if len(series) <= MOST_BANDS:
            low, high = ([of(values[each]) for each in places] for of in (min, max))
            axes.fill_between(places, low, high, alpha=0.15, color=f"C{number % 10}", linewidth=0)
    return marks


def points(axes: Any, series: dict[str, Points]) -> list[Any]:
    """Draw the mean as a mark and lowest to highest as a bar; series are side by side. Returns the marks."""
    marks: list[Any] = []
    for number, (name, values) in enumerate(series.items()):
        shift = 0.5 * (number - (len(series) - 1) / 2) / len(series)
        places = sorted(values)
        means, low, high = ([of(values[each]) for each in places] for of in (fmean, min, max))
        bars = [  # by rounding, the mean of equal numbers may lie slightly outside them
            [max(0.0, mean - lowest) for mean, lowest in zip(means, low, strict=True)],
            [max(0.0, highest - mean) for mean, highest in zip(means, high, strict=True)],
        ]
        look = {
            "fmt": MARKS[number % len(MARKS)],
            "color": f"C{number % 10}",
            "capsize": 3,
            "markersize": 5,
            "label": name,
        }
        marks.append(axes.errorbar([each + shift for each in places], means, bars, **look))
    return marks


def save(figure: Any, path: Path) -> list[Path]:
    """Write PATH.png and PATH.svg."""
    return [save_figure(figure, path.with_name(f"{path.name}.{kind}")) for kind in ("png", "svg")]
