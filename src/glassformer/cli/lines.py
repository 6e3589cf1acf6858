"""Verbs that read lines and write one for each: the loop over standard input, and the verbs that tasks declare."""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Protocol, TypeVar

from glassformer.base.errors import GlassformerError
from glassformer.cli.arguments import Arguments, whole_number
from glassformer.cli.input_lines import STDIN, lines_of, texts_of
from glassformer.cli.runs import averaged, existing_runs, recipe_of
from glassformer.data.tokens.vocabulary import lacking
from glassformer.train.recipe import Recipe
from glassformer.train.sample_lengths import Untrained, in_words, untrained_field
from glassformer.train.tasks import task_of
from glassformer.train.tasks.task import LineAnswer, LineVerb


class Noted(Protocol):
    """An answer, and what may be wrong with it: see `LineAnswer`."""

    @property
    def unknown(self) -> Sequence[str]:
        """The parts of the line that the vocabulary lacks."""
        ...

    @property
    def cut(self) -> str | None:
        """The limit that the answer reached before its end, if it did."""
        ...

    @property
    def untrained(self) -> Untrained | None:
        """Set if the line is shorter or longer than every sample in training."""
        ...


Answer = TypeVar("Answer", bound=Noted)
Answering = Callable[[Iterator[tuple[int, str]]], Iterable[Answer]]


def run_line_verb(verb: LineVerb, arguments: Arguments) -> int:
    """Answer standard input line by line with the runs of a task that declares this verb."""
    folder, *others = existing_runs(arguments)
    talking, average = sys.stdin.isatty(), averaged(arguments)
    recipe = recipe_of(folder)
    task = task_of(recipe.data)
    task.refuse_unfit(folder, verb)
    size = batch_size(arguments.options.get("batch-size"), 1 if talking else recipe.decode.batch_size)

    def written(number: int, found: LineAnswer | None) -> str:
        if "json" in arguments.options:
            kept = None if found is None else found.record() | untrained_field(found.untrained)
            return json.dumps(kept, ensure_ascii=False)
        return on_one_line("" if found is None else found.text(arguments.options))

    def answered(lines: Iterator[tuple[int, str]]) -> Iterator[LineAnswer]:
        from glassformer.train.finished.use import answer_lines  # after the checks, as importing torch takes a second

        return answer_lines(folder, lines, size, average, others)

    write_answers(answered, written, arguments, recipe, talking=talking)
    return 0


def write_answers(
    answering: Answering[Answer],
    written: Callable[[int, Answer | None], str],
    arguments: Arguments,
    recipe: Recipe,
    *,
    talking: bool,
) -> None:
    """Write a line for each line of standard input (`texts_of`), both in UTF-8 whatever the locale says.

    `written` gets the number of the line and its answer, None for a blank line. `talking`: somebody waits for each
    answer. What may be wrong with answers is reported at the end, also after a line that cannot be read.
    """
    if talking:
        print("Type a line and press Enter; Ctrl-D ends.", file=sys.stderr)
    cut: dict[str, list[int]] = {}
    unknown: list[int] = []
    parts: Counter[str] = Counter()
    untrained: dict[int, Untrained] = {}
    try:
        for number, answer in enumerate(
            answers(texts_of(lines_of(sys.stdin.buffer), STDIN, arguments, recipe), answering), start=1
        ):
            sys.stdout.buffer.write(written(number, answer).encode() + b"\n")
            if answer is not None and answer.cut:
                cut.setdefault(answer.cut, []).append(number)
            if answer is not None and answer.unknown:
                unknown.append(number)
                parts.update(answer.unknown)
            if answer is not None and answer.untrained:
                untrained[number] = answer.untrained
            if talking:
                sys.stdout.buffer.flush()
    finally:
        sys.stdout.buffer.flush()
        for limit, lines in cut.items():
            note(lines, f"the answer was cut before its end, by {limit}")
        note(unknown, lacking("the line", parts.elements()))
        note_untrained(untrained)


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
