"""`glassformer export RUN FOLDER`: write a run as a folder that Hugging Face's transformers loads."""

from __future__ import annotations

import shlex
from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import averaged, existing_run


def run(arguments: Arguments) -> int:
    """Write the folder, and say what is in it and how to load it."""
    if arguments.second is None:
        raise ConfigError(
            "`glassformer export` needs a run and the folder to write. Try: glassformer export runs/lm exported"
        )
    folder = existing_run(str(arguments.target))
    average, out = averaged(arguments), Path(arguments.second)
    from glassformer.train.finished.loading import export_run  # after the checks, as importing torch takes a second

    made = export_run(folder, out, average)
    print(f"{made.family}: {made.parameters:,} parameters, {made.tokens:,} tokens")
    for note in made.notes:
        print(note)
    print(f"Folder: {out}\nLoad it in Python: transformers.AutoModelForCausalLM.from_pretrained({str(out)!r})")
    print(f"Make a run of it again: glassformer import {shlex.quote(str(out))}")
    return 0
