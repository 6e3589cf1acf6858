"""Write the checkpoints of a run in training, one at a time and in the background, each as of its own step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Moments, Snapshot, take_snapshot, write_snapshot
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import RunLock, newest, rotate, step_folder
from glassformer.train.optimizer import Average, averaged, merged, optimizer_state
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.ranks.sharded import agreed, put_back, take_parts, write_parts
from glassformer.train.recipe import dumps_recipe
from glassformer.train.records import Saved, Unsaved, sync_figures
from glassformer.train.run.resumable import Standing
from glassformer.train.run_data import RunData


class Job(NamedTuple):
    """A checkpoint to be written."""

    step: int
    best: int | None
    """The step of the best checkpoint at that time."""
    snapshot: Snapshot


@dataclass(eq=False)
class Saver:
    """Writes the checkpoints of one run, in its own thread if `checkpoint.background` is set.

    A save that fails for lack of room or of a folder does not end the run: the failure is reported once, and the next
    save that is due is another try. The best checkpoint cannot be replaced by the next one, so it is kept in memory
    until the disk takes it; until then the previous best stays on disk. Errors of other kinds are raised by the next
    call, and so is the error of a folder that holds another run by now (`RunLock.refuse_replaced`), where nothing is
    written.
    """

    lock: RunLock
    prepared: RunData
    model: Transformer
    optimizer: torch.optim.Optimizer
    kept_best: int | None
    """Step of the newest checkpoint on disk that was the best when it was saved."""
    average: Average | None
    ranks: Ranks
    damaged: set[Path] = field(default_factory=set[Path])
    """Checkpoints that a resume skipped as damaged; they do not count among those to keep."""
    failure: Unsaved | None = None
    """The failure of the newest save, if it failed."""
    owed: Job | None = None
    """The best checkpoint, as long as it is not on disk."""
    _thread: Thread | None = None
    _outcomes: list[Saved | Unsaved] = field(default_factory=list[Saved | Unsaved])
    _error: BaseException | None = None

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """Start to save the run as it stands, after the previous save is done. Yields the outcome of earlier saves.

        Also yields the outcome of this one if it is not written in the background.

        Errors: `DivergedError` for weights that are not finite.
        """
        yield from self.wait()
        settings = self.prepared.recipe.checkpoint
        kept = optimizer_state(self.optimizer, self.model)
        if self.average:
            kept = merged(kept, self.average.state())
        with averaged(self.average, standing.step):
            snapshot = self._snapshot(kept, standing.to_state())
            if settings.background or self.average:  # the average is the model's weights in this `with` only
                snapshot = snapshot.copied()
        jobs = [Job(standing.step, standing.best.step, snapshot)]
        if self.owed is not None and self.owed.step == standing.best.step != standing.step:
            jobs.insert(0, self.owed)
        if settings.background:
            self._thread = Thread(target=self._work, args=(jobs,), name="checkpoint")
            self._thread.start()
        else:
            self._work(jobs)
            yield from self.wait()

    def done(self) -> Iterator[Saved | Unsaved]:
        """Yield the outcome of the saves since the last call, without waiting."""
        if self._thread is None or not self._thread.is_alive():
            yield from self.wait()

    def wait(self) -> Iterator[Saved | Unsaved]:
        """Wait for the current save, then yield the outcome of the saves since the last call."""
        self.close()
        outcomes, self._outcomes = self._outcomes, []
        yield from outcomes
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Wait until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def refuse_unsaved(self) -> None:
        """Call at the end of training. Errors: `ResourceError` if the last or the best checkpoint is not on disk."""
        failure = self.failure or (self.owed and Unsaved(self.owed.step, "it was the best one."))
        if failure is None:
            return
        run = self.lock.run
        kept = newest(run).folder
        raise ResourceError(
            f"The checkpoint of step {failure.step} could not be saved, not even at the end of training: "
            f"{failure.reason} {f'The last one saved is {kept}' if kept else 'There is no checkpoint yet'}. Once there "
            f"is room, `glassformer resume {shlex.quote(str(run))}` repeats the steps since, with the same result."
        )

    def _work(self, jobs: list[Job]) -> None:
        try:
            for job in jobs:
                self._write(job)
        except BaseException as error:  # raised later, in the thread that trains
            self._error = error

    def _write(self, job: Job) -> None:
        folder = step_folder(self.lock.run, job.step)
        self.lock.refuse_replaced()
        try:
            notes = self._written(folder, job.snapshot)
        except (CheckpointError, ResourceError) as error:
            if self.failure is None:
                self._outcomes.append(Unsaved(job.step, str(error)))
            self.failure = Unsaved(job.step, str(error))
            if job.step == job.best:
                self.owed = job if self._thread else job._replace(snapshot=job.snapshot.copied())
            return
        self.failure = None
        if job.step == job.best:
            self.kept_best, self.owed = job.step, None
        self._outcomes.append(Saved(job.step, folder, (*notes, *self._rotate(folder))))

    def _snapshot(self, kept: Moments, state: Mapping[str, object]) -> Snapshot:
        return take_snapshot(self.model, self.prepared.tokenizers, optimizer=kept, state=state)

    def _written(self, folder: Path, snapshot: Snapshot) -> tuple[str, ...]:
        notes = self._ready()
        write_snapshot(folder, snapshot)
        return notes

    def _ready(self) -> tuple[str, ...]:
        """Create the run folder, and what it must hold before a checkpoint."""
        self.lock.take()
        notes = self._recipe_again()
        sync_figures(self.lock.run)
        return notes

    def _recipe_again(self) -> tuple[str, ...]:
        """Rewrite the recipe if the folder was deleted, because a run cannot be resumed without it."""
        path = self.lock.run / "recipe.toml"
        if path.exists():
            return ()
        write_text_atomically(path, dumps_recipe(self.prepared.recipe))
        return (f"{path} was deleted, with everything else in the run folder; it was written again",)

    def _rotate(self, complete: Path) -> list[str]:
        """Delete the checkpoints that need not be kept. Returns why any of them could not be deleted."""
        settings = self.prepared.recipe.checkpoint
        self.damaged.discard(complete)
        try:
            return rotate(
                self.lock.run,
                settings.keep,
                self.kept_best,
                keep_every=settings.keep_every,
                complete=complete,
                damaged=self.damaged,
            )
        except CheckpointError as error:
            return [str(error)]


# Which process writes the checkpoints of a run: the first one, or all of them together for a sharded model.


class ShardedSaver(Saver):
    """Writes the checkpoints of a sharded model, together with the other processes.

    Each process has a snapshot of its parts, and their writing threads communicate among themselves. If one of them
    fails to write, none has written, so all owe the same checkpoint. The first process reports, holds the lock and
    deletes old checkpoints.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.writers = self.ranks.aside(self.prepared.recipe.distributed.timeout)

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """Save as with one process; all processes call it after the same step."""
        put_back(self.model)
        yield from super().save(standing)

    def _snapshot(self, kept: Moments, state: Mapping[str, object]) -> Snapshot:
        return take_parts(self.model, self.prepared.tokenizers, self.ranks, optimizer=kept, state=state)

    def _written(self, folder: Path, snapshot: Snapshot) -> tuple[str, ...]:
        with agreed(self.writers):
            notes = self._ready() if self.ranks.first else ()
        write_parts(folder, snapshot, self.writers)
        return notes

    def _rotate(self, complete: Path) -> list[str]:
        return super()._rotate(complete) if self.ranks.first else []


class Bystander(Saver):
    """The saver of a process that has the same whole model as the first process, which saves it."""

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """Do nothing: the first process saves, and reports it."""
        yield from ()
