"""What a process of several does in the tests: `python work.py FOLDER TASK...`, started with torchrun's variables.

Each task leaves what it found in FOLDER, by its name and the process's number, for the test to compare.
"""

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from distributed import runs
from distributed.runs import leave, weights_of
from glassformer.base.errors import DivergedError, GlassformerError
from glassformer.base.launched import launched
from glassformer.store.files import write_text_atomically
from glassformer.train.evaluate import Scoring
from glassformer.train.loop import train_steps
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from glassformer.train.optimizer import Average
from glassformer.train.ranks.distributed import Ranks, joined
from glassformer.train.ranks.sharded import cut, local
from glassformer.train.run.beginning import new_model, prepare
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Update
from train.examples import batch, model, recipe

UNEVEN = [(3, 5), (1, 1), (6, 2), (2, 8), (7, 7), (1, 9), (4, 3), (5, 1), (2, 2)]
BATCHES = (UNEVEN, UNEVEN[:4], UNEVEN[:1])
"""The last has fewer rows than there are processes."""
CASES = {
    "encoder-decoder": {}, "tied": {"tie": True}, "decoder": {"layout": "decoder"}, "classify": {"layout": "classify"},
    "accumulated": {"accumulate": 2}, "dropout": {"dropout": 0.3}, "recomputed": {"recompute": 1, "n_layers": 3},
    "grouped": {"recompute": 2, "n_layers": 3},
    "experts": {"feed_forward": "experts", "n_experts": 3, "experts_per_token": 1, "balance_loss": 0.0},
}  # fmt: skip
"""Settings of what `trained` trains."""
MEMORY = 0.7
"""Of the average that it keeps."""
SHARDED = ("encoder-decoder", "tied", "accumulated", "grouped", "experts")
LABELLED = {"data__task": "labelled", "data__layout": "label", "training__metric": "accuracy"}


def trained(name: str, ranks: Ranks, out: Path, *, shard: bool = False, accumulate: int | None = None) -> None:
    """Three updates of a small model in float64; the weights afterwards, their average, its loss, and the reports."""
    settings = dict(CASES[name])
    layout, pieces = str(settings.pop("layout", "encoder-decoder")), int(str(settings.pop("accumulate", 1)))
    groups = int(str(settings.pop("recompute", 0)))
    network = model(layout, **settings)
    if shard:
        network = cut(network, ranks, "float32")
    average, batches = Average(network, MEMORY), [batch(layout, lengths, seed) for seed, lengths in enumerate(BATCHES)]
    figures: list[list[float]] = []
    for each in train_steps(
        network,
        batches,
        torch.optim.SGD(network.parameters(), lr=1.0),
        Schedule("constant", 0.1, 3),
        Update(accumulate=accumulate or pieces, clip=0.5, label_smoothing=0.1, recompute=groups),
        ranks=ranks,
    ):
        average.update()
        figures.append([each.loss, each.grad_norm, each.tokens, each.pad_share])
    kept: dict[str, torch.Tensor] = {}
    with average.in_place(len(figures)), torch.no_grad():
        kept |= {f"average/{key}": each for key, each in weights_of(network).items()}
        figures.append([loss_of(network.eval(), batches[0], objective_for(network)).nll.item()])
    leave(f"{'sharded' if shard else 'whole'}-{name}", kept | weights_of(network), figures, ranks, out)


def talk(ranks: Ranks, out: Path) -> None:
    """What the processes tell each other."""
    result = [
        ranks.all_sum(ranks.number + 0.5),
        ranks.largest(-ranks.number),
        ranks.any(ranks.number == 1),
        ranks.any(False),
        ranks.of_first(7.0 if ranks.first else math.nan),
        ranks.text_of_first("für alle" if ranks.first else "mine"),
    ]
    result.append(ranks.gathered([ranks.number + 0.1] * (1 + 2 * ranks.number)))
    try:
        ranks.refuse_difference("the train data", 2 if ranks.number == 1 else 3)
    except GlassformerError as error:
        result.append(str(error))
    write_text_atomically(out / f"talk.{ranks.number}.json", json.dumps(result))


