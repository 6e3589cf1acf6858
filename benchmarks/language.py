"""How fast and how well a character language model learns tiny Shakespeare: whole commands, timed by the clock.

Each row is one `glassformer train lm` in a process of its own, from start to end: reading the text, training, scoring
the whole dev split (the last tenth of the text, each character once; in the row of twenty minutes after at least 128
characters of context) and saving. For comparison: nanoGPT's recipe for a processor has 1.88 after 2,000 steps, its
recipe for a GPU 1.4697 (its README; there the mean over random windows). Run nothing else on the machine: the seconds
are what counts here.

The seconds asked for are those of a machine on which nanoGPT's command for a processor takes 76. With --nanogpt it is
run here too, after each of ours, and the seconds are scaled by its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from common import fail, machine
from experiments import glassformer

from glassformer.study.result import markdown, spread

TEXT = Path("tinyshakespeare", "input.txt")
NANOGPT = 76.0
"""Seconds of nanoGPT's command on the machine for which the budgets were set."""
ITS_COMMAND = (
    *("train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--eval_iters=20"),
    *("--log_interval=1", "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128"),
    *("--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"),
)
"""That command, of its README."""


class Budget(NamedTuple):
    """A number of seconds, and the loss to reach in them."""

    name: str
    seconds: float
    loss: float
    """Nats per character."""
    settings: tuple[str, ...]


SHORT = ("--model.convolution", "2", "--model.qk-norm", "rms", "--model.bias", "false")
"""What lets a smaller model learn as much in a short run."""
BUDGETS = (
    Budget(
        "seconds",
        9,
        1.886,
        (
            *("--model.n-layers", "2", "--model.d-model", "64", "--model.d-ff", "256", "--model.n-heads", "2", *SHORT),
            *("--data.window", "64", "--training.steps", "160", "--training.warmup", "10"),
            *("--optimizer.momentum", "0.8"),
        ),
    ),
    Budget(
        "a minute",
        76,
        1.52,
        (
            *("--model.d-model", "96", "--model.d-ff", "384", "--model.n-heads", "3", *SHORT),
            *("--training.steps", "1250"),
        ),
    ),
    Budget(
        "twenty minutes",
        1200,
        1.4697,
        (
            *("--model.n-layers", "5", "--model.d-model", "192", "--model.d-ff", "768", "--model.n-heads", "3"),
            *("--model.dropout", "0.1", "--data.window", "256", "--data.stride", "128"),
            *("--training.steps", "3200", "--training.warmup", "100", "--training.learning-rate", "1e-2"),
            *("--optimizer.momentum", "0.95", "--checkpoint.every", "0"),
        ),
    ),
)


class Timed(NamedTuple):
    """The result of one command."""

    loss: float
    seconds: float
    of_nanogpt: float | None = None
    """The seconds of nanoGPT's command, if it was run after this one."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the commands and print the table. The exit code is 3 if a mean misses its budget."""
    options = reader().parse_args(words)
    if options.list:
        print("\n".join(f"glassformer train lm {' '.join(each.settings)}" for each in BUDGETS))
        return 0
    text = Path(options.data or "") / TEXT
    if not text.is_file():
        return fail(f"There is no {text}. --data names a folder that holds {TEXT}.")
    known = {each.name: each for each in BUDGETS}
    if unknown := set(options.only or ()) - known.keys():
        return fail(f"There is no row {', '.join(map(repr, sorted(unknown)))}. Rows: {', '.join(map(repr, known))}.")
    rows: dict[Budget, list[Timed]] = {}
    for budget in (known[name] for name in options.only or known):
        for seed in options.seeds:
            timed, problem = trained(budget, text, seed, options.settings)
            if timed is None:
                return fail(f"{budget.name}, seed {seed}: {problem}")
            if options.nanogpt:
                its, problem = nanogpt(Path(options.nanogpt))
                if its is None:
                    return fail(f"nanoGPT: {problem}")
                print(f"nanoGPT: {its.loss:.4f} in {its.seconds:.1f} s", file=sys.stderr, flush=True)
                timed = timed._replace(of_nanogpt=its.seconds)
            print(f"{budget.name}, seed {seed}: {timed.loss:.4f} in {timed.seconds:.1f} s", file=sys.stderr, flush=True)
            rows.setdefault(budget, []).append(timed)
    print(json.dumps({budget.name: found for budget, found in rows.items()}) if options.json else table(rows))
    return 0 if all(within(budget, found) for budget, found in rows.items()) else 3


