"""Tell the user which checkpoints of a run were skipped, and why, when the best one was asked for."""

from __future__ import annotations

from glassformer.store.checkpoint import Loaded


def told(loaded: Loaded) -> Loaded:
    """Return what was loaded, after printing to standard error which checkpoints were skipped for it, and why."""
    if loaded.skipped:
        from glassformer.train.record.report import Screen  # here, because importing rich takes time

        screen = Screen()
        for each in loaded.skipped:
            screen.print(f"skipped: {each.reason}", markup=False, highlight=False, soft_wrap=True)
        screen.print(f"used instead: {loaded.folder}", markup=False, highlight=False, soft_wrap=True)
    return loaded
