"""The experiments behind the table of expected results: one per row, run for one seed by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from files import FILES

from glassformer.cli.arguments import read_arguments
from glassformer.cli.verbs import VERBS
from glassformer.study.result import training_seconds
from glassformer.study.table import spread
from glassformer.train.recipe import anchored, dumps_recipe, load_recipe, override

MIXED = ("--data.min-length", "2", "--data.max-length", "16", "--training.steps", "1200")
SCAN = (
    *("--tokenizer.kind", "word", "--decode.max-new-tokens", "64"),  # commands of nine words: up to 48 actions
    *("--optimizer.name", "muon", "--training.learning-rate", "4e-3", "--training.steps", "5000"),
    *("--model.dropout", "0"),  # the task counts to 48, and each dropped number makes it miscount
    *("--model.positions", "rotary"),
)
INFLECTION = (
    *("--tokenizer.kind", "word", "--tokenizer.shared", "true", "--decode.max-new-tokens", "64"),
    *("--model.n-layers", "3", "--model.dropout", "0.2", "--training.label-smoothing", "0.1"),
    *("--model.positions", "rotary"),  # a form depends on how a word ends, wherever that is
    *("--optimizer.name", "muon", "--training.learning-rate", "4e-3", "--training.steps", "3000"),
)
SOUNDS = (
    *("--tokenizer.kind", "word", "--decode.max-new-tokens", "64"),
    *("--model.d-model", "192", "--model.d-ff", "768", "--model.n-layers", "3", "--model.positions", "rotary"),
    *("--optimizer.name", "muon", "--training.learning-rate", "4e-3", "--training.steps", "5000"),
    *("--training.batch-tokens", "4096"),  # a step of Muon costs as much as a batch of 2,048 tokens
)
TUNED = (
    *("--optimizer.weight-decay", "2", "--model.pooling", "mean"),
    *("--training.steps", "600", "--training.evaluate-every", "0"),  # use the last weights, whatever their score
)
SST2 = ("--tokenizer.kind", "bpe", "--tokenizer.vocab-size", "6000", "--tokenizer.min-count", "1", *TUNED)
MASKED = (
    *("--tokenizer.vocab-size", "12000", "--data.window", "64", "--data.mask-share", "0.3"),
    *("--model.n-layers", "1", "--model.d-ff", "256", "--model.activation", "relu", "--model.init", "normal"),
    *("--model.norm", "layer", "--model.qk-norm", "none"),  # the shape of the recipe classify
    *("--training.steps", "1500", "--training.warmup", "60"),
    *("--training.evaluate-every", "0", "--training.samples", "0"),
)
ARTICLES = (
    *("--model.dropout", "0.1", "--training.learning-rate", "6e-3", "--training.warmup", "100"),
    *("--training.evaluate-every", "0", "--training.samples", "0"),  # scoring takes a minute for 200,000 words
)


@dataclass(frozen=True)
class Experiment:
    """One row of the table."""

    name: str
    recipe: str
    measures: str
    metric: str = "exact_match"
    scale: float = 100.0
    unit: str = " %"
    settings: tuple[str, ...] = ()
    data: str | None = None
    """The public data set that it reads, by its name in `FILES`; None if the task makes its own data."""
    after: str | None = None
    """The name of the row whose run of the same seed this one starts from (`training.start_from`); None if none."""
    members: int = 1
    """Runs that answer together as a committee. Their training seeds are `seeds_of`."""


EXPERIMENTS = (
    Experiment("copy", "copy", "whole answers right; length 8"),
    Experiment("reverse", "reverse", "whole answers right; length 8"),
    Experiment("copy 2-16", "copy", "whole answers right; lengths 2 to 16", settings=MIXED),
    Experiment("reverse 2-16", "reverse", "whole answers right; lengths 2 to 16", settings=MIXED),
    Experiment("sort", "sort", "whole answers right; length 8"),
    Experiment("numbers", "numbers", "whole answers right"),
    Experiment("spell", "spell", "whole answers right; numbers held out of training"),
    Experiment(
        "multi30k",
        "multi30k",
        "BLEU of greedy translations, English to German, test_2016_flickr",
        metric="bleu",
        scale=1.0,
        unit="",
        data="multi30k",
    ),
    Experiment("sst2", "classify", "labels right; SST-2, its dev split", metric="accuracy", settings=SST2, data="sst2"),
    Experiment(
        "sst2 committee",
        "classify",
        "labels right; SST-2, its dev split, by nine runs as a committee",
        metric="accuracy",
        settings=SST2,
        data="sst2",
        members=9,
    ),
    Experiment("trec", "classify", "labels right; TREC, six kinds of questions", metric="accuracy", data="trec"),
    Experiment("scan", "seq2seq", "whole answers right; SCAN, simple split", settings=SCAN, data="scan"),
)
"""README's table."""
FURTHER = (
    Experiment(
        "scan length", "seq2seq", "whole answers right; SCAN, longer than any", settings=SCAN, data="scan length"
    ),
    Experiment("scan jump", "seq2seq", "whole answers right; SCAN, a new verb", settings=SCAN, data="scan jump"),
    *(
        Experiment(each, "seq2seq", f"forms right; {each.title()}, SIGMORPHON 2017", settings=INFLECTION, data=each)
        for each in ("german", "turkish", "finnish")
    ),
    Experiment(
        "german committee",
        "seq2seq",
        "forms right; German, SIGMORPHON 2017, by four runs as a committee",
        settings=INFLECTION,
        data="german",
        members=4,
    ),
    *(
        Experiment(
            name,
            "seq2seq",
            f"words said in one of their ways; CMUdict{by}",
            metric="any_match",
            settings=SOUNDS,
            data="cmudict",
            members=members,
        )
        for name, by, members in (("cmudict", "", 1), ("cmudict committee", ", by two runs as a committee", 2))
    ),
    Experiment(
        "wikitext-2 words",
        "lm",
        "perplexity of a word; WikiText-2, word by word",
        metric="word_perplexity",
        scale=1.0,
        unit="",
        settings=(*ARTICLES, "--tokenizer.kind", "word", "--training.steps", "1500"),
        data="wikitext-2 lines",
    ),
    Experiment(
        "wikitext-2 bpe",
        "lm",
        "perplexity of a word; WikiText-2, in 4,096 subwords",
        metric="word_perplexity",
        scale=1.0,
        unit="",
        settings=(*ARTICLES, "--tokenizer.kind", "bpe", "--tokenizer.vocab-size", "4096", "--training.steps", "2500"),
        data="wikitext-2 lines",
    ),
    Experiment(
        "wikitext-2 masked",
        "mlm",
        "nats a hidden token; WikiText-2 in lower case",
        metric="loss",
        scale=1.0,
        unit="",
        settings=MASKED,
        data="wikitext-2 reviews",
    ),
    Experiment(
        "sst2 tuned",
        "classify",
        "labels right; SST-2, its dev split, after `wikitext-2 masked`",
        metric="accuracy",
        settings=TUNED,
        data="sst2",
        after="wikitext-2 masked",
    ),
)
"""Rows that run only if named with `--only`."""
ROWS = {each.name: each for each in (*EXPERIMENTS, *FURTHER)}


