"""Short trials of a recipe on copies of its weights: for its learning rate, and for its gradient noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from glassformer.base.errors import ConfigError, DivergedError
from glassformer.base.runtime import Threads, choose_device, choose_threads, seeded, threads_kept
from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loop import count_targets, train_steps
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective
from glassformer.train.precision import compute_in
from glassformer.train.recipe import Recipe
from glassformer.train.run.beginning import Plain, Speed, begin, objective_of, optimizer_of
from glassformer.train.run_data import RunData
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Update

MEMORY = 0.9
"""The weight of the past in the smoothed loss."""
TOO_HIGH = 2.0
"""The test ends when the smoothed loss is this many times the lowest so far."""


class Tried(NamedTuple):
    """One update of the test."""

    rate: float
    loss: float
    """Before the update, in nats per target."""
    smoothed: float


class Found(NamedTuple):
    """The result of the test."""

    tried: list[Tried]
    lowest: float
    """The rate at which the smoothed loss is lowest."""
    recommended: float
    """A tenth of `lowest`."""

    @property
    def rises(self) -> bool:
        """Whether the loss was seen to rise after `lowest`; otherwise the test ended there."""
        return self.tried[-1].rate > self.lowest


@dataclass(frozen=True)
class Sweep(Schedule):
    """least * (peak / least)^((step - 1) / (steps - 1)): from `least` to `peak`, by the same factor each step."""

    def __call__(self, step: int) -> float:
        """The learning rate of the update number `step`."""
        return self.least * (self.peak / self.least) ** ((step - 1) / max(1, self.steps - 1))


def find_learning_rate(
    model: Transformer,
    batches: Iterable[Batch],
    optimizer: Callable[[Transformer], torch.optim.Optimizer],
    *,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
    how: Update = Update(),
    objective: Objective | None = None,
) -> Found:
    """The learning-rate range test (Smith 2017, section 3.3, with an exponential instead of a linear rise).

    `optimizer` makes an optimizer for a copy of the model, which is thrown away; `how` and `objective` are those of
    `train_steps`. The test ends at `highest`, or when the smoothed loss is `TOO_HIGH` times its lowest or NaN. It
    recommends a tenth of the rate with the lowest loss as the peak of a schedule, because the test is short and a run
    stays at its peak for longer. Errors: `ConfigError` for impossible bounds; `DivergedError` if not even the lowest
    rate trains.
    """
    if not 0.0 < lowest < highest < math.inf or steps < 2:
        raise ConfigError(
            f"A search for a learning rate needs 0 < lowest < highest and at least 2 steps; got {lowest} to {highest} "
            f"in {steps} steps. Try 1e-6 to 1.0 in 100 steps."
        )
    trial, tried, mean = copy.deepcopy(model), list[Tried](), 0.0
    try:
        for report in train_steps(
            trial, batches, optimizer(trial), Sweep("constant", highest, steps, least=lowest), how, objective=objective
        ):
            mean = MEMORY * mean + (1 - MEMORY) * report.loss
            smoothed = mean / (1 - MEMORY**report.number)  # corrects for the start of the mean at 0
            tried.append(Tried(report.learning_rate, report.loss, smoothed))
            if not smoothed < TOO_HIGH * min(each.smoothed for each in tried):
                break
    except DivergedError:
        if not tried:
            raise
    best = min(tried, key=lambda each: each.smoothed)
    return Found(tried, best.rate, best.rate / 10)


# The gradient noise scale: how large a batch is worth its cost.


class Norms(NamedTuple):
    """For one batch: squared norms of mean gradients, and the numbers of targets that these are means over."""

    whole: float
    targets: int
    pieces: list[float]
    piece_targets: list[int]


class Noise(NamedTuple):
    """The two quantities that the noise scale is computed from."""

    squared_gradient: float
    """|G|^2, the squared norm of the gradient without noise."""
    variance: float
    """tr(Sigma), the variance of the gradient of one target, summed over all parameters."""

    @property
    def scale(self) -> float:
        """tr(Sigma) / |G|^2, in targets; infinite if the noise hides the gradient."""
        return self.variance / self.squared_gradient if self.squared_gradient > 0 else float("inf")


def gradient_noise(
    model: Transformer,
    batches: Iterable[Batch],
    objective: Objective,
    *,
    pieces: int = 4,
    precision: str = "float32",
    seed: int = 0,
) -> Noise:
    """The simple noise scale tr(Sigma) / |G|^2 (McCandlish et al. 2018, equation 2.9), in targets.

    A batch with far fewer targets wastes steps; one with far more wastes computation. Each batch is cut into `pieces`,
    as `accumulate` cuts it, and the norms of their gradients are compared with that of the whole. Several batches are
    needed, because each estimate is noisy; the weights, which do not change, should be those of a model in training.
    The model's gradients are overwritten. Errors: `ConfigError` for fewer than 2 pieces, or if no batch has 2 rows.
    """
    if pieces < 2:
        raise ConfigError(
            f"Gradient noise is measured by comparing at least 2 pieces of each batch; got pieces={pieces}. Try "
            "pieces=4."
        )
    device = next(model.parameters()).device
    model.train()
    seen: list[Norms] = []
    for number, batch in enumerate(batches):
        parts = batch.split(pieces)
        if len(parts) < 2:
            continue
        total: list[Tensor] = []
        norms, targets = list[float](), list[int]()
        for i, part in enumerate(parts):
            model.zero_grad(set_to_none=True)
            count = count_targets(part, objective, number)
            with seeded(seed, number, i, device=device), compute_in(precision, device):
                loss = loss_of(model, part.to(device), objective).objective
            loss.backward()
            sums = [p.grad for p in model.parameters() if p.grad is not None]
            norms.append(_squared(sums) / count**2)
            targets.append(count)
            total = [one + other for one, other in zip(total, sums, strict=True)] if total else sums
        seen.append(Norms(_squared(total) / sum(targets) ** 2, sum(targets), norms, targets))
    model.zero_grad(set_to_none=True)
    return noise_of(seen)


def noise_of(seen: Iterable[Norms]) -> Noise:
    """Compute both quantities from norms of gradients over few and over many targets, as means over the batches.

    E|G_B|^2 = |G|^2 + tr(Sigma) / B for a mean over B targets (equation A.1), so that for two sizes b < B

        |G|^2     = (B |G_B|^2 - b |G_b|^2) / (B - b)            (equation A.2)
        tr(Sigma) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)            (equation A.3)

    without bias. For pieces of unequal size |G_b|^2 is the mean over them, and 1/b the mean of their inverse sizes.
    """
    gradients, variances = list[float](), list[float]()
    for whole, targets, pieces, sizes in seen:
        small, inverse = sum(pieces) / len(pieces), sum(1 / each for each in sizes) / len(sizes)
        variance = (small - whole) / (inverse - 1 / targets)
        variances.append(variance)
        gradients.append(whole - variance / targets)  # equation A.2, by A.1
    if not variances:
        raise ConfigError(
            "Gradient noise is measured by comparing pieces of a batch, but no batch has 2 rows. Give larger batches."
        )
    return Noise(sum(gradients) / len(gradients), sum(variances) / len(variances))


def _squared(gradients: Iterable[Tensor]) -> float:
    return sum(float(each.double().square().sum()) for each in gradients)


# The trials of a recipe.

MEASURED = (0, 20, 100)
"""Numbers of updates after which the noise is measured."""
BATCHES = 8
"""Batches that each measurement averages over."""


class NoiseAt(NamedTuple):
    """The noise after `step` updates, and the mean number of targets in a batch of the recipe."""

    step: int
    noise: Noise
    targets: float


@threads_kept()
def search(recipe: Recipe, speed: Speed = Plain) -> Found:
    """Run the learning-rate range test on the recipe's own model, data and settings."""
    choose_threads(recipe.training.threads)
    prepared, model = _made(recipe)

    def optimizer(trial: Transformer) -> Optimizer:
        made = optimizer_of(trial, recipe)
        speed(trial, made)
        return made

    return find_learning_rate(
        model,
        (batch for _, batch in prepared.batches(recipe.training.growth.steps)),
        optimizer,
        how=replace(recipe.training.update, skip_nonfinite=0),
        objective=objective_of(model, recipe),
    )


