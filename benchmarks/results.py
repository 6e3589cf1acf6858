"""Expected results, the first table of docs/results.md: every recipe trained and scored, for several seeds.

Each run is `glassformer train` in a folder of its own, then `glassformer evaluate --json` on the test split. Training
seconds come from the run's timing.jsonl: from the first step to the last, including evaluations and checkpoints in
between. With --runs the folders stay: a finished run is not trained again, an interrupted one is resumed. Settings
after -- go to every training, as in: results.py --only copy --seeds 1 -- --training.steps 50
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from common import fail, machine
from experiments import Failure, Result, run_experiment
from rows import EXPERIMENTS, ROWS, Experiment

from glassformer.base.errors import GlassformerError
from glassformer.base.runtime import choose_threads
from glassformer.study.result import markdown, spread

HEAD = ("recipe", "measured on the test split", "mean (lowest–highest)", "training, seconds")


def main(words: Sequence[str] | None = None) -> int:
    """Run the requested experiments and print the table."""
    options = reader().parse_args(words)
    if unknown := set(options.only or ()) - ROWS.keys():
        names = ", ".join(map(repr, ROWS))
        return fail(f"There is no row {', '.join(map(repr, sorted(unknown)))}. Rows: {names}.")
    choose_threads()
    chosen = [each for each in ROWS.values() if each.name in options.only] if options.only else EXPERIMENTS
    with ExitStack() as stack:
        runs = Path(options.runs or stack.enter_context(tempfile.TemporaryDirectory(prefix="glassformer-results-")))
        results, failures = run_all(chosen, options, runs)
    record = {
        "machine": machine(),
        "settings": options.settings,
        "results": [each._asdict() for each in results],
        "failures": [each._asdict() for each in failures],
    }
    if options.out:
        Path(options.out).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    print(json.dumps(record) if options.json else table(chosen, results, failures))
    return 0 if all(each.skipped for each in failures) else 1


def run_all(
    chosen: Sequence[Experiment], options: argparse.Namespace, runs: Path
) -> tuple[list[Result], list[Failure]]:
    """Run all rows and seeds, one after the other, since each uses all processors.

    A failure does not stop the others.
    """
    results: list[Result] = []
    failures: list[Failure] = []
    for experiment in chosen:
        for seed in options.seeds:
            print(f"{experiment.name}, seed {seed}: ", end="", file=sys.stderr, flush=True)
            try:
                found = run_experiment(experiment, seed, runs, options.data, options.settings)
            except GlassformerError as error:
                found = Failure(experiment.name, seed, str(error))
            if isinstance(found, Result):
                results.append(found)
                score = found.metrics[experiment.metric]
                print(f"{experiment.metric} {score:.4f}, {found.seconds:.0f} s", file=sys.stderr)
                continue
            failures.append(found)
            print(why(found), file=sys.stderr)
            if found.skipped:
                break
    return results, failures


def table(chosen: Sequence[Experiment], results: Sequence[Result], failures: Sequence[Failure]) -> str:
    """Return the table, a row per experiment, then the missing figures with reasons, the seeds and the machine."""
    body: list[list[str]] = []
    for experiment in chosen:
        mine = [each for each in results if each.experiment == experiment.name]
        scores = [experiment.scale * float(each.metrics[experiment.metric]) for each in mine]
        seconds = [each.seconds for each in mine]
        figures = [spread(scores, 2, experiment.unit), spread(seconds, 0)]
        body.append([f"`{experiment.name}`", experiment.measures, *figures])
    below = [f"{each.experiment}, seed {each.seed}, {why(each)}" for each in failures]
    if results:
        seeds = ", ".join(map(str, dict.fromkeys(each.seed for each in results)))
        sizes = ", ".join(f"{size:,}" for size in dict.fromkeys(int(each.metrics["n"]) for each in results))
        below.append(f"Seeds {seeds}; {sizes} test pairs each; {machine()}.")
    return "\n".join([markdown(HEAD, body), "", *below])


def why(failure: Failure) -> str:
    """Say why there is no figure."""
    return f"{'skipped' if failure.skipped else 'failed'}: {failure.reason}"


def reader() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = argparse.ArgumentParser(
        prog="results.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="default: 1 2 3")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="some rows, by the name in the table")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="where multi30k/, sst2/, trec/, scan/ and others lie; without it their rows are left out",
    )
    parser.add_argument("--runs", metavar="FOLDER", help="where the runs go and stay (default: a temporary folder)")
    parser.add_argument("--out", metavar="FILE", help="also write all figures there, as JSON")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of the table")
    parser.add_argument("settings", nargs="*", metavar="-- --section.key value", help="settings for every training")
    return parser


if __name__ == "__main__":
    sys.exit(main())
