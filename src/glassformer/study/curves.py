"""The learning curves of one or several runs in one plot."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.base.figures import as_label, matplotlib
from glassformer.base.registry import suggestion
from glassformer.store.pictures import finished
from glassformer.study.result import SHARES
from glassformer.train.record.records import step_of

METRICS = "metrics.jsonl"
EXACT = ("learning_rate",)
"""Figures of each step that are not measurements, so they are not smoothed."""
COUNTS = ("n", "cut", "unknown", "skipped")
SMOOTHING = 0.01
"""The share of a run's steps over which a raw curve is smoothed."""
PANEL = (4.6, 3.2)
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
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1] if path.exists() else [], 1):
        step = step_of(line)
        if step is None:
            raise CheckpointError(
                f"{path}:{number}: each line must be a JSON object with a step; got {line[:60]!r}. Correct the line or "
                "delete it."
            )
        told = json.loads(line)
        if told.get("kind") not in ("train", "dev"):
            continue
        into = train if told["kind"] == "train" else dev
        best = step if told.get("best") is True else best
        for key, value in told.items():
            if key not in ("kind", "step", "epoch", "best", *COUNTS) and not isinstance(value, str | bool):
                into.setdefault(key, []).append((step, math.nan if value is None else float(value)))
    if not train and not dev:
        raise CheckpointError(
            f"{path} has no figures, because nothing has been trained yet. Train first, or name another run."
        )
    return Curves(str(run), train, dev, best)


def chosen(runs: Sequence[Curves], asked: Sequence[str]) -> list[str]:
    """Return the figures to draw: those asked for or, by default, the loss and the first share.

    Errors: `ConfigError` for one that no run has.
    """
    known = list(dict.fromkeys(metric for run in runs for metric in run.metrics))
    for metric in asked:
        if metric not in known:
            raise ConfigError(f"No run has a figure {metric!r}. {suggestion(metric, known)}")
    shares = [metric for metric in known if metric in SHARES]
    return list(asked) if asked else [*(["loss"] if "loss" in known else []), *shares[:1]]


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
    size = (PANEL[0] * columns, PANEL[1] * rows + 0.25 * len(runs) * (len(runs) > 1))
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
