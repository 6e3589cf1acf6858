"""`glassformer translate RUN ...`: read lines, write an answer to each. Several runs answer as an ensemble."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.constraints import constraints_of
from glassformer.cli.lines import asked_of, batch_size, line_of, on_one_line, write_answers
from glassformer.cli.runs import averaged, existing_runs, recipe_of
from glassformer.cli.settings import converted
from glassformer.cli.typed_recipe import beamed, refuse_idle_decoding, refuse_idle_search, refuse_idle_seed
from glassformer.train.tasks import task_of

if TYPE_CHECKING:
    from glassformer.train.finished.use import Translated


def run(arguments: Arguments) -> int:
    """Translate standard input to standard output, both in UTF-8 whatever the locale says."""
    folder, *others = existing_runs(arguments, "The lines to translate come from standard input: < FILE.")
    talking, average = sys.stdin.isatty(), averaged(arguments)
    own, changes = recipe_of(folder), with_beam(arguments)
    if task_of(own.data).decoded:  # runs on such tasks are refused elsewhere, with the right verb
        refuse_idle_decoding(folder, own.data, changes)
    recipe = beamed(own, changes)
    refuse_idle_seed(recipe.decode, changes)
    size = batch_size(arguments.options.get("batch-size"), 1 if talking else recipe.decode.batch_size)
    asked = asked_of(arguments, recipe.decode.beam)
    refuse_idle_search(recipe.decode, changes, scored=asked is not None)
    wishes = constraints_of(arguments, folder)

    def translated(lines: Iterator[tuple[int, str]]) -> Iterator[Translated]:
        from glassformer.train.finished.use import translate  # after the checks, as importing torch takes a second

        return translate(folder, lines, size, recipe, average, asked, wishes, others)

    def written(number: int, answer: Translated | None) -> str:
        return on_one_line(answer.text if answer else "") if asked is None else line_of(number, answer, arguments)

    write_answers(translated, written, arguments, own, talking=talking)
    return 0


def with_beam(arguments: Arguments) -> dict[str, object]:
    """Return the settings that were given, with `--beam N` as short for `--decode.beam N`."""
    if "beam" not in arguments.options:
        return arguments.changes
    if "decode.beam" in arguments.changes:
        raise ConfigError("--beam and --decode.beam are the same setting. Give only one of them.")
    return arguments.changes | {"decode.beam": converted("decode.beam", int, arguments.options["beam"])}