def trained(budget: Budget, text: Path, seed: int, settings: Sequence[str]) -> tuple[Timed | None, str]:
    """Return the figures of one command, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="glassformer-language-") as folder:
        run = Path(folder) / "run"
        given = ("--data.text", str(text), "--training.evaluate-every", "0", f"--training.seed={seed}")
        began = time.perf_counter()
        code, _, problem = glassformer("train", "lm", "--out", str(run), *given, *budget.settings, *settings)
        seconds = time.perf_counter() - began
        if code:
            return None, problem
        figures = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
        return Timed(next(each["loss"] for each in figures if each["kind"] == "dev"), seconds), ""


def nanogpt(clone: Path) -> tuple[Timed | None, str]:
    """Return the figures of nanoGPT's command, run in a clone of it whose text is prepared, or what went wrong."""
    if not (clone / "data" / "shakespeare_char" / "train.bin").is_file():
        return None, f"{clone} has no prepared text. Run python data/shakespeare_char/prepare.py there."
    with tempfile.TemporaryDirectory(prefix="nanogpt-") as folder:
        began = time.perf_counter()
        command = [sys.executable, *ITS_COMMAND, f"--out_dir={folder}"]
        ran = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
    found = re.findall(r"step 2000: .*val loss ([\d.]+)", ran.stdout)
    return (Timed(float(found[0]), seconds), "") if found else (None, ran.stderr[-500:])


def seconds_for(budget: Budget, found: Sequence[Timed]) -> float:
    """The seconds that a budget allows: by nanoGPT's on this machine, if they were measured."""
    its = [each.of_nanogpt for each in found if each.of_nanogpt is not None]
    return budget.seconds * (fmean(its) / NANOGPT if its else 1.0)


def within(budget: Budget, found: Sequence[Timed]) -> bool:
    """Whether the means meet the budget."""
    seconds = fmean(each.seconds for each in found)
    return fmean(each.loss for each in found) <= budget.loss and seconds <= seconds_for(budget, found)


def table(rows: dict[Budget, list[Timed]]) -> str:
    """Return a table with a row for each budget."""
    body = [
        [
            f"{budget.loss} in {seconds_for(budget, found):.3g} s",
            spread([each.loss for each in found], 4),
            spread([each.seconds for each in found], 1),
            *([] if found[0].of_nanogpt is None else [spread([each.of_nanogpt or 0.0 for each in found], 1)]),
            f"`{' '.join(budget.settings)}`",
        ]
        for budget, found in rows.items()
    ]
    compared = any(each.of_nanogpt is not None for found in rows.values() for each in found)
    head = (
        *("asked", "loss, nats a character: mean (lowest–highest)", "whole command, seconds"),
        *(["nanoGPT's, seconds"] if compared else []),
        "settings of `train lm`",
    )
    return f"{markdown(head, body)}\n\n{machine()}"


def reader() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/run.py language", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="FOLDER", help=f"where {TEXT} lies")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="default: 1 2 3")
    parser.add_argument("--only", nargs="+", metavar="ROW", help=f"some of {', '.join(each.name for each in BUDGETS)}")
    parser.add_argument(
        "--nanogpt", metavar="CLONE", help="a clone of nanoGPT, whose command is run after each of ours"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the commands, without text and folder, and run nothing"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of the table")
    parser.add_argument("settings", nargs="*", metavar="-- --section.key value", help="settings for every training")
    return parser


if __name__ == "__main__":
    sys.exit(main())
