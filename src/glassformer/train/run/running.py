"""A run in training: updates, evaluations, checkpoints and its end, as a generator of events."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import torch

from glassformer.base.errors import ConfigError, DivergedError
from glassformer.base.runtime import threads_kept
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.store.folders import RunLock, newest
from glassformer.train.loop import StepReport, train_steps
from glassformer.train.optimizer import Average, averaged
from glassformer.train.precision import LossScale, compute_in
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.sharded import cut, is_sharded
from glassformer.train.ranks.team import first_bad_weight
from glassformer.train.records import (
    Evaluated,
    Event,
    Finished,
    Metric,
    Overflowed,
    Progress,
    Skipped,
    Started,
    Stopped,
    figure,
    figures,
)
from glassformer.train.run.beginning import Plain, Speed, objective_of, optimizer_of
from glassformer.train.run.outlook import ANY, chosen, enough_beside, half_batch, memory_ran_out
from glassformer.train.run.resumable import Best, Standing
from glassformer.train.run.saving import Bystander, Saver, ShardedSaver
from glassformer.train.run_data import RunData
from glassformer.train.tasks import Task, task_of


class StoppedInEvaluationError(Exception):
    """Raised in the middle of an evaluation, to end it."""


class Session:
    """One run. `train()` is a generator of events; its caller logs and shows them.

    The run is locked, so that no other process can train it, until `train()` ends or this object is gone. With several
    processes (`ranks`) each has its own session; the first one holds the lock, saves, and decides which is best.
    """

    def __init__(
        self,
        lock: RunLock,
        prepared: RunData,
        model: Transformer,
        notes: list[str],
        so_far: Standing,
        *,
        save_first: bool = False,
        ranks: Ranks = ALONE,
        speed: Speed = Plain,
    ) -> None:
        """`notes`: how the run came to be. `so_far`: its standing.

        `save_first`: save before the first step, because the recipe has changed.
        """
        self.lock, self.run = lock, lock.run
        self.ranks = ranks
        self.recipe = prepared.recipe
        self.task = task_of(self.recipe.data)
        self.prepared = prepared
        self.model = model
        self.objective = objective_of(model, prepared.recipe)
        self.notes = [*notes, *chosen(model, prepared)]
        if not lock.works:
            self.notes.append("lock: not supported here, so make sure that no second process trains this run")
        if self.recipe.distributed.shard and ranks.count > 1:
            cut(model, ranks, self.recipe.training.precision)
        self.so_far = so_far
        self.save_first = save_first
        self.step, self.best = self.so_far.step, self.so_far.best
        self.skipped = self.so_far.skipped
        self.evaluation_due = self.so_far.evaluation_due
        training = self.recipe.training
        self.optimizer = optimizer_of(model, self.recipe)
        speed(model, self.optimizer)
        self.loss_scale = LossScale(next(model.parameters()).device) if training.precision == "float16" else None
        if self.loss_scale and so_far.loss_scale:
            self.loss_scale.load(so_far.loss_scale)
        memory = self.recipe.optimizer.average
        self.average = Average(model, memory) if memory else None
        kind = ShardedSaver if is_sharded(next(model.parameters())) else Saver if ranks.first else Bystander
        self.saver = kind(lock, prepared, model, self.optimizer, self.best.step, self.average, ranks)
        self.epoch = 0
        self.threads = torch.get_num_threads()
        """Those that the run trains with; `start` and `resume` give the caller his own back."""
        self._interrupted = False

    def interrupt(self) -> None:
        """Ask for a checkpoint after the current step, and for the end of training."""
        self._interrupted = True

    def train(self) -> Iterator[Event]:
        """Train from where the run stands to its last step, with the run's number of threads until this ends.

        Errors: `CheckpointError` if another process has begun to train it, `DivergedError` for what is not finite, and
        at the end `ResourceError` if the last checkpoint could not be saved.
        """
        if self.ranks.first:
            self.lock.take()
        with threads_kept():
            torch.set_num_threads(self.threads)
            try:
                yield from self._train()
            finally:
                self.saver.close()
                self.lock.release()

    def _train(self) -> Iterator[Event]:
        began = time.perf_counter()
        yield Started(self.step, self.recipe.training.steps, self.notes)
        try:
            ended = yield from self._steps(began)
            yield from self.saver.wait()
        except DivergedError as error:
            yield from self.saver.wait()
            raise DivergedError(f"{error} {self._with_less()}") from None
        self.saver.refuse_unsaved()
        if ended in ("interrupted", "patience"):
            yield Stopped(self.step, ended)
        if ended != "interrupted":
            decided = deciding(self.best, self.recipe.training.metric, self.task)
            seconds = time.perf_counter() - began
            yield Finished(self.step, seconds, self.best.step, self.best.metrics, decided, never_moved(self.best))

    def _with_less(self) -> str:
        """After a divergence, say which checkpoint is left and what to type to resume at half the learning rate.

        The schedule's final rate is halved, too, if it would otherwise be above the new peak, which is refused.
        """
        training = self.recipe.training
        halves = {"training.learning_rate": f"{training.learning_rate / 2:g}"}
        if training.min_learning_rate > float(halves["training.learning_rate"]):
            halves["training.min_learning_rate"] = f"{training.min_learning_rate / 2:g}"
        kept, less = newest(self.run).folder, " ".join(f"--{n.replace('_', '-')} {half}" for n, half in halves.items())
        if kept is None:
            return f"There is no checkpoint yet: train again with {less}, and --overwrite."
        allowed = " ".join(f"--allow-change {name}" for name in halves)
        again = f"glassformer resume {shlex.quote(str(self.run))} {allowed} {less}"
        return f"The last checkpoint, {kept}, is intact; continue from it with a lower learning rate: {again}"

    def _steps(self, began: float) -> Generator[Event, None, str | None]:
        """Make all remaining steps. Returns why training ended, or None if nothing was left to do."""
        if self.save_first:
            yield from self._save()
            yield from self.saver.wait()  # before the first step: until it is saved, the change must be named again
        if self.evaluation_due and (ended := (yield from self._after_step())):
            return ended
        for report in self._updates():
            self.step = report.number
            if self.average:
                self.average.update()
            if report.skipped:
                yield self._skip(report)
            if report.overflowed and self.loss_scale:
                yield Overflowed(self.step, self.loss_scale.scale, self.loss_scale.skipped)
            yield Progress(
                step=report.number,
                steps=self.recipe.training.steps,
                epoch=self.epoch,
                loss=report.loss,
                learning_rate=report.learning_rate,
                grad_norm=report.grad_norm,
                tokens_per_second=report.tokens / max(report.seconds, 1e-9),
                pad_share=report.pad_share,
                seconds=time.perf_counter() - began,
            )
            yield from self.saver.done()
            every = self.recipe.training.evaluate_every
            self.evaluation_due = self._is_last() or bool(every and self.step % every == 0)
            if ended := (yield from self._after_step()):
                return ended
        return None

    def _after_step(self) -> Generator[Event, None, str | None]:
        """Evaluate and save if they are due. Returns why training ends here, or None if it continues."""
        evaluated = None
        # Several processes always finish an evaluation together, so a signal that came before it must count now.
        if self.evaluation_due and not self.ranks.any(self._interrupted):
            stopped = suppress(StoppedInEvaluationError)  # the evaluation is then still due, and the checkpoint says so
            with stopped, self._enough("an evaluation", half_batch(self.recipe)):
                evaluated = self.evaluate()
        if evaluated:
            self.evaluation_due = False
            yield evaluated
        ended = self._ended()
        if ended or (evaluated and evaluated.is_best) or self._is_due():
            yield from self._save()
        return ended

    def _enough(self, what: str, helps: str) -> AbstractContextManager[None]:
        return enough_beside(what, helps, self.saver, self.step)

    def evaluate(self) -> Evaluated:
        """Score the dev split, and remember the score if it is the best so far."""
        # A sharded model's blocks are gathered in the arithmetic of training only, and by all processes together, so
        # that each must read all batches.
        sharded = is_sharded(next(self.model.parameters()))
        precision, ranks = (self.recipe.training.precision, ALONE) if sharded else ("float32", self.ranks)
        with averaged(self.average, self.step), compute_in(precision, next(self.model.parameters()).device):
            scoring = self.prepared.scoring(self.model, self.objective)
            scores = self.prepared.dev.score(scoring._replace(poll=self._poll, ranks=ranks))
        if not math.isfinite(loss := float(scores.metrics["loss"])):
            blame = first_bad_weight(self.model, self.ranks) or "All weights are finite, so some are too large."
            raise DivergedError(
                f"Training must stay finite; after step {self.step} the loss on the dev split is {loss}. {blame} "
                "Try a lower training.learning_rate or a longer training.warmup."
            )
        if (metric := self.recipe.training.metric) not in scores.metrics:
            raise ConfigError(
                f"training.metric={metric!r} chooses the best checkpoint, but these dev data have none: they give "
                f"{', '.join(scores.metrics)}. Choose one of them, or other dev data."
            )
        is_best = self.ranks.of_first(self._is_better(scores.metrics)) == 1.0
        constant = still_constant(self.best, scores.metrics)
        best = Best(self.step, scores.metrics) if is_best else self.best._replace(since=self.best.since + 1)
        self.best = best._replace(constant=constant, evaluations=self.best.evaluations + 1)
        return Evaluated(
            self.step,
            scores.metrics,
            scores.samples,
            is_best,
            deciding(self.best, self.recipe.training.metric, self.task),
        )

    def _updates(self) -> Iterator[StepReport]:
        if self._out_of_patience():  # a run that stopped for lack of patience, resumed
            return
        training = self.recipe.training
        try:
            yield from train_steps(
                self.model,
                self._batches(),
                self.optimizer,
                training.rates,
                replace(training.update, skip_nonfinite=max(0, training.skip_nonfinite - self.skipped)),
                objective=self.objective,
                start=self.step,
                loss_scale=self.loss_scale,
                ranks=self.ranks,
            )
        except DivergedError as error:
            all_used = f" All {self.skipped} skips of training.skip_nonfinite are used up." if self.skipped else ""
            raise DivergedError(f"{error} {self.prepared.named_batch(self.step + 1)}{all_used}") from None
        except Exception as error:
            self.saver.close()  # so that the last checkpoint is on disk
            raise memory_ran_out(error, self.run, self.step, self.model, self.optimizer, self.prepared) from None

    def _skip(self, report: StepReport) -> Skipped:
        self.skipped += 1
        reason = f"{report.skipped} {self.prepared.named_batch(report.number)}"
        return Skipped(report.number, self.skipped, self.recipe.training.skip_nonfinite, reason)

    def _poll(self) -> None:
        if self._interrupted and self.ranks.count == 1:  # several finish it and then agree to stop
            raise StoppedInEvaluationError

    def _batches(self) -> Iterator[Batch]:
        for epoch, batch in self.prepared.batches(self.step):
            self.epoch = epoch
            yield batch

    def _is_better(self, metrics: dict[str, Metric]) -> bool:
        name = self.recipe.training.metric
        return self.best.step is None or rank(metrics, name, self.task) > rank(self.best.metrics, name, self.task)

    def _is_due(self) -> bool:
        every = self.recipe.checkpoint.every
        return bool(every) and self.step % every == 0

    def _is_last(self) -> bool:
        return self.step == self.recipe.training.steps

    def _ended(self) -> str | None:
        """Why training ends after this step; None if it continues."""
        if self._is_last() and not self.evaluation_due:
            return "done"
        if self.ranks.any(self._interrupted):  # a signal to one process stops all, after the same step
            return "interrupted"
        return "patience" if self._out_of_patience() else None

    def _out_of_patience(self) -> bool:
        patience = self.recipe.training.patience
        return bool(patience) and self.best.since >= patience

    def _save(self) -> Iterator[Event]:
        scale = self.loss_scale.state() if self.loss_scale else None
        now = self.so_far._replace(
            step=self.step,
            best=self.best,
            skipped=self.skipped,
            evaluation_due=self.evaluation_due,
            loss_scale=scale,
        )
        with self._enough("a checkpoint", "--checkpoint.no-background" if self.recipe.checkpoint.background else ANY):
            yield from self.saver.save(now)


def rank(metrics: dict[str, Metric], name: str, task: Task | type[Task]) -> tuple[float, ...]:
    """A sort key, larger for the better of two evaluations; where `name` ties, those of the task's that do decide."""
    first = [each for each in task.metrics if each.name == name]
    return tuple(
        float(metrics[each.name]) * (-1 if each.falls else 1)
        for each in (*first, *(each for each in task.metrics if each.decides))
        if each.name == name or each.name in metrics
    )