def gradients(ranks: Ranks, out: Path) -> None:
    """All the cases, whole and cut."""
    for name in CASES:
        trained(name, ranks, out)
    for name in SHARDED:
        trained(name, ranks, out, shard=True)


def diverged(ranks: Ranks, out: Path) -> None:
    """A gradient that is not finite in the last process alone, in the first update: refused, or left out."""
    result = {f"{'cut' if shard else 'whole'}-{n}": struck(ranks, shard, n) for shard in (False, True) for n in (0, 1)}
    write_text_atomically(out / f"diverged.{ranks.number}.json", json.dumps(result))


def blamed(ranks: Ranks, out: Path) -> None:
    """What a model that is cut says of a weight that is not finite in the last process alone, and of an output."""
    up = "decoder.blocks.0.feed_forward.branch.up"
    seen: dict[str, str] = {}
    for what, value in (("weight", math.nan), ("output", 3e38)):
        network = cut(model().float(), ranks, "float32")
        with torch.no_grad():
            own = local(network.get_parameter(f"{up}.weight")).view(-1)
            if what == "output" or ranks.number == ranks.count - 1:
                (own if what == "output" else own[-1:]).fill_(value)
        optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
        steps = train_steps(
            network, [batch("encoder-decoder", UNEVEN)], optimizer, Schedule("constant", 0.1, 2), ranks=ranks
        )
        try:
            list(steps)
        except DivergedError as error:
            seen[what] = str(error)
    write_text_atomically(out / f"blamed.{ranks.number}.json", json.dumps(seen))


def struck(ranks: Ranks, shard: bool, skip: int) -> list[object]:
    """What each step said, or why there was none, and whether the weights were then those of the beginning.

    An average goes along, which needs the parts of the weights after a step that was left out too.
    """
    network = cut(model(), ranks, "float32") if shard else model()
    before, average, found = weights_of(network), Average(network, MEMORY), []

    def poisoned(module, given, output):
        if not found and output.requires_grad and ranks.number == ranks.count - 1:
            output.register_hook(lambda gradient: gradient * math.nan)

    def unmoved() -> bool:
        now = weights_of(network)
        return all(torch.equal(each, now[name]) for name, each in before.items())

    network.decoder.norm.register_forward_hook(poisoned)
    steps = train_steps(
        network,
        [batch("encoder-decoder", UNEVEN)] * 2,
        torch.optim.SGD(network.parameters(), lr=1.0),
        Schedule("constant", 0.1, 2),
        Update(skip_nonfinite=skip),
        ranks=ranks,
    )
    try:
        for each in steps:
            average.update()
            found.append([each.skipped, unmoved()])
    except DivergedError as error:
        found.append([str(error), unmoved()])
    return found


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
    requested = recipe(**changes)
    prepared = prepare(requested)
    network = new_model(requested, prepared.tokenizers)
    torch.manual_seed(0)  # the same weights in each process, whatever it did before
    with torch.no_grad():
        for each in network.parameters():
            each.normal_(std=0.5)
    ready = replace(requested, decode=replace(requested.decode, max_new_tokens=6, batch_size=4))
    scoring = Scoring(network, ready, prepared.tokenizers, objective_for(network), ranks=ranks)
    figures = prepared.dev.task.score(prepared.dev, scoring)
    return [figures.metrics, figures.outputs, figures.details]


def scores(ranks: Ranks, out: Path) -> None:
    """All of them."""
    for name in SCORED:
        write_text_atomically(out / f"scored-{name}.{ranks.number}.json", json.dumps(scored(name, ranks, out)))


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


TASKS = {each.__name__: each for each in (talk, scores, gradients, diverged, blamed, dies, fails, sleeps, *runs.TASKS)}


def main() -> int:
    """Do the tasks in turn."""
    out, timeout, *names = sys.argv[1:]
    torch.set_num_threads(1)
    try:
        with joined(launched(), "cpu", int(timeout), Path(out)) as ranks:
            for name in names:
                TASKS[name](ranks, Path(out))
    except GlassformerError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
