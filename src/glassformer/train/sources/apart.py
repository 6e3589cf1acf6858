"""Keep a run folder out of the folders of texts, of which every file is read, the run's own files too."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.data.config import SPLITS, DataConfig


def refuse_among_texts(data: DataConfig, out: Path) -> None:
    """Refuse a run folder inside a folder of texts, unless hidden. Errors: `ConfigError` naming both, before all else.

    The run would train, but its weights are not text: resuming or scoring it later would be refused.
    """
    for split in SPLITS:
        name = data.text_file(split)
        if name is None or not (folder := Path(name)).is_dir():
            continue
        inside, whole = out.resolve(), folder.resolve()
        if inside.is_relative_to(whole) and not any(p.startswith(".") for p in inside.relative_to(whole).parts):
            raise ConfigError(
                "The run folder must not be in a folder of texts, as every file there is read as text; got the "
                f"{split} text {name} and the run folder {out} in it. Choose another run folder with --out, or move "
                "the texts to a folder of their own."
            )
