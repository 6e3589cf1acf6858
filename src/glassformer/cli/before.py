"""`glassformer train RECIPE` with --dry-run, --find-learning-rate or --gradient-noise: look ahead without a run."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.store.pictures import save_figure
from glassformer.train.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.train.run.outlook import Outlook


def dry_run(recipe: Recipe, out: Path, *, as_json: bool) -> int:
    """Print the outlook of a run. Nothing is written except the tokens of a text."""
    from glassformer.fast import for_training
    from glassformer.train.run.outlook import look_ahead  # here, as importing torch takes a second

    outlook = look_ahead(recipe, out, for_training)
    print(json.dumps(outlook.to_dict()) if as_json else "\n".join(lines(recipe, outlook)))
    return 0


def lines(recipe: Recipe, outlook: Outlook) -> list[str]:
    """Return the outlook as lines of text."""
    from glassformer.train.records import bytes_text, duration

    memory, disk, pace, data, training = outlook.memory, outlook.disk, outlook.pace, outlook.data, recipe.training
    parts = [("weights", memory.weights), ("gradients", memory.gradients), ("optimizer", memory.optimizer)]
    parts += [("average", memory.average)] if memory.average else []
    parts += [("snapshot", memory.snapshot)] if memory.snapshot else []
    parts += [("kernels", memory.kernels)] if memory.kernels else []
    parts += [("activations", memory.activations), ("peak", memory.peak)]
    width = max(len(name) for name, _ in parts)
    short = "" if disk.kept < disk.free else " -- NOT ENOUGH"
    return [
        *outlook.notes,
        "",
        f"parameters  {outlook.parameters:,}",
        "",
        f"memory      estimated for the largest batch of the first epoch ({training.batch_tokens:,} tokens, accumulate "
        f"{training.accumulate}, recompute {training.recompute}), beyond what the process already holds, without "
        "evaluation",
        *(f"            {name:{width}}  {bytes_text(size):>10}" for name, size in parts),
        *(f"            {line}" for line in outlook.heap),
        "",
        f"disk        {bytes_text(disk.checkpoint)} a checkpoint, {bytes_text(disk.kept)} at most with "
        f"checkpoint.keep={recipe.checkpoint.keep}; {bytes_text(disk.free)} free{short}",
        "",
        f"time        {1000 * pace.step_seconds:.0f} ms a step, {pace.tokens_per_second:,.0f} tokens/s, measured over "
        f"{pace.steps} steps; {training.steps:,} steps take {duration(pace.run_seconds)} without evaluation and saving",
        "",
        f"data        {data.samples:,} training {data.what}, {data.dev_samples:,} dev {data.what}; {data.tokens:,} "
        f"tokens, the longest sequence has {data.longest}",
        f"            {data.batches:,} batches per epoch, {data.padding:.1%} padding; the run is "
        f"{data.epochs:.1f} epochs",
        "",
        *written(outlook),
    ]


def written(outlook: Outlook) -> list[str]:
    """List what is now on disk that was not there before. It stays, because making it may take most of the time."""
    if not outlook.written:
        return ["Nothing was written."]
    return [
        "Nothing was written but the tokens of the text, which the run will find and so need not make again:",
        *(f"  {folder}" for folder in outlook.written),
    ]


def find_rate(recipe: Recipe, *, as_json: bool) -> int:
    """Print every fifth learning rate with its losses, and the recommendation. Plot it if matplotlib is installed."""
    from glassformer.fast import for_training
    from glassformer.study.plot import draw_rates
    from glassformer.train.run.trial import search

    found, picture = search(recipe, for_training), Path(f"{recipe.name}-rate.png")
    drawn = find_spec("matplotlib") is not None
    if drawn:
        save_figure(draw_rates(found), picture)
    if as_json:
        told = {"lowest": found.lowest, "rises": found.rises, "recommended": found.recommended}
        tried = [{name: finite(value) for name, value in each._asdict().items()} for each in found.tried]
        print(json.dumps(told | {"tried": tried, "picture": str(picture) if drawn else None}))
        return 0
    print(f"{'learning rate':>13}  {'loss':>8}  {'smoothed':>8}")
    for each in [*found.tried[:-1:5], found.tried[-1]]:
        print(f"{each.rate:13.2e}  {each.loss:8.4f}  {each.smoothed:8.4f}")
    beyond = "beyond that it rises" if found.rises else "that is the last rate tried, so it was not seen to rise"
    print(f"\nThe smoothed loss is lowest at {found.lowest:.2e}; {beyond}.")
    print(f"Recommended, a tenth of it: --training.learning-rate {found.recommended:.1e}")
    if drawn:
        print(f"Picture: {picture}")
    return 0


def noise(recipe: Recipe, *, as_json: bool) -> int:
    """Print the gradient noise scale at the initial weights and after some training."""
    from glassformer.fast import for_training
    from glassformer.train.run.trial import noise_over

    if as_json:
        rows = [
            {"step": at.step, "scale": finite(at.noise.scale), "targets": at.targets}
            for at in noise_over(recipe, for_training)
        ]
        print(json.dumps({"noise": rows}))
        return 0
    print(f"{'step':>5}  {'noise scale, targets':>20}  {'targets a batch':>15}")
    for at in noise_over(recipe, for_training):
        print(f"{at.step:5}  {at.noise.scale:20,.0f}  {at.targets:15,.0f}")
    print(
        "\nBatches of about as many targets as the noise scale are a fair trade: far smaller ones take more steps, far "
        "larger ones more computing, for the same loss. It grows in training."
    )
    return 0


def finite(value: float) -> float | None:
    """Return a finite number as it is, and any other as None, since JSON has no such number."""
    return value if math.isfinite(value) else None
