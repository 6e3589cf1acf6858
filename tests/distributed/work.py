"""What a process of several does in the tests: `python work.py FOLDER TASK...`, started with torchrun's variables.

Each task leaves what it found in FOLDER, by its name and the process's number, for the test to compare.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from glassformer.foundation.errors import DivergedError, GlassformerError
from glassformer.foundation.launched import launched
from glassformer.store.files import write_text_atomically
from glassformer.train.build import new_model
from glassformer.train.distributed import Ranks, joined
from glassformer.train.evaluate import evaluate_model
from glassformer.train.loop import train_steps
from glassformer.train.objective import objective_for
from glassformer.train.prepare import prepare
from glassformer.train.schedule import Schedule
from glassformer.train.session import Session, resume, start
from glassformer.train.sharded import cut
from glassformer.train.team import whole
from train.examples import batch, follow, model, recipe
from train.text_examples import text_recipe

UNEVEN = [(3, 5), (1, 1), (6, 2), (2, 8), (7, 7), (1, 9), (4, 3), (5, 1), (2, 2)]
BATCHES = (UNEVEN, UNEVEN[:4], UNEVEN[:1])
"""The last has fewer rows than there are processes."""
CASES = {
    "encoder-decoder": {},
    "tied": {"tie": True},
    "decoder": {"layout": "decoder"},
    "classify": {"layout": "classify"},
    "accumulated": {"accumulate": 2},
    "dropout": {"dropout": 0.3},
    "recomputed": {"recompute": 1, "n_layers": 3},
    "grouped": {"recompute": 2, "n_layers": 3},
    "experts": {"feed_forward": "experts", "n_experts": 3, "experts_per_token": 1, "balance_loss": 0.0},
}
"""Settings of what `trained` trains."""
SHARDED = ("encoder-decoder", "tied", "accumulated", "grouped", "experts")
AVERAGED = {"optimizer__average": 0.9}
LABELLED = {"data__task": "labelled", "data__layout": "label", "training__metric": "accuracy"}


def trained(name: str, ranks: Ranks, out: Path, *, shard: bool = False, accumulate: int | None = None) -> None:
    """Three updates of a small model in float64; the weights afterwards, and the reports."""
    settings = dict(CASES[name])
    layout, pieces = str(settings.pop("layout", "encoder-decoder")), int(str(settings.pop("accumulate", 1)))
    groups = int(str(settings.pop("recompute", 0)))
    network = model(layout, **settings)
    if shard:
        network = cut(network, ranks, "float32")
    reports = train_steps(
        network,
        [batch(layout, lengths, seed) for seed, lengths in enumerate(BATCHES)],
        torch.optim.SGD(network.parameters(), lr=1.0),
        Schedule("constant", 0.1, 3),
        accumulate=accumulate or pieces,
        clip=0.5,
        label_smoothing=0.1,
        recompute=groups,
        ranks=ranks,
    )
    figures = [[each.loss, each.grad_norm, each.tokens, each.pad_share] for each in reports]
    kept(f"{'sharded' if shard else 'whole'}-{name}", network, figures, ranks, out)


def kept(name: str, network: torch.nn.Module, figures: object, ranks: Ranks, out: Path) -> None:
    """Leave weights and figures."""
    weights = {key: whole(each.detach()).clone() for key, each in network.named_parameters()}
    save_file(weights, out / f"{name}.{ranks.number}.safetensors")
    write_text_atomically(out / f"{name}.{ranks.number}.json", json.dumps(figures))


def talk(ranks: Ranks, out: Path) -> None:
    """What the processes tell each other."""
    told = [
        ranks.all_sum(ranks.number + 0.5),
        ranks.largest(-ranks.number),
        ranks.any(ranks.number == 1),
        ranks.any(False),
        ranks.of_first(7.0 if ranks.first else math.nan),
        ranks.text_of_first("für alle" if ranks.first else "mine"),
    ]
    told.append(ranks.gathered([ranks.number + 0.1] * (1 + 2 * ranks.number)))
    try:
        ranks.refuse_difference("the train data", 2 if ranks.number == 1 else 3)
    except GlassformerError as error:
        told.append(str(error))
    write_text_atomically(out / f"talk.{ranks.number}.json", json.dumps(told))


def gradients(ranks: Ranks, out: Path) -> None:
    """All the cases, whole and cut."""
    for name in CASES:
        trained(name, ranks, out)
    for name in SHARDED:
        trained(name, ranks, out, shard=True)


def diverged(ranks: Ranks, out: Path) -> None:
    """A gradient that is not finite in the last process alone."""
    network = model()

    def poisoned(given):
        asked = objective_for(network)(given)
        if ranks.number == ranks.count - 1 and torch.is_grad_enabled():
            next(network.parameters()).data[5:] = math.nan
        return asked

    steps = train_steps(
        network,
        [batch("encoder-decoder", UNEVEN)] * 3,
        torch.optim.SGD(network.parameters(), lr=1.0),
        Schedule("constant", 0.1, 3),
        objective=poisoned,
        ranks=ranks,
    )
    try:
        told = str(list(steps))
    except DivergedError as error:
        told = str(error)
    write_text_atomically(out / f"diverged.{ranks.number}.json", json.dumps(told))


SCORED = {
    "encoder-decoder": {"data__dev_size": 23},
    "encoder": {"data__layout": "encoder", "data__dev_size": 23},
    "label": LABELLED,
    "one": {"data__dev_size": 1},
}
"""Settings of what `scores` scores; the last has fewer batches than there are processes."""


def scored(name: str, ranks: Ranks, out: Path) -> list[object]:
    """Figures, outputs and tables of an untrained model in float32, whose dev split has an uneven last batch."""
    changes = dict(SCORED[name])
    if name == "label":
        file = out / f"texts.{ranks.number}.tsv"
        file.write_text("".join(f"{'a b c d e'[: 1 + 2 * (n % 5)]}\t{'xyz'[n % 3]}\n" for n in range(23)), "utf-8")
        changes |= {f"data__{split}": str(file) for split in ("train", "dev")}
    asked = recipe(**changes)
    prepared = prepare(asked)
    network = new_model(asked, prepared.tokenizers)
    with torch.no_grad():
        for each in network.parameters():
            each.normal_(std=0.5)
    told = evaluate_model(
        network,
        prepared.dev.encoded,
        prepared.tokenizers,
        [pair.target for pair in prepared.dev.pairs],
        layout=asked.data.layout,
        max_new_tokens=6,
        batch_size=4,
        ranks=ranks,
    )
    return [told.metrics, told.outputs, told.details]


def scores(ranks: Ranks, out: Path) -> None:
    """All of them."""
    for name in SCORED:
        write_text_atomically(out / f"scored-{name}.{ranks.number}.json", json.dumps(scored(name, ranks, out)))


def run_of(out: Path, name: str) -> Path:
    """The run of a task."""
    return out / name


def followed(session: Session, ranks: Ranks, stop_after: int | None = None) -> list[str]:
    """A session to its end; asked to stop after a step, which only the last process is."""
    if ranks.first:
        events = follow(session, stop_after if ranks.count == 1 else None)
        return [type(event).__name__ for event in events]
    events = []
    for event in session.train():
        events.append(event)
        if stop_after == session.step and ranks.number == ranks.count - 1:
            session.interrupt()
    return [type(event).__name__ for event in events]


def begun(name: str, ranks: Ranks, out: Path, stop_after: int | None, **changes: object) -> None:
    """A new run, to its end or until the last process is asked to stop."""
    session = start(recipe(**changes), run_of(out, name), ranks)
    write_text_atomically(out / f"{name}.{ranks.number}.json", json.dumps(followed(session, ranks, stop_after)))


def run(ranks: Ranks, out: Path) -> None:
    """A run that the last process is asked to stop after step 5."""
    begun("run", ranks, out, 5)


def run_averaged(ranks: Ranks, out: Path) -> None:
    """The same, with an average of the weights."""
    begun("run-averaged", ranks, out, 5, **AVERAGED)


def run_sharded(ranks: Ranks, out: Path) -> None:
    """The same, with a model that is cut."""
    begun("run-sharded", ranks, out, 5, distributed__shard=True)


def run_through(ranks: Ranks, out: Path) -> None:
    """A run to its end."""
    begun("run", ranks, out, None)


def run_sharded_through(ranks: Ranks, out: Path) -> None:
    """The same, with a model that is cut."""
    begun("run-sharded", ranks, out, None, distributed__shard=True)


def text(ranks: Ranks, out: Path) -> None:
    """A run on running text, to its end; each process makes the token file, or finds that of the other."""
    session = start(text_recipe(out / "book.txt", model__dropout=0.0), run_of(out, "text"), ranks)
    write_text_atomically(out / f"text.{ranks.number}.json", json.dumps(followed(session, ranks)))


def go_on(ranks: Ranks, out: Path) -> None:
    """The rest of each run that lies there."""
    for name in sorted(each.parent.name for each in out.glob("run*/recipe.toml")):
        followed(resume(run_of(out, name), ranks=ranks), ranks)


def three_more(ranks: Ranks, out: Path) -> None:
    """Three more steps of the run that lies there."""
    session = resume(run_of(out, "run"), ranks=ranks)
    followed(session, ranks, session.step + 3)


def dies(ranks: Ranks, out: Path) -> None:
    """The last process is gone in the middle of an update."""

    def batches():
        yield batch("encoder-decoder", UNEVEN)
        if ranks.number == ranks.count - 1:
            os._exit(9)
        yield batch("encoder-decoder", UNEVEN)

    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    list(train_steps(network, batches(), optimizer, Schedule("constant", 0.1, 9), ranks=ranks))


def fails(ranks: Ranks, out: Path) -> None:
    """The last process has an error of its own."""
    if ranks.number == ranks.count - 1:
        raise GlassformerError("The file x.txt is not here.\nLook for it.")
    ranks.barrier()


def sleeps(ranks: Ranks, out: Path) -> None:
    """The last process falls silent, until it is killed."""
    if ranks.number == ranks.count - 1:
        sys.stdin.read()
    ranks.barrier()


TASKS = {
    each.__name__: each
    for each in (
        *(talk, scores, gradients, diverged, run, run_averaged, run_sharded, run_through, run_sharded_through),
        *(text, go_on, three_more, dies, fails, sleeps),
    )
}


def main() -> int:
    """Do the tasks in turn."""
    out, timeout, *names = sys.argv[1:]
    torch.set_num_threads(1)
    try:
        with joined(launched(), "cpu", int(timeout)) as ranks:
            for name in names:
                TASKS[name](ranks, Path(out))
    except GlassformerError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
