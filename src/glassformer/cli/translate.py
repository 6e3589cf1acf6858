"""`glassformer translate RUN ...`: read lines, write an answer to each. Several runs answer as a committee."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import TypeVar

from glassformer.base.errors import ConfigError, GlassformerError
from glassformer.cli.arguments import Arguments, whole_number
from glassformer.cli.figures import asked_of, line_of
from glassformer.cli.flags.beamed import beamed
from glassformer.cli.flags.wished import wished
from glassformer.cli.idle import refuse_idle_decoding, refuse_idle_search, refuse_idle_seed
from glassformer.cli.input_lines import STDIN, lines_of, texts_of
from glassformer.cli.runs import averaged, existing_runs, recipe_of
from glassformer.cli.settings import converted
from glassformer.data.tokens.vocabulary import lacking
from glassformer.train.sample_lengths import Untrained, in_words
from glassformer.train.tasks import task_of

Answer = TypeVar("Answer")


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
    wishes = wished(arguments, folder)
    if talking:
        print("Type a line and press Enter; Ctrl-D ends.", file=sys.stderr)
    from glassformer.train.finished.use import (  # after the checks, as importing torch takes a second
        Translated,
        translate,
    )

    def translated(lines: Iterator[tuple[int, str]]) -> Iterator[Translated]:
        return translate(folder, lines, size, recipe, average, asked, wishes, others)

    cut: dict[str, list[int]] = {}
    unknown: list[int] = []
    parts: Counter[str] = Counter()
    untrained: dict[int, Untrained] = {}
    try:
        lines = texts_of(lines_of(sys.stdin.buffer), STDIN, arguments, own)
        for number, answer in enumerate(answers(lines, translated), start=1):
            plain = on_one_line(answer.text if answer else "")
            sys.stdout.buffer.write((plain if asked is None else line_of(number, answer, arguments)).encode() + b"\n")
            if answer and answer.cut:
                cut.setdefault(answer.cut, []).append(number)
            if answer and answer.unknown:
                unknown.append(number)
                parts.update(answer.unknown)
            if answer and answer.untrained:
                untrained[number] = answer.untrained
            if talking:
                sys.stdout.buffer.flush()
    finally:  # also on a line that cannot be read: earlier answers are kept
        sys.stdout.buffer.flush()
        for limit, lines in cut.items():
            note(lines, f"the answer was cut before its end, by {limit}")
        note(unknown, lacking("the line", parts.elements()))
        note_untrained(untrained)
    return 0


def with_beam(arguments: Arguments) -> dict[str, object]:
    """Return the settings that were given, with `--beam N` as short for `--decode.beam N`."""
    if "beam" not in arguments.options:
        return arguments.changes
    if "decode.beam" in arguments.changes:
        raise ConfigError("--beam and --decode.beam are the same setting. Give only one of them.")
    return arguments.changes | {"decode.beam": converted("decode.beam", int, arguments.options["beam"])}


def batch_size(given: str | None, usual: int) -> int:
    """Return how many lines are translated together."""
    return usual if given is None else whole_number("batch-size", given, 999_999_999, usual)


def answers(
    lines: Iterable[str], translated: Callable[[Iterator[tuple[int, str]]], Iterable[Answer]]
) -> Iterator[Answer | None]:
    """Yield the answer to each line, in order; None for a blank line, which is not translated.

    `translated` gets lines with their numbers, from 1. It may read ahead to fill a batch, but yields its answers in
    order.
    """
    waiting: deque[bool] = deque()  # for each line read but not answered yet: is it blank?

    def asked() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, start=1):
            waiting.append(not line.strip())
            if line.strip():
                yield number, line

    broken: GlassformerError | None = None
    try:
        for answer in translated(asked()):
            while waiting.popleft():
                yield None
            yield answer
    except GlassformerError as error:  # a line cannot be answered: the blank lines before it still get their output
        broken = error
    yield from (None for _ in takewhile(bool, waiting))
    if broken is not None:
        raise broken


def on_one_line(text: str) -> str:
    """Return `text` with spaces for line ends, since a line end would shift all following lines."""
    return text.replace("\r", " ").replace("\n", " ")


def note(lines: list[int], what: str) -> None:
    """Report a problem with some lines, if there are any: how many, and the numbers of the first few."""
    if lines:
        where = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        print(f"{len(lines)} {'line' if len(lines) == 1 else 'lines'} ({where}): {what}.", file=sys.stderr)


def note_untrained(found: dict[int, Untrained]) -> None:
    """Report the lines, by their numbers, that are shorter or longer than every one in training."""
    if found:
        note([*found], in_words([*found.values()]))
