"""Check the settings of running text, each by itself and together."""

from __future__ import annotations

import math

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.settings import Rule
from glassformer.data.config import DataConfig
from glassformer.data.running.text_settings import CORRUPTIONS, MOST_WINDOW, OBJECTIVES, ORDERS, TEXT, TEXT_LAYOUTS


def check_text(config: DataConfig) -> None:
    """Refuse impossible settings. Errors: `ConfigError` naming the setting and the way out."""
    if config.task != TEXT:
        if config.layout in TEXT_LAYOUTS:
            raise ConfigError(
                f"data.layout={config.layout!r} is for running text; got data.task={config.task!r}. "
                f"Set data.task={TEXT!r}, or choose another layout."
            )
        return
    needed = lookup(OBJECTIVES, config.objective, "data.objective")
    if config.layout != needed:
        raise ConfigError(
            f"data.objective={config.objective!r} needs data.layout={needed!r}; got {config.layout!r}. "
            f"Set data.layout={needed!r}, or choose another data.objective."
        )
    lookup(dict.fromkeys(ORDERS), config.order, "data.order")
    check_numbers(config)
    check_documents(config)
    check_corruption(config)


def check_numbers(config: DataConfig) -> None:
    """Refuse sizes and shares outside their bounds."""
    Rule(2, MOST_WINDOW).check("data.window", config.window, 256, whole=True)
    if config.stride is not None and config.stride > config.window:
        raise ConfigError(
            f"data.stride must be at most data.window ({config.window}), or tokens between two windows would never be "
            f"scored; got {config.stride}. Try stride={config.window}."
        )
    has_spans = config.objective in CORRUPTIONS["mean_span"]  # otherwise its default may exceed a window
    if has_spans and not (1 <= config.mean_span <= config.window and math.isfinite(config.mean_span)):
        raise ConfigError(
            f"data.mean_span must be from 1 to data.window ({config.window}) tokens; got {config.mean_span}. "
            f"Try mean_span={min(3, config.window)}."
        )


def check_documents(config: DataConfig) -> None:
    """Refuse a document mask if the text or the layout has none."""
    if not config.document_mask:
        return
    if config.documents is False:
        raise ConfigError(
            "data.document_mask keeps attention inside each document, but data.documents=False joins all documents "
            "into one text. Set documents=True, or document_mask=False."
        )
    if config.layout not in TEXT_LAYOUTS:
        raise ConfigError(
            f"data.document_mask is only for the layouts {' and '.join(TEXT_LAYOUTS)}; got "
            f"data.layout={config.layout!r}. Set document_mask=False."
        )


def check_corruption(config: DataConfig) -> None:
    """Refuse a setting of another objective, which would be silently ignored."""
    for name, readers in CORRUPTIONS.items():
        value = getattr(config, name)
        if config.objective not in readers and value != getattr(type(config), name):
            raise ConfigError(
                f"data.{name} belongs to the {'objectives' if len(readers) > 1 else 'objective'} "
                f"{', '.join(readers)}; got data.{name}={value!r} with data.objective={config.objective!r}, which does "
                f"not use it. Remove data.{name}."
            )
