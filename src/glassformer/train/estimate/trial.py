"""Short trials of a recipe whose weights are thrown away: for its learning rate, and for its gradient noise."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from torch.optim import Optimizer

from glassformer.base.runtime import Threads, choose_device, choose_threads, threads_kept
from glassformer.nn.transformer import Transformer
from glassformer.train.estimate.find_rate import Found, find_learning_rate
from glassformer.train.estimate.gradient_noise import Noise, gradient_noise
from glassformer.train.loop import train_steps
from glassformer.train.optim.schedule import Schedule
from glassformer.train.recipe import Recipe
from glassformer.train.run.beginning import begin
from glassformer.train.run.build import Speed, objective_of, optimizer_of, plain
from glassformer.train.sources.run_data import RunData

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
def search(recipe: Recipe, speed: Speed = plain) -> Found:
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
        objective=objective_of(model, recipe),
        **_settings(recipe),
    )


def noise_over(recipe: Recipe, speed: Speed = plain) -> Iterator[NoiseAt]:
    """Measure the noise at the initial weights and during training, each time on the batches that come next."""
    yield from Threads(recipe.training.threads).through(_noise_over(recipe, speed))


def _noise_over(recipe: Recipe, speed: Speed) -> Generator[NoiseAt]:
    """What `noise_over` yields, with torch's threads as they are."""
    prepared, model = _made(recipe)
    training, objective = recipe.training, objective_of(model, recipe)
    full = training.growth.steps  # after a warm-up of the batches
    optimizer = optimizer_of(model, recipe)
    speed(model, optimizer)
    warm = Schedule("constant", training.learning_rate, max(MEASURED), min(training.warmup, max(MEASURED)))
    for step, until in zip((0, *MEASURED), MEASURED, strict=False):
        batches = (batch for _, batch in islice(prepared.batches(full + step), until - step))
        for _ in train_steps(model, batches, optimizer, warm, start=step, objective=objective, **_settings(recipe)):
            pass
        following = [batch for _, batch in islice(prepared.batches(full + until), BATCHES)]
        noise = gradient_noise(model, following, objective, seed=training.seed)
        yield NoiseAt(until, noise, sum(objective(batch).n_targets for batch in following) / BATCHES)


def _made(recipe: Recipe) -> tuple[RunData, Transformer]:
    """The data, and the model before its first step."""
    device, _ = choose_device(recipe.training.device)
    prepared, model, _, _ = begin(recipe)
    return prepared, model.to(device)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe's settings for `train_steps`; float32 if the recipe leaves the arithmetic open."""
    training = recipe.training
    told = replace(training, precision="float32") if training.precision == "auto" else training
    names = ("seed", "accumulate", "clip", "label_smoothing", "precision", "recompute")
    return {name: getattr(told, name) for name in names}
