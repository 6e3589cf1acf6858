"""Refuses settings of `[decode]` that were given for a run that would not use them."""

from __future__ import annotations

from collections.abc import Iterable

from glassformer.cli.settings import flag_of
from glassformer.data.config import NO_ANSWERS, DataConfig
from glassformer.data.purpose import purpose_of
from glassformer.foundation.errors import ConfigError, all_of

OF_BLANKS = ("batch_size", "precision", "compile", "threads")
"""The settings of [decode] that matter to a model that fills in blanks, all at once."""


def refuse_idle_decoding(who: object, data: DataConfig, changes: Iterable[str]) -> None:
    """Refuse decode settings if the run writes no answers, or if they would change nothing.

    The `ConfigError` names all of them and `who`; `data` is the data section of its recipe.
    """
    if data.task in NO_ANSWERS:
        read = ("batch_size", "threads")
    elif data.layout == "encoder":
        read = OF_BLANKS
    else:
        return
    idle = [name for name in changes if name.startswith("decode.") and name.removeprefix("decode.") not in read]
    if idle:
        flags = all_of([flag_of(*name.split(".", 1)) for name in idle])
        raise ConfigError(
            f"[decode] controls how answers are written, but {who} {purpose_of(data).does}, so {flags} would have no "
            f"effect. Remove {'it' if len(idle) == 1 else 'them'}."
        )
