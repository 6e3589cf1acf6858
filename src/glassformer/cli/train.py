"""`glassformer train RECIPE`, what it tells before it trains, and `resume RUN`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.base.launched import launched
from glassformer.cli.arguments import Arguments, named_recipe, refuse_idle_decoding, refuse_not_taken, with_settings
from glassformer.cli.help import width
from glassformer.cli.runs import RUNS, check_room, existing_run, recipe_of, room_for, run_folder
from glassformer.data.config import refuse_missing
from glassformer.store.files import absolute
from glassformer.store.folders import checkpoints
from glassformer.store.pictures import save_figure
from glassformer.train.recipe import Recipe, anchored, override
from glassformer.train.records import bytes_text, duration, refuse_unusable
from glassformer.train.tasks import task_of

if TYPE_CHECKING:
    from glassformer.train.ranks.distributed import Ranks
    from glassformer.train.run.beginning import Speed
    from glassformer.train.run.outlook import Outlook
    from glassformer.train.run.session import Session


TRIALS = ("dry-run", "find-learning-rate", "gradient-noise")
"""Flags that examine a run in advance and create none."""


def run(arguments: Arguments) -> int:
    """Train a recipe in a new run folder."""
    changes = with_settings(arguments, {"break": "training.broken"}, "Give only one, with all the names.")
    recipe = anchored(override(named_recipe(str(arguments.target), arguments.options), changes))
    refuse_missing(recipe.data)
    if task_of(recipe.data).window is None:  # running text: [decode] is used for its samples and later texts
        refuse_idle_decoding(f"the recipe {recipe.name}", recipe.data, changes)
    out = run_folder(arguments.options.get("out"), RUNS / recipe.name)
    if (other := recipe.training.start_from) is not None and absolute(Path(other).expanduser()) == absolute(out):
        raise ConfigError(f"A run cannot start from the run that it replaces, {out}. Name another folder with --out.")
    refuse_not_taken(recipe, arguments.options, changes)
    trial, place = trial_of(arguments), launched()
    if trial is not None:
        return look(trial, recipe, out, as_json="json" in arguments.options) if place.first else 0
    overwrite = "overwrite" in arguments.options
    if place.first:
        check_room(out, overwrite)

    def begun(ranks: Ranks, speed: Speed) -> Session:
        from glassformer.train.run.session import start

        with room_for(out) if place.first else nullcontext():
            return start(recipe, out, ranks, speed)

    return followed(recipe, out, begun)


def followed(recipe: Recipe, run: Path, begun: Callable[[Ranks, Speed], Session]) -> int:
    """Join the other processes, begin or resume a run by `begun`, and train it to its end or to a signal."""
    from glassformer.cli.follow import Signals, follow  # after the checks, as importing torch takes a second
    from glassformer.fast import for_training
    from glassformer.train.ranks.distributed import joined

    team = joined(launched(), recipe.training.device, recipe.distributed.timeout, run)
    with Signals() as signals, team as ranks:
        session = begun(ranks, for_training)
        hint, track = task_of(recipe.data).next_command(run), recipe.training.track
        return follow(session, run, signals, hint=hint, agreed=ranks.largest, track=track)


def trial_of(arguments: Arguments) -> str | None:
    """Return which of `TRIALS` was asked for, if any. Errors: `ConfigError` for two, and for --json without one."""
    requested = [name for name in TRIALS if name in arguments.options]
    if len(requested) > 1:
        raise ConfigError(
            f"--{requested[0]} and --{requested[1]} are two separate checks before a run. Give only one of them, then "
            "run the command again with the other."
        )
    if "json" in arguments.options and not requested:
        raise ConfigError(
            f"--json works only with {', '.join(f'--{name}' for name in TRIALS)}; a run writes its figures to "
            "metrics.jsonl. Remove it."
        )
    return requested[0] if requested else None


def look(trial: str, recipe: Recipe, out: Path, *, as_json: bool) -> int:
    """Run a trial, and return the exit code."""
    if trial == "dry-run":
        from glassformer.fast import for_training
        from glassformer.train.run.outlook import look_ahead  # here, as importing torch takes a second

        outlook = look_ahead(recipe, out, for_training)
        print(json.dumps(outlook.to_dict()) if as_json else "\n".join(map(fitted, lines(recipe, outlook))))
        return 0
    return (find_rate if trial == "find-learning-rate" else noise)(recipe, as_json=as_json)


# `glassformer train RECIPE` with --dry-run, --find-learning-rate or --gradient-noise: look ahead without a run.


def fitted(line: str) -> str:
    """Wrap a line of an outlook to the terminal, further lines below the first one's text; paths stay whole."""
    return fill(line, max(width(), 60), subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False)


def lines(recipe: Recipe, outlook: Outlook) -> list[str]:
    """Return the outlook as lines of text."""
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
        record = {"lowest": found.lowest, "rises": found.rises, "recommended": found.recommended}
        tried = [{name: finite(value) for name, value in each._asdict().items()} for each in found.tried]
        print(json.dumps(record | {"tried": tried, "picture": str(picture) if drawn else None}))
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


# `glassformer resume RUN`: continue an interrupted run.


def run_resume(arguments: Arguments) -> int:
    """Continue from the newest intact checkpoint, with the same result as if the run had not been interrupted."""
    folder = existing_run(str(arguments.target))
    # Before preparing the data, which may take minutes. The oldest, because the damaged ones are not known yet.
    refuse_unusable(folder, min(checkpoints(folder), default=0))
    recipe = override(recipe_of(folder), arguments.changes)

    def begun(ranks: Ranks, speed: Speed) -> Session:
        from glassformer.train.run.session import resume

        allowed = arguments.lists.get("allow-change", [])
        return resume(folder, allowed, arguments.changes, ranks=ranks, speed=speed)

    return followed(recipe, folder, begun)