class Result(NamedTuple):
    """The figures of one run."""

    experiment: str
    seed: int
    metrics: dict[str, float | int | str]
    seconds: float
    """Training time; for a committee, the sum over its members."""
    train: list[str]
    """The training command without the run folder; for a committee, that of its first member."""


class Failure(NamedTuple):
    """A run without figures, and the reason."""

    experiment: str
    seed: int
    reason: str
    skipped: bool = False
    """Whether it was not even tried."""


def run_experiment(
    experiment: Experiment, seed: int, runs: Path, data: str | None, settings: Sequence[str]
) -> Result | Failure:
    """Train and score, unless that is done already. Errors: those of the command line's own reader of settings."""
    if experiment.members > 1:
        return run_committee(experiment, seed, runs, data, settings)
    try:
        files = files_of(experiment, runs, data)
    except FileNotFoundError as missing:
        return Failure(experiment.name, seed, str(missing), skipped=True)
    train = [*experiment.settings, *files, *settings, f"--training.seed={seed}"]
    run, done = folder_of(experiment, seed, runs)
    before = ""
    if experiment.after is not None:
        first = ROWS[experiment.after]
        if isinstance(found := run_experiment(first, seed, runs, data, settings), Failure):
            return found._replace(experiment=experiment.name, reason=f"{first.name} comes before it: {found.reason}")
        run_before, done_before = folder_of(first, seed, runs)
        before = json.loads(done_before.read_text("utf-8"))["recipe"]
        train.append(f"--training.start-from={run_before}")
    recipe = wanted(experiment.recipe, train) + before
    if done.exists() and (record := json.loads(done.read_text("utf-8")))["recipe"] == recipe:
        return Result(**record["result"])
    if problem := train_run(experiment.recipe, train, run, recipe):
        return Failure(experiment.name, seed, problem)
    code, out, problem = glassformer("evaluate", str(run), "--json")
    if code:
        return Failure(experiment.name, seed, problem)
    result = Result(experiment.name, seed, json.loads(out), training_seconds(run), [experiment.recipe, *train])
    done.write_text(json.dumps({"recipe": recipe, "result": result._asdict()}, indent=2) + "\n", "utf-8")
    return result


