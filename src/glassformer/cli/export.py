"""`glassformer export RUN FOLDER` and `import FOLDER`: models for and from Hugging Face's transformers."""

from __future__ import annotations

import shlex
from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import RUNS, averaged, check_room, existing_run, room_for, run_folder
from glassformer.store.files import absolute
from glassformer.train.recipe import load_recipe
from glassformer.train.tasks import task_of

# `glassformer export RUN FOLDER`: write a run as a folder that Hugging Face's transformers loads.


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


# `glassformer import FOLDER`: make a run of a model that Hugging Face's transformers saved.


def run_import(arguments: Arguments) -> int:
    """Read the model, write the run, and say what it is and what can be done with it."""
    folder = Path(str(arguments.target))
    out = run_folder(arguments.options.get("out"), RUNS / absolute(folder).name)
    check_room(out, "overwrite" in arguments.options, trains=False)
    from glassformer.train.run.beginning import import_run

    with room_for(out):
        found = import_run(folder, out)
    stack, size = found.model.config.stack, sum(each.numel() for each in found.model.parameters())
    print(f"{found.family}: {size:,} parameters, {stack.n_layers} layers, {found.tokenizer.vocab_size:,} tokens")
    for note in found.notes:
        print(note)
    print(f"Run: {out}\nLook inside: glassformer explore {shlex.quote(str(out))}")
    print(task_of(load_recipe(out / "recipe.toml").data).next_command(out))
    return 0
