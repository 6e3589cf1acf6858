"""A run in training: updates, evaluations, checkpoints and its end, as a generator of events."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from glassformer.data.batch import Batch
from glassformer.foundation.errors import DivergedError
from glassformer.model.transformer import Transformer
from glassformer.store.folders import newest
from glassformer.store.lock import RunLock
from glassformer.train.build import objective_of
from glassformer.train.distributed import ALONE, Ranks
from glassformer.train.diverged import first_bad_weight
from glassformer.train.evaluate import evaluate_model
from glassformer.train.events import Evaluated, Event, Finished, Metric, Progress, Sample, Saved, Started, Stopped
from glassformer.train.loop import StepReport, compute_in, train_steps
from glassformer.train.optimizer import build_optimizer
from glassformer.train.prepare import Prepared
from glassformer.train.resumable import Best, Standing
from glassformer.train.savers import saver_of
from glassformer.train.team import is_sharded


class Session:
    """One run. `train()` is a generator of events; logging and showing them is the caller's.

    Until `train()` ends, or this object does, the run is locked and no other process can train it. Of several processes
    (`ranks`) each has a session of its own; the first has the lock, saves, and decides what is best.
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
        ranks: Ranks = ALONE,
    ) -> None:
        self.run = run
        self.lock = lock
        self.ranks = ranks
        self.recipe = prepared.recipe
        self.prepared = prepared
        self.model = model
        self.sharded = is_sharded(next(model.parameters()))
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
        self.saver = saver_of(run, prepared, model, self.optimizer, ranks)
        self.epoch = 0
        self._interrupted = False

    def interrupt(self) -> None:
        """Asks for a checkpoint after the present step, and an end."""
        self._interrupted = True

    def train(self) -> Iterator[Event]:
        """Trains from where the run stands to its last step. Errors: `CheckpointError` where another has begun to."""
        if self.ranks.first:
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
        # The blocks of a model that is cut have their weights in the arithmetic of training alone.
        precision = recipe.training.precision if self.sharded else "float32"
        with compute_in(precision, next(self.model.parameters()).device):
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
                f"{self._blame()} "
                "Try a lower training.learning_rate or a longer training.warmup."
            )
        samples = [
            Sample(pair.source, pair.target, output)
            for pair, output in islice(zip(dev.pairs, scores.outputs, strict=True), recipe.training.samples)
        ]
        is_best = self.ranks.of_first(self._is_better(scores.metrics)) == 1.0
        self.best = Best(self.step, scores.metrics) if is_best else self.best._replace(since=self.best.since + 1)
        return Evaluated(self.step, scores.metrics, samples, is_best)

    def _updates(self) -> Iterator[StepReport]:
        if self._out_of_patience():  # a run that stopped for it, resumed
            return
        training = self.recipe.training
        try:
            yield from train_steps(
                self.model,
                self._batches(),
                self.optimizer,
                training.rates,
                objective=self.objective,
                start=self.step,
                seed=training.seed,
                accumulate=training.accumulate,
                clip=training.clip,
                label_smoothing=training.label_smoothing,
                precision=training.precision,
                ranks=self.ranks,
            )
        except DivergedError as error:
            raise self._diverged(str(error)) from None

    def _diverged(self, reason: str) -> DivergedError:
        kept = newest(self.run).folder
        where = f"The last checkpoint, {kept}, is intact." if kept else "There is no checkpoint yet."
        return DivergedError(f"{reason} {where}")

    def _blame(self) -> str:
        """What is wrong with the weights; of a model that is cut no process knows."""
        if self.sharded:
            return "Some weights are too large or not finite."
        return first_bad_weight(self.model) or "All weights are finite, so some are too large."

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
        if self.ranks.any(self._interrupted):  # a signal to one of them stops all, after the same step
            return "interrupted"
        return "patience" if self._out_of_patience() else None

    def _out_of_patience(self) -> bool:
        patience = self.recipe.training.patience
        return bool(patience) and self.best.since >= patience

    def _save(self) -> Saved:
        return self.saver.save(Standing(self.step, self.best, self.prepared.fingerprints()))


def rank(metrics: dict[str, Metric], name: str) -> tuple[float, float]:
    """What is larger for the better of two evaluations; of two that are equal by `name`, that of the lower loss."""
    value, loss = float(metrics[name]), float(metrics["loss"])
    return (-value if name == "loss" else value), -loss
