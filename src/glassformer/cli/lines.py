"""Verbs that read lines and write one for each: the loop over standard input, and the verbs that tasks declare."""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from glassformer.base.errors import ConfigError, DataError, GlassformerError, firsts
from glassformer.cli.arguments import (
    Arguments,
    beamed,
    refuse_idle_decoding,
    refuse_idle_search,
    refuse_idle_seed,
    whole_number,
    with_settings,
)
from glassformer.cli.constraints import constraints_of
from glassformer.cli.runs import averaged, existing_runs, recipe_of
from glassformer.data.json_lines import LOOKED_AT, WAYS, object_in, seems_json, text_in
from glassformer.data.lines import HasLines, bounded_lines, decoded
from glassformer.data.tokens.vocabulary import lacking
from glassformer.train.recipe import Recipe
from glassformer.train.sample_lengths import Untrained, in_words, untrained_field
from glassformer.train.tasks import task_of
from glassformer.train.tasks.task import LineAnswer, LineVerb

if TYPE_CHECKING:
    from glassformer.train.finished.use import Ranked, Requested, Translated


Answer = TypeVar("Answer", LineAnswer, "Translated")
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
        if untrained:
            note([*untrained], in_words([*untrained.values()]))


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

    def requested() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, start=1):
            waiting.append(not line.strip())
            if line.strip():
                yield number, line

    broken: GlassformerError | None = None
    try:
        for answer in translated(requested()):
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
        print(f"{len(lines)} {'line' if len(lines) == 1 else 'lines'} ({firsts(lines)}): {what}.", file=sys.stderr)


# Output of `translate` with several answers per line, scores and alignments, as columns or JSON.


def ranked_of(arguments: Arguments, beam: int) -> Requested | None:
    """Return the figures that the flags ask for, or None if only the answer is wanted. Errors: `ConfigError`."""
    given = arguments.options
    if not {"n-best", "scores", "alignments", "json"} & given.keys():
        return None
    n_best = whole_number("n-best", given.get("n-best", "1"), 1024)
    refuse_more("n-best", n_best, beam)
    from glassformer.train.finished.use import Requested  # here, as importing torch takes a second

    return Requested(n_best, "scores" in given, "alignments" in given)


def refuse_more(flag: str, n: int, beam: int) -> None:
    """Refuse to answer more often than the beam is wide. Errors: `ConfigError`."""
    if n > beam:
        raise ConfigError(
            f"--{flag} can be at most the beam width; got {n} with a beam of {beam}. Give --beam {n} or more."
        )


def line_of(number: int, answer: Translated | None, arguments: Arguments) -> str:
    """Return the output for an input line, without the last line end. `answer` is None for a blank line."""
    best = answer.best if answer else ()
    if "json" in arguments.options:
        record = {"line": number, "source_tokens": answer.source if answer else [], "answers": [*map(as_record, best)]}
        return json.dumps(record | untrained_field(answer.untrained if answer else None), ensure_ascii=False)
    blank = "\t" * (("scores" in arguments.options) + ("alignments" in arguments.options))
    rows = [columns(each, arguments) for each in best] or [blank]
    return "\n".join(f"{number}\t{row}" if "n-best" in arguments.options else row for row in rows)


def columns(each: Ranked, arguments: Arguments) -> str:
    """Return text, score and alignment as asked for, separated by tabs.

    Tabs and line ends in the text become spaces.
    """
    from glassformer.decode.answer import pharaoh

    shown = ["".join(" " if letter in "\t\r\n" else letter for letter in each.text)]
    shown += [f"{each.score:.6f}"] if "scores" in arguments.options else []
    shown += [pharaoh(each.links)] if "alignments" in arguments.options else []
    return "\t".join(shown)


def as_record(each: Ranked) -> dict[str, object]:
    """Return an answer for JSON, without the figures that are not known."""
    figures: dict[str, float | Sequence[object] | None] = {
        "score": each.score,
        "log_probability": each.log_probability,
        "alignment": [list(link) for link in each.links] or None,
    }
    known = {name: value for name, value in figures.items() if value is not None}
    return {"text": each.text, "tokens": each.tokens, "complete": each.complete, **known}


# The lines that are read: plain text, or a field of JSON objects.

STDIN = "Standard input, line "
OPENINGS = ("[", "{", "[{")
"""First lines of JSON that is spread over many."""


