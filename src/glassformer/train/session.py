"""A run from beginning to end: prepare, train, evaluate, save; and what can be done with it afterwards."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from glassformer.data.batch import Batch
from glassformer.foundation.errors import CheckpointError, DivergedError
from glassformer.foundation.runtime import choose_device, choose_threads
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import newest, rotate, step_folder
from glassformer.store.lock import RunLock
from glassformer.train.build import as_recipe, new_model, objective_of
from glassformer.train.chosen import chosen
from glassformer.train.diverged import first_bad_weight
from glassformer.train.evaluate import evaluate_model
from glassformer.train.events import Evaluated, Event, Finished, Metric, Progress, Sample, Saved, Started, Stopped
from glassformer.train.loop import StepReport, train_steps
from glassformer.train.optimizer import build_optimizer, load_optimizer_state, optimizer_state
from glassformer.train.precision import choose_precision
from glassformer.train.prepare import Prepared, model_config, prepare
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe
from glassformer.train.resumable import Best, Standing, refuse_other_data, refuse_other_model, standing
from glassformer.train.schedule import Schedule


class Session:
    """One run. `train()` is a generator of events; logging and showing them is the caller's.

    Until `train()` ends, or this object does, the run is locked and no other process can train it.
    """

    def __init__(
        self,
        run: Path,
        prepared: Prepared,
        model: Transformer,
        notes: list[str],
        lock: RunLock,
        step: int = 0,
        best: Best | None = None,
    ) -> None:
        self.run = run
        self.lock = lock
        self.recipe = prepared.recipe
        self.prepared = prepared
        self.model = model
        self.objective = objective_of(model, prepared.recipe)
        self.notes = notes
        self.step = step
        self.best = best or Best()
        training = self.recipe.training
        self.optimizer = build_optimizer(
            model,
            self.recipe.optimizer,
            learning_rate=training.learning_rate,
            dtype=torch.bfloat16 if training.precision == "bfloat16" else None,
        )
        self.epoch = 0
        self._interrupted = False

    def interrupt(self) -> None:
        """Asks for a checkpoint after the present step, and an end."""
        self._interrupted = True

    def train(self) -> Iterator[Event]:
        """Trains from where the run stands to its last step. Errors: `CheckpointError` where another has begun to."""
        self.lock.take()
        try:
            yield from self._train()
        finally:
            self.lock.release()

    def _train(self) -> Iterator[Event]:
        training, began = self.recipe.training, time.perf_counter()
        yield Started(self.step, training.steps, self.notes)
        for report in self._updates():
            self.step = report.number
            yield self._progress(report, time.perf_counter() - began)
            last = self.step == training.steps
            evaluated = None
            if last or (training.evaluate_every and self.step % training.evaluate_every == 0):
                yield (evaluated := self.evaluate())
            ended = self._ended(last)
            if ended or (evaluated and evaluated.is_best) or self._is_due():
                yield self._save()
            if ended:
                if ended != "done":
                    yield Stopped(self.step, ended)
                if ended == "interrupted":
                    return
                break
        yield Finished(self.step, time.perf_counter() - began, self.best.step, self.best.metrics)

    def evaluate(self) -> Evaluated:
        """Scores the dev split, and remembers the score if it is the best so far."""
        recipe, dev = self.recipe, self.prepared.dev
        scores = evaluate_model(
            self.model,
            dev.encoded,
            self.prepared.tokenizers,
            [pair.target for pair in dev.pairs],
            layout=recipe.data.layout,
            max_new_tokens=recipe.decode.max_new_tokens,
            batch_size=recipe.decode.batch_size,
            as_text=recipe.data.task == "pairs",
            objective=self.objective,
        )
        if not math.isfinite(loss := float(scores.metrics["loss"])):
            raise self._diverged(
                f"Training must stay finite; after step {self.step} the loss on the dev split is {loss}. "
                f"{first_bad_weight(self.model) or 'All weights are finite, so some are too large.'} "
                "Try a lower training.learning_rate or a longer training.warmup."
            )
        samples = [
            Sample(pair.source, pair.target, output)
            for pair, output in islice(zip(dev.pairs, scores.outputs, strict=True), recipe.training.samples)
        ]
        is_best = self._is_better(scores.metrics)
        self.best = Best(self.step, scores.metrics) if is_best else self.best._replace(since=self.best.since + 1)
        return Evaluated(self.step, scores.metrics, samples, is_best)

    def _updates(self) -> Iterator[StepReport]:
        if self._out_of_patience():  # a run that stopped for it, resumed
            return
        training = self.recipe.training
        schedule = Schedule(
            training.schedule, training.learning_rate, training.steps, training.warmup, training.min_learning_rate
        )
        try:
            yield from train_steps(
                self.model,
                self._batches(),
                self.optimizer,
                schedule,
                objective=self.objective,
                start=self.step,
                seed=training.seed,
                accumulate=training.accumulate,
                clip=training.clip,
                label_smoothing=training.label_smoothing,
                precision=training.precision,
            )
        except DivergedError as error:
            raise self._diverged(str(error)) from None

    def _diverged(self, reason: str) -> DivergedError:
        kept = newest(self.run).folder
        where = f"The last checkpoint, {kept}, is intact." if kept else "There is no checkpoint yet."
        return DivergedError(f"{reason} {where}")

    def _batches(self) -> Iterator[Batch]:
        for epoch, batch in self.prepared.batches(self.step):
            self.epoch = epoch
            yield batch

    def _progress(self, report: StepReport, seconds: float) -> Progress:
        return Progress(
            step=report.number,
            steps=self.recipe.training.steps,
            epoch=self.epoch,
            loss=report.loss,
            learning_rate=report.learning_rate,
            grad_norm=report.grad_norm,
            tokens_per_second=report.tokens / max(report.seconds, 1e-9),
            pad_share=report.pad_share,
            seconds=seconds,
        )

    def _is_better(self, metrics: dict[str, Metric]) -> bool:
        name = self.recipe.training.metric
        return self.best.step is None or rank(metrics, name) > rank(self.best.metrics, name)

    def _is_due(self) -> bool:
        every = self.recipe.checkpoint.every
        return bool(every) and self.step % every == 0

    def _ended(self, last: bool) -> str | None:
        """Why training ends after this step; None: it goes on."""
        if last:
            return "done"
        if self._interrupted:
            return "interrupted"
        return "patience" if self._out_of_patience() else None

    def _out_of_patience(self) -> bool:
        patience = self.recipe.training.patience
        return bool(patience) and self.best.since >= patience

    def _save(self) -> Saved:
        state = Standing(self.step, self.best, self.prepared.fingerprints()).to_state()
        folder = step_folder(self.run, self.step)
        moments = optimizer_state(self.optimizer, self.model)
        save(folder, self.model, self.prepared.tokenizers, optimizer=moments, state=state)
        rotate(self.run, self.recipe.checkpoint.keep, self.best.step, complete=folder)
        return Saved(self.step, folder)


def rank(metrics: dict[str, Metric], name: str) -> tuple[float, float]:
    """What is larger for the better of two evaluations; of two that are equal by `name`, that of the lower loss."""
    value, loss = float(metrics[name]), float(metrics["loss"])
    return (-value if name == "loss" else value), -loss


def start(recipe: Recipe, out: Path) -> Session:
    """A new run in the folder `out`, which then holds its recipe. Errors: those of reading the data and the recipe."""
    device, threads, notes = _runtime(recipe)
    prepared, model = _fresh(recipe, device)
    few = [batch.split(recipe.training.accumulate)[0] for _, batch in islice(prepared.batches(0), 2)]
    precision, why = choose_precision(recipe.training.precision, model, few)
    recipe = replace(recipe, training=replace(recipe.training, precision=precision, threads=threads))
    with _locked(out) as lock:
        write_text_atomically(out / "recipe.toml", dumps_recipe(recipe))
        notes = [*notes, f"arithmetic: {why}", *chosen(model, prepared), *_unlocked(lock)]
        return Session(out, replace(prepared, recipe=recipe), model, notes, lock)


def resume(run: Path) -> Session:
    """A run as its newest intact checkpoint left it; one that was stopped before its first, from step 0 of its recipe.

    Errors: `CheckpointError` where all checkpoints are damaged, and where data or model changed.
    """
    recipe = load_recipe(run / "recipe.toml")
    with _locked(run) as lock:  # before anything is read that another process might be writing
        device, _, notes = _runtime(recipe)
        found = newest(run)
        as_before = f"arithmetic: {recipe.training.precision}, as in the run so far"
        if found.folder is None and not found.skipped:
            prepared, model = _fresh(recipe, device)
            notes = ["there is no checkpoint yet, so training begins at step 0", *notes, as_before]
            return Session(run, prepared, model, [*notes, *chosen(model, prepared), *_unlocked(lock)], lock)
        if found.folder is None:
            damaged = "".join(f"{each.reason} " for each in found.skipped[:2])
            raise CheckpointError(
                f"{run} has no intact checkpoint to go on from. {damaged}"
                "Start over with `glassformer train ... --overwrite`."
            )
        loaded = load(found.folder, device=device)
        so_far = standing(loaded.state, found.folder, recipe.training.metric)
        prepared = prepare(recipe, loaded.tokenizers)
        refuse_other_model(run, loaded.model.config, model_config(recipe, loaded.tokenizers))
        refuse_other_data(run, so_far.data, prepared.fingerprints())
        notes = [f"resumed from {found.folder}", *notes, *(f"passed over: {each.reason}" for each in found.skipped)]
        model = as_recipe(loaded.model, recipe)
        notes += [as_before, *chosen(model, prepared)]
        session = Session(run, prepared, model, [*notes, *_unlocked(lock)], lock, so_far.step, so_far.best)
        load_optimizer_state(session.optimizer, model, load_optimizer(found.folder, device=device))
        return session


def _fresh(recipe: Recipe, device: torch.device) -> tuple[Prepared, Transformer]:
    """The data, and the model before its first step: a function of the recipe alone."""
    prepared = prepare(recipe)
    return prepared, new_model(recipe, prepared.tokenizers).to(device)


@contextmanager
def _locked(run: Path) -> Generator[RunLock]:
    """The lock, taken; it is given back if the `with` ends in an error, even where someone keeps its traceback."""
    lock = RunLock(run)
    lock.take()
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _unlocked(lock: RunLock) -> list[str]:
    return [] if lock.works else ["lock: there are none here, so take care that no second process trains this run"]


def _runtime(recipe: Recipe) -> tuple[torch.device, int, list[str]]:
    device, why = choose_device(recipe.training.device)
    number, threads = choose_threads(recipe.training.threads)
    return device, number, [f"device: {why}; {threads}"]
