"""Check the files that a data config names: none for tasks that read none, and one way to name those of a split."""

from __future__ import annotations

import os

from glassformer.base.errors import ConfigError
from glassformer.data.config import SPLITS, DataConfig
from glassformer.data.kinds import PAIRS
from glassformer.data.lines import no_such_file
from glassformer.data.running.text_settings import TEXT, TEXTS


def check_names(config: DataConfig) -> None:
    """Refuse empty names: an empty path is the current folder, and no column has an empty name."""
    files = [name for split in SPLITS for name in (split, f"{split}_source", f"{split}_target", TEXTS[split])]
    columns = ("text_column", "label_column", "source_field", "target_field")
    whats = dict.fromkeys(files, "file") | dict.fromkeys(columns, "column") | {"field": "field"}
    for name in [name for name in whats if getattr(config, name) == ""]:
        raise ConfigError(f"data.{name} must name a {whats[name]}; got ''. Give a name, or remove data.{name}.")


def check_files(config: DataConfig) -> None:
    """Refuse files that the task does not read, and two ways to name those of one split."""
    for split in SPLITS:
        tsv, source, target = config.files(split)
        given = [f"data.{name}" for name, path in named(split, tsv, source, target) if path is not None]
        if given and config.task == TEXT:
            raise ConfigError(
                f"data.task={TEXT!r} reads running text and no pairs, but {given[0]} is set. Set "
                f"data.{TEXTS[split]} to the text instead, or data.task to {PAIRS!r}."
            )
        if given and not config.kind.files:
            raise ConfigError(
                f"data.task={config.task!r} makes its own pairs and reads no files, but {given[0]} is set. "
                f"Remove {given[0]}, or set data.task = {PAIRS!r}."
            )
        if config.kind.files == 1 and (source or target):
            raise ConfigError(
                f"data.task={config.task!r} reads one file per split, but {given[0]} is set. Set data.{split} instead."
            )
        if tsv is not None and len(given) > 1:
            raise ConfigError(
                f"The {split} pairs come from one file or from two, but {' and '.join(given)} are set. "
                f"Keep data.{split} (one file with TABs), or both data.{split}_source and data.{split}_target."
            )
        if (source is None) != (target is None):
            missing = f"data.{split}_source" if source is None else f"data.{split}_target"
            raise ConfigError(f"Parallel files come in pairs: {given[0]} is set, {missing} is not. Set {missing}.")


def refuse_missing(config: DataConfig) -> None:
    """Raise `DataError` for a file to train on that does not exist; before torch is imported, which takes seconds."""
    for split in ("train", "dev"):
        for name in (split, f"{split}_source", f"{split}_target", TEXTS[split]):
            path = getattr(config, name)
            try:
                os.lstat(path or ".")
            except FileNotFoundError:
                raise no_such_file(path) from None
            except (OSError, ValueError):  # what else is wrong is told where it is read
                continue


def named(split: str, tsv: str | None, source: str | None, target: str | None) -> list[tuple[str, str | None]]:
    """The settings that may name the files of a split, and what each names."""
    return [(split, tsv), (f"{split}_source", source), (f"{split}_target", target)]
