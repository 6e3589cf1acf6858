"""The plot of a learning-rate range test."""

from __future__ import annotations

from typing import Any

from glassformer.base.figures import matplotlib
from glassformer.store.pictures import finished
from glassformer.train.estimate.find_rate import Found


def draw_rates(found: Found) -> Any:
    """Draw a matplotlib figure: the losses over the rates, raw and smoothed, and the recommended rate.

    Errors: `ConfigError` without matplotlib.
    """
    figure = matplotlib("figure").Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    rates = [each.rate for each in found.tried]
    axes.plot(rates, [each.loss for each in found.tried], color="0.7", label="loss")
    axes.plot(rates, [each.smoothed for each in found.tried], label="smoothed")
    axes.axvline(found.recommended, linestyle="--", color="black", label=f"recommended, {found.recommended:.1e}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss before the update, nats a target")
    axes.legend()
    return finished(figure)
