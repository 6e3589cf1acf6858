"""What a run's checkpoints were passed over for, told to the user who asked for the best of them."""

from __future__ import annotations

from glassformer.store.checkpoint import Loaded


def told(loaded: Loaded) -> Loaded:
    """What was loaded, after saying on standard error which checkpoints were passed over for it, and why."""
    if loaded.skipped:
        from glassformer.train.record.report import Screen  # here, as importing rich costs a command that needs it not

        screen = Screen()
        for each in loaded.skipped:
            screen.print(f"passed over: {each.reason}", markup=False, highlight=False, soft_wrap=True)
        screen.print(f"used instead: {loaded.folder}", markup=False, highlight=False, soft_wrap=True)
    return loaded
