"""Settings of `[decode]` that were typed for a run that would not read them."""

from __future__ import annotations

from collections.abc import Iterable

from glassformer.cli.settings import flag_of
from glassformer.data.config import NO_ANSWERS, DataConfig
from glassformer.foundation.errors import ConfigError

OF_BLANKS = ("batch_size", "precision", "compile")
"""What there is to say of answers that are filled in, all places at once."""


def refuse_idle_decoding(who: object, data: DataConfig, changes: Iterable[str]) -> None:
    """Refuse a setting of how answers are written where none are, or where it would change nothing.

    `who` is named in the error, a `ConfigError`; `data` are its own.
    """
    if data.task in NO_ANSWERS:
        read, what = ("batch_size",), NO_ANSWERS[data.task]
    elif data.layout == "encoder":
        read, what = OF_BLANKS, "fills all blanks at once"
    else:
        return
    idle = [name for name in changes if name.startswith("decode.") and name.removeprefix("decode.") not in read]
    if idle:
        raise ConfigError(
            f"[decode] says how answers are written, but {who} {what}, so that {flag_of(*idle[0].split('.', 1))} would "
            "change nothing. Leave it out."
        )
