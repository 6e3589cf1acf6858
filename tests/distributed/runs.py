"""The runs of several processes in the tests, and what each process leaves of them; tasks of work.py."""

import errno
import json
import os
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from threading import Event
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystem

from glassformer.store.checkpoint import Snapshot
from glassformer.store.files import write_text_atomically
from glassformer.train.optimizer import merged, optimizer_state
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.ranks.sharded import whole, write_parts
from glassformer.train.run import saving
from glassformer.train.run.session import Session, resume, start
from train.examples import STEPS, follow, recipe
from train.text_examples import text_recipe

AVERAGED = {"optimizer__average": 0.9}
UNDROPPED = {"model__dropout": 0.0}


def that_matter(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """All but the biases of keys.

    Such a bias shifts all scores of a query alike and changes no answer, so its gradient is rounding alone; AdamW moves
    it as far as any other weight, this way or that.
    """
    return {name: each for name, each in weights.items() if not name.endswith(".key.bias")}


def weights_of(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of each parameter, whole."""
    return {key: whole(each.detach()).clone() for key, each in network.named_parameters()}


def leave(name: str, weights: dict[str, torch.Tensor], figures: object, ranks: Ranks, out: Path) -> None:
    """Leave weights and figures."""
    save_file(weights, out / f"{name}.{ranks.number}.safetensors")
    write_text_atomically(out / f"{name}.{ranks.number}.json", json.dumps(figures))


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


def run_undropped(ranks: Ranks, out: Path) -> None:
    """Both without dropout, so that any number of processes goes on alike."""
    begun("run", ranks, out, 5, **UNDROPPED)
    begun("run-sharded", ranks, out, 5, distributed__shard=True, **UNDROPPED, **AVERAGED)


def run_sharded_averaged(ranks: Ranks, out: Path) -> None:
    """The same, with a model that is cut, and the average of its weights."""
    begun("run-sharded-averaged", ranks, out, 5, distributed__shard=True, **AVERAGED)


def run_through(ranks: Ranks, out: Path) -> None:
    """A run to its end."""
    begun("run", ranks, out, None)


def run_sharded_through(ranks: Ranks, out: Path) -> None:
    """The same, with a model that is cut."""
    begun("run-sharded", ranks, out, None, distributed__shard=True)


def run_hindered(ranks: Ranks, out: Path) -> None:
    """A cut model: the last process has no room for the first checkpoint, the second is written a step later."""
    went_on = Event()
    saves: list[Path] = []

    def hindered(folder: Path, snapshot: Snapshot, others: Ranks) -> None:
        saves.append(folder)
        full = len(saves) == 1 and ranks.number == ranks.count - 1
        if len(saves) == 2:
            assert went_on.wait(600)
        with patch.object(FileSystem, "create_stream", no_room) if full else nullcontext():
            write_parts(folder, snapshot, others)

    events: list[str] = []
    with patch.object(saving, "write_parts", hindered):
        requested = recipe(distributed__shard=True, checkpoint__background=True)
        for event in start(requested, run_of(out, "hindered"), ranks).train():
            events.append(f"{type(event).__name__} {event.step}")
            if events[-1] == "Progress 9":
                went_on.set()
    result = [each for each in events if each.startswith(("Saved", "Unsaved", "Finished"))]
    write_text_atomically(out / f"hindered.{ranks.number}.json", json.dumps([result, [each.name for each in saves]]))


def no_room(*given: object, **more: object) -> None:
    """In place of a write."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def run_narrow(ranks: Ranks, out: Path) -> None:
    """A cut model in bfloat16, to its end and stopped on the way; that one goes on."""
    narrow = {"distributed__shard": True, "training__precision": "bfloat16"}
    begun("narrow-through", ranks, out, None, **narrow)
    begun("narrow", ranks, out, 5, **narrow)
    followed(resume(run_of(out, "narrow"), ranks=ranks), ranks)


def text(ranks: Ranks, out: Path) -> None:
    """A run on running text, to its end; each process makes the token file, or finds that of the other."""
    session = start(text_recipe(out / "book.txt", model__dropout=0.0), run_of(out, "text"), ranks)
    write_text_atomically(out / f"text.{ranks.number}.json", json.dumps(followed(session, ranks)))


def go_on(ranks: Ranks, out: Path) -> None:
    """The rest of each run that lies there."""
    for name in sorted(each.parent.name for each in out.glob("run*/recipe.toml")):
        followed(resume(run_of(out, name), ranks=ranks), ranks)


def look(ranks: Ranks, out: Path) -> None:
    """What a run goes on with: its weights and its optimizer, whole, and the next samples; nothing is trained."""
    for name in sorted(each.parent.name for each in out.glob("run*/recipe.toml")):
        session = resume(run_of(out, name), ranks=ranks)
        state = optimizer_state(session.optimizer, session.model)
        kept = merged(state, session.average.state()) if session.average else state
        found = {f"{slot}/{key}": whole(each).clone() for key, slots in kept.items() for slot, each in slots.items()}
        batches = [each.tokens.tolist() for _, each in islice(session.prepared.batches(session.step), STEPS)]
        leave(f"seen-{name}", weights_of(session.model) | found, batches, ranks, out)
        session.lock.release()


def three_more(ranks: Ranks, out: Path) -> None:
    """Three more steps of the run that lies there."""
    session = resume(run_of(out, "run"), ranks=ranks)
    followed(session, ranks, session.step + 3)


TASKS = (
    *(run, run_averaged, run_undropped, run_sharded, run_sharded_averaged, run_through, run_sharded_through),
    *(run_hindered, run_narrow),
    *(text, go_on, look, three_more),
)