def run_committee(
    experiment: Experiment, seed: int, runs: Path, data: str | None, settings: Sequence[str]
) -> Result | Failure:
    """Train and score each member alone, unless that is done already; then score all of them together."""
    alone = replace(experiment, members=1)
    members: list[Result] = []
    for each in seeds_of(experiment, seed):
        if isinstance(found := run_experiment(alone, each, runs, data, settings), Failure):
            return found._replace(seed=seed, reason=found.reason if found.skipped else f"seed {each}: {found.reason}")
        members.append(found)
    told = spread([each.metrics[experiment.metric] * experiment.scale for each in members], 2, experiment.unit)
    print(f"{told} alone; together ", end="", file=sys.stderr, flush=True)
    folders = [str(folder_of(alone, each.seed, runs)[0]) for each in members]
    code, out, problem = glassformer("evaluate", *folders, "--json")
    if code:
        return Failure(experiment.name, seed, problem)
    return Result(experiment.name, seed, json.loads(out), sum(each.seconds for each in members), members[0].train)


def seeds_of(experiment: Experiment, seed: int) -> range:
    """Return the training seeds of a committee's members. They are distinct across `seed`s, for up to 100 members."""
    return range(100 * seed + 1, 100 * seed + 1 + experiment.members)


def folder_of(experiment: Experiment, seed: int, runs: Path) -> tuple[Path, Path]:
    """Return the folder of a run, and the file of its figures."""
    run = runs / f"{experiment.name.replace(' ', '-')}-seed-{seed}"
    return run, run.with_name(run.name + ".json")


def train_run(recipe: str, settings: Sequence[str], run: Path, wanted: str) -> str | None:
    """Train, or resume a killed run of the same recipe. Return the error, if there was one."""
    begun = run.with_name(run.name + ".begun")
    if begun.exists() and begun.read_text("utf-8") == wanted and any(run.glob("checkpoints/step-*")):
        code, _, problem = glassformer("resume", str(run))
    else:
        run.parent.mkdir(parents=True, exist_ok=True)
        begun.write_text(wanted, "utf-8")
        code, _, problem = glassformer("train", recipe, "--out", str(run), "--overwrite", *settings)
    return problem if code else None


def wanted(recipe: str, settings: Sequence[str]) -> str:
    """Return the resolved recipe that `glassformer train` makes of these settings. Runs with another one are stale."""
    changes = read_arguments("train", VERBS["train"], [recipe, *settings]).changes
    return dumps_recipe(anchored(override(load_recipe(recipe), changes)))


def glassformer(*words: str) -> tuple[int, str, str]:
    """Run the command line, and return its exit code, its output and its last error line."""
    ended = subprocess.run([sys.executable, "-m", "glassformer", *words], capture_output=True, text=True)
    complaint = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "no reason given")
    return ended.returncode, ended.stdout, f"exit code {ended.returncode}: {complaint}"


def files_of(experiment: Experiment, runs: Path, data: str | None) -> list[str]:
    """Return the settings that name its files, none if the task makes its own data. Errors: `FileNotFoundError`."""
    if experiment.data is None:
        return []
    folder, files = FILES[experiment.data]
    if data is None:
        raise FileNotFoundError(f"it needs files; give --data, a folder that holds {folder}/")
    return files(Path(data) / folder, runs / "files" / experiment.data.replace(" ", "-"))