def still_constant(before: Best, metrics: dict[str, Metric]) -> tuple[str, ...]:
    """The metrics that have had one value at all evaluations, this one included."""
    if before.step is None:
        return tuple(name for name, value in metrics.items() if not isinstance(value, str))
    return tuple(name for name in before.constant if metrics.get(name) == before.metrics.get(name))


def deciding(best: Best, name: str, task: Task | type[Task]) -> str:
    """Which metric tells evaluations apart if `name` has been the same at each; empty if it has not, or none does."""
    moving = [
        each.name
        for each in task.metrics
        if each.decides and each.name in best.metrics and each.name not in best.constant
    ]
    if name not in best.constant or not moving:
        return ""
    return f"{name} is {figure(best.metrics[name])} at every evaluation, so {moving[0]} decides which is best"


def never_moved(best: Best) -> str:
    """The scores that were the same at each of three or more evaluations, in words; empty if none was.

    Left out are counts, and scores that were perfect from the first evaluation on: these surprise nobody.
    """
    same = {name: value for name, value in best.metrics.items() if name in best.constant and isinstance(value, float)}
    named = {name: value for name, value in same.items() if round(value, 6) not in (1.0, 100.0)}
    return f"the same at all {best.evaluations} evaluations: {figures(named)}" if named and best.evaluations > 2 else ""