def lines_of(file: HasLines) -> Iterator[str]:
    """Yield the lines of a UTF-8 stream as text. LF and CRLF end a line; a leading byte order mark is removed."""
    for number, line in enumerate(bounded_lines(file, STDIN), start=1):
        yield decoded(line, f"{STDIN}{number}")


def texts_of(lines: Iterable[str], where: str, arguments: Arguments, recipe: Recipe) -> Iterator[str]:
    """Yield each line, or with `--field` that field of the JSON object in it; a blank line stays blank.

    So is null in place of an object. `where` and a line's number tell its place. Errors: `ConfigError` for --field with
    --plain; `DataError` for a line that is no object or lacks the field, and without either flag if the first lines
    seem to be JSON, which a model is seldom trained on: unless its recipe says data.json = false, or its task reads
    objects. That all lines are one array is seen at their end: a line is never held back, as somebody may wait for its
    answer.
    """
    field, plain = arguments.options.get("field"), "plain" in arguments.options
    if plain and field is not None:
        raise ConfigError("--field reads JSON objects, --plain reads each line as it is. Give only one of them.")
    objects = task_of(recipe.data).reads_objects and not plain
    first: list[str] | None = None if plain or objects or recipe.data.json is False else []
    place = where
    for number, line in enumerate(lines, start=1):
        place = f"{where}{number}"
        if field is not None:
            remedy = "Give one of them to --field."
            blank = line.strip() in ("", "null")
            yield "" if blank else text_in(object_in(line, place), field, place, remedy)
            continue
        if first is not None and len(first) < LOOKED_AT and line.strip():
            first.append(line)
            refuse_json(first, place)
        yield "" if objects and line.strip() == "null" else line
    if first and len(first) < LOOKED_AT:
        refuse_json(first, place, cut=False)


def refuse_json(lines: Sequence[str], place: str, *, cut: bool = True) -> None:
    """Refuse the first lines of a text if they seem to be JSON; `place` is that of the last one. `cut`: it goes on.

    Errors: `DataError` with the fields that it has, or with what makes objects of it.
    """
    found = seems_json("".join(f"{line}\n" for line in lines), cut=cut)
    if not found and (len(lines) > 1 or lines[0].strip() not in OPENINGS):
        return
    try:
        names = f", here {', '.join([*object_in(lines[-1], place)][:8])}"
    except DataError:  # no object, one of several lines, or a broken one
        names = f"; an object a line, as {WAYS.get(found, 'jq -c')} writes them"
    raise DataError(
        f"{place}: this seems to be JSON, but would be read as plain text, with its "
        f"{'brackets and quotes' if found in WAYS else 'braces and keys'}. Give --field NAME to read a field of each "
        f"line{names}; --plain if it is meant as plain text."
    )


# `glassformer translate RUN ...`: read lines, write an answer to each. Several runs answer as an ensemble.


def run(arguments: Arguments) -> int:
    """Translate standard input to standard output, both in UTF-8 whatever the locale says."""
    folder, *others = existing_runs(arguments, "The lines to translate come from standard input: < FILE.")
    talking, average = sys.stdin.isatty(), averaged(arguments)
    own, changes = recipe_of(folder), with_settings(arguments, {"beam": "decode.beam"})
    if task_of(own.data).decoded:  # runs on such tasks are refused elsewhere, with the right verb
        refuse_idle_decoding(folder, own.data, changes)
    recipe = beamed(own, changes)
    refuse_idle_seed(recipe.decode, changes)
    size = batch_size(arguments.options.get("batch-size"), 1 if talking else recipe.decode.batch_size)
    requested = ranked_of(arguments, recipe.decode.beam)
    refuse_idle_search(recipe.decode, changes, scored=requested is not None)
    constraints = constraints_of(arguments, folder)

    def translated(lines: Iterator[tuple[int, str]]) -> Iterator[Translated]:
        from glassformer.train.finished.use import translate  # after the checks, as importing torch takes a second

        return translate(folder, lines, size, recipe, average, requested, constraints, others)

    def written(number: int, answer: Translated | None) -> str:
        return on_one_line(answer.text if answer else "") if requested is None else line_of(number, answer, arguments)

    write_answers(translated, written, arguments, own, talking=talking)
    return 0
