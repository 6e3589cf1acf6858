"""Plots of a study, as PNG and SVG: final metrics, learning curves, exact match by length, a test of learning rates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.base.figures import as_label, matplotlib
from glassformer.base.registry import suggestion
from glassformer.store.pictures import finished, save_figure
from glassformer.study.result import SHARES, Result, short_combination, short_names, shown, splits
from glassformer.train.records import step_of, whole_lines
from glassformer.train.run.trial import Found

# The learning curves of one or several runs in one plot.

METRICS = "metrics.jsonl"
EXACT = ("learning_rate",)
"""Figures of each step that are not measurements, so they are not smoothed."""
COUNTS = ("n", "cut", "unknown", "skipped")
SMOOTHING = 0.01
"""The share of a run's steps over which a raw curve is smoothed."""
CURVE_PANEL = (4.6, 3.2)
"""Width and height, in inches."""

Line = list[tuple[int, float]]
"""(step, figure) pairs; a figure that was not finite is NaN, which leaves a gap."""


class Curves(NamedTuple):
    """The figures that a run logged, by name."""

    name: str
    train: dict[str, Line]
    """One figure per step: loss, learning_rate, grad_norm, pad_share."""
    dev: dict[str, Line]
    """One figure per evaluation."""
    best: int | None
    """The step of the best checkpoint."""

    @property
    def metrics(self) -> list[str]:
        """The names of all figures."""
        return list(dict.fromkeys((*self.train, *self.dev)))


def read_curves(run: Path) -> Curves:
    """Read the curves of a run folder. Errors: `CheckpointError` if it has none, or for a damaged line."""
    train: dict[str, Line] = {}
    dev: dict[str, Line] = {}
    best: int | None = None
    path = run / METRICS
    for number, line in enumerate(whole_lines(path), 1):
        step = step_of(line)
        if step is None:
            raise CheckpointError(
                f"{path}:{number}: each line must be a JSON object with a step; got {line[:60]!r}. Correct the line or "
                "delete it."
            )
        record = json.loads(line)
        if record.get("kind") not in ("train", "dev"):
            continue
        into = train if record["kind"] == "train" else dev
        best = step if record.get("best") is True else best
        for key, value in record.items():
            if key not in ("kind", "step", "epoch", "best", *COUNTS) and not isinstance(value, str | bool):
                into.setdefault(key, []).append((step, math.nan if value is None else float(value)))
    if not train and not dev:
        raise CheckpointError(
            f"{path} has no figures, because nothing has been trained yet. Train first, or name another run."
        )
    return Curves(str(run), train, dev, best)


def chosen(runs: Sequence[Curves], requested: Sequence[str]) -> list[str]:
    """Return the figures to draw: those asked for or, by default, the loss and the first share.

    Errors: `ConfigError` for one that no run has.
    """
    known = list(dict.fromkeys(metric for run in runs for metric in run.metrics))
    for metric in requested:
        if metric not in known:
            raise ConfigError(f"No run has a figure {metric!r}. {suggestion(metric, known)}")
    shares = [metric for metric in known if metric in SHARES]
    return list(requested) if requested else [*(["loss"] if "loss" in known else []), *shares[:1]]


def smoothed(line: Line, share: float = SMOOTHING) -> Line:
    """Return an exponential moving average over about `share` of the line, with Adam's bias correction (equation 3)."""
    weight = 1 / max(1.0, share * len(line))
    mean, whole, found = 0.0, 0.0, list[tuple[int, float]]()
    for step, value in line:
        if math.isfinite(value):
            mean, whole = mean + weight * (value - mean), whole + weight * (1 - whole)
        found.append((step, mean / whole if whole else math.nan))
    return found


def draw_curves(runs: Sequence[Curves], metrics: Sequence[str], *, log: bool = False) -> Any:
    """Draw a matplotlib figure with a panel for each figure and a colour for each run.

    Training figures are drawn pale, with a smoothed line over them; evaluations as marks, with a ring around the best
    checkpoint. `log`: logarithmic steps and, if all values are positive, logarithmic figures.
    """
    columns = 2 if len(metrics) == 4 else min(len(metrics), 3)
    rows = -(-len(metrics) // columns)
    size = (CURVE_PANEL[0] * columns, CURVE_PANEL[1] * rows + 0.25 * len(runs) * (len(runs) > 1))
    figure = matplotlib("figure").Figure(figsize=size, layout="constrained")
    places = [axes for row in figure.subplots(rows, columns, squeeze=False, sharex="all") for axes in row]
    for axes, metric in zip(places, metrics, strict=False):
        for number, run in enumerate(runs):
            draw_run(axes, run, metric, f"C{number % 10}")
        axes.set_title(f"{metric}, nats" if metric == "loss" else metric.replace("_", " "), fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if metric in SHARES:
            axes.set_ylim(-0.03, 1.03)
        if log:
            axes.set_xscale("log")
            if metric not in SHARES and all(value > 0 for run in runs for value in values(run, metric)):
                axes.set_yscale("log")
    for axes in places[len(metrics) :]:
        axes.remove()
    if len(runs) > 1:
        handles = [matplotlib("lines").Line2D([], [], color=f"C{n % 10}") for n in range(len(runs))]
        figure.legend(
            handles, [as_label(run.name) for run in runs], loc="outside lower left", frameon=False, fontsize=9
        )
    else:
        figure.suptitle(as_label(runs[0].name), fontsize=11)
    return finished(figure)


def values(run: Curves, metric: str) -> list[float]:
    """Return all finite values of a figure."""
    lines = (run.train.get(metric, []), run.dev.get(metric, []))
    return [value for line in lines for _, value in line if math.isfinite(value)]


def draw_run(axes: Any, run: Curves, metric: str, color: str) -> None:
    """Draw one run in one panel."""
    marks = {"color": color, "linewidth": 1.2}
    if line := run.train.get(metric):
        noisy = metric not in EXACT
        if noisy:
            axes.plot(*zip(*line, strict=True), **{**marks, "linewidth": 0.6, "alpha": 0.3})
        axes.plot(*zip(*(smoothed(line) if noisy else line), strict=True), **marks, label="training, smoothed")
    if line := run.dev.get(metric):
        dashes = {"linestyle": "--"} if metric in run.train else {}
        axes.plot(*zip(*line, strict=True), **marks, marker="o", markersize=3.5, label="dev", **dashes)
        if best := [point for point in line if point[0] == run.best]:
            ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": color}
            axes.plot(*zip(*best, strict=True), linestyle="none", label="best checkpoint", **ring)
    if not axes.get_legend() and metric in run.train and metric in run.dev:
        axes.legend(frameon=False, fontsize=8)


# Plots of a study, as PNG and SVG: its final metrics, its learning curves, and exact match by length.

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


# The plot of a learning-rate range test.


def draw_rates(found: Found) -> Any:
    """Draw a matplotlib figure: the losses over the rates, raw and smoothed, and the recommended rate.

    Errors: `ConfigError` without matplotlib.
    """
    figure = matplotlib("figure").Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    rates = [each.rate for each in found.tried]
    axes.plot(rates, [each.loss for each in found.tried], color="0.7", label="loss")
    axes.plot(rates, [each.smoothed for each in found.tried], label="smoothed")
    axes.axvline(found.recommended, linestyle="--", color="black", label=f"recommended, {found.recommended:.1e}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss before the update, nats a target")
    axes.legend()
    return finished(figure)
