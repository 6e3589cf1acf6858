"""`glassformer classify RUN ...`: read lines, write the label of each. Several runs answer as a committee."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from glassformer.cli.arguments import Arguments
from glassformer.cli.input_lines import STDIN, lines_of, texts_of
from glassformer.cli.runs import averaged, existing_runs, recipe_of
from glassformer.cli.translate import answers, batch_size, note, note_untrained, on_one_line
from glassformer.data.tokens.vocabulary import lacking
from glassformer.train.sample_lengths import Untrained, untrained_field

if TYPE_CHECKING:
    from glassformer.train.finished.use import Classified


def run(arguments: Arguments) -> int:
    """Label standard input line by line on standard output, both in UTF-8."""
    folder, *others = existing_runs(arguments)
    talking, average = sys.stdin.isatty(), averaged(arguments)
    recipe = recipe_of(folder)
    size = batch_size(arguments.options.get("batch-size"), 1 if talking else recipe.decode.batch_size)
    if talking:
        print("Type a line and press Enter; Ctrl-D ends.", file=sys.stderr)
    from glassformer.train.finished.use import classify  # after the checks, as importing torch takes a second

    def classified(lines: Iterator[tuple[int, str]]) -> Iterator[Classified]:
        return classify(folder, lines, size, average, others)

    unknown: list[int] = []
    parts: Counter[str] = Counter()
    untrained: dict[int, Untrained] = {}
    try:
        lines = texts_of(lines_of(sys.stdin.buffer), STDIN, arguments, recipe)
        for number, found in enumerate(answers(lines, classified), start=1):
            sys.stdout.buffer.write(written(found, arguments).encode() + b"\n")
            if found and found.unknown:
                unknown.append(number)
                parts.update(found.unknown)
            if found and found.untrained:
                untrained[number] = found.untrained
            if talking:
                sys.stdout.buffer.flush()
    finally:
        sys.stdout.buffer.flush()
        note(unknown, lacking("the line", parts.elements()))
        note_untrained(untrained)
    return 0


def written(found: Classified | None, arguments: Arguments) -> str:
    """Return one line of output. For a blank input line it is blank, or null with --json."""
    if "json" in arguments.options:
        kept = None
        if found is not None:
            kept = {"label": found.label, "probabilities": found.probabilities, **untrained_field(found.untrained)}
        return json.dumps(kept, ensure_ascii=False)
    if found is None:
        return ""
    shares = (f"\t{label}={share:.4f}" for label, share in found.probabilities.items())
    return on_one_line(found.label + ("".join(shares) if "probabilities" in arguments.options else ""))