def noise_over(recipe: Recipe, speed: Speed = Plain) -> Iterator[NoiseAt]:
    """Measure the noise at the initial weights and during training, each time on the batches that come next."""
    training = recipe.training

    def measured() -> Generator[NoiseAt]:
        prepared, model = _made(recipe)
        objective, how = objective_of(model, recipe), replace(training.update, skip_nonfinite=0)
        full = training.growth.steps  # after a warm-up of the batches
        optimizer = optimizer_of(model, recipe)
        speed(model, optimizer)
        warm = Schedule("constant", training.learning_rate, max(MEASURED), min(training.warmup, max(MEASURED)))
        for step, until in zip((0, *MEASURED), MEASURED, strict=False):
            batches = (batch for _, batch in islice(prepared.batches(full + step), until - step))
            for _ in train_steps(model, batches, optimizer, warm, how, start=step, objective=objective):
                pass
            following = [batch for _, batch in islice(prepared.batches(full + until), BATCHES)]
            noise = gradient_noise(model, following, objective, seed=training.seed)
            yield NoiseAt(until, noise, sum(objective(batch).n_targets for batch in following) / BATCHES)

    yield from Threads(training.threads).through(measured())


def _made(recipe: Recipe) -> tuple[RunData, Transformer]:
    """The data, and the model before its first step."""
    device, _ = choose_device(recipe.training.device)
    prepared, model, _, _ = begin(recipe)
    return prepared, model.to(device)
