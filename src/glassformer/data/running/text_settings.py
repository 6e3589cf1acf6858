"""What the settings of running text can be, by name."""

from __future__ import annotations

TEXT = "text"
"""The task that reads running text."""
TEXTS = {"train": "text", "dev": "dev_text", "test": "test_text"}
"""The setting that names the text of each split."""
OBJECTIVES = {
    "next_token": "decoder",
    "prefix": "decoder",
    "masked": "masked",
    "spans": "encoder-decoder",
    "noise": "encoder-decoder",
}
"""What can be learned from running text, and the layout that it needs."""
TEXT_LAYOUTS = ("decoder", "masked")
"""The layouts that only running text has."""
ORDERS = ("random", "sequential")
MOST_WINDOW = 2**20
"""Tokens: no model here reads more at once."""
CORRUPTIONS = {
    "mask_share": ("masked", "spans", "noise"),
    "mean_span": ("spans", "noise"),
    "whole_words": ("masked",),
    "permute_sentences": ("noise",),
}
"""Settings that not every objective reads, and those that do."""
TEXT_SETTINGS = (
    *TEXTS.values(),
    "field",
    "stride",
    "order",
    "documents",
    "document_mask",
    "objective",
    *CORRUPTIONS,
)
