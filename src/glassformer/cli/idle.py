"""Refuses settings of `[decode]` that were given where they would change nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from glassformer.base.errors import ConfigError, all_of
from glassformer.cli.settings import flag_of
from glassformer.data.config import DataConfig
from glassformer.train.settings import DecodeConfig
from glassformer.train.tasks import task_of


def refuse_idle_decoding(who: object, data: DataConfig, changes: Iterable[str]) -> None:
    """Refuse decode settings if the run writes no answers, or if they would change nothing.

    The `ConfigError` names all of them and `who`; `data` is the data section of its recipe.
    """
    task = task_of(data)
    if (read := task.decode_settings) is None:
        return
    idle = [name for name in changes if name.startswith("decode.") and name.removeprefix("decode.") not in read]
    if idle:
        flags = all_of([flag_of(*name.split(".", 1)) for name in idle])
        raise ConfigError(
            f"[decode] controls how answers are written, but {who} {task.does}, so {flags} would have no "
            f"effect. Remove {'it' if len(idle) == 1 else 'them'}."
        )


def refuse_idle_seed(decode: DecodeConfig, changes: Collection[str]) -> None:
    """Refuse a random seed that was given where nothing is drawn. Errors: `ConfigError`."""
    if "decode.seed" in changes and decode.temperature == 0:
        raise ConfigError(
            f"{drawless(decode)} draws nothing, so decode.seed={decode.seed} would have no effect. Remove decode.seed, "
            "or sample instead (for example decode.temperature=0.8)."
        )


def refuse_idle_search(decode: DecodeConfig, changes: Collection[str], *, scored: bool = False) -> None:
    """Refuse settings of a beam search that were given where they would change nothing. Errors: `ConfigError`.

    `scored`: whether the answers' scores are shown, which the length penalty is part of without a beam, too.
    """
    if "decode.diversity" in changes and decode.beam_groups == 1:
        raise ConfigError(
            f"decode.diversity keeps groups of a beam apart, but there is only one, so {decode.diversity} would have "
            "no effect. Set decode.beam_groups, or remove decode.diversity."
        )
    if "decode.length_penalty" in changes and decode.beam == 1 and not scored:
        raise ConfigError(
            f"decode.length_penalty ranks the answers of a beam, but decode.beam is 1, so {decode.length_penalty} "
            "would have no effect. Set decode.beam, or remove decode.length_penalty."
        )


def drawless(decode: DecodeConfig) -> str:
    """Return the name of what chooses the tokens at temperature 0, for a message."""
    if decode.beam > 1:
        return "Beam search"
    return "Contrastive search" if decode.contrastive_alpha else "Greedy decoding"
