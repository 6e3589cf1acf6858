"""`glassformer import FOLDER`: make a run of a model that Hugging Face's transformers saved."""

from __future__ import annotations

import shlex
from pathlib import Path

from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import RUNS, check_room, room_for, run_folder
from glassformer.store.files import absolute
from glassformer.train.recipe import load_recipe
from glassformer.train.tasks import task_of


def run(arguments: Arguments) -> int:
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
