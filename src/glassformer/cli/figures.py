"""Output of `translate` with several answers per line, scores and alignments, as columns or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments, whole_number
from glassformer.train.sample_lengths import untrained_field

if TYPE_CHECKING:
    from glassformer.train.finished.use import Asked, Ranked, Translated


def asked_of(arguments: Arguments, beam: int) -> Asked | None:
    """Return the figures that the flags ask for, or None if only the answer is wanted. Errors: `ConfigError`."""
    given = arguments.options
    if not {"n-best", "scores", "alignments", "json"} & given.keys():
        return None
    n_best = whole_number("n-best", given.get("n-best", "1"), 1024)
    refuse_more("n-best", n_best, beam)
    from glassformer.train.finished.use import Asked  # here, as importing torch takes a second

    return Asked(n_best, "scores" in given, "alignments" in given)


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
    rows = [columns(each, arguments) for each in best] or [empty(arguments)]
    return "\n".join(f"{number}\t{row}" if "n-best" in arguments.options else row for row in rows)


def empty(arguments: Arguments) -> str:
    """Return the columns of a blank line, all of them empty."""
    return "\t" * (("scores" in arguments.options) + ("alignments" in arguments.options))


def columns(each: Ranked, arguments: Arguments) -> str:
    """Return text, score and alignment as asked for, separated by tabs.

    Tabs and line ends in the text become spaces.
    """
    from glassformer.decode.read_back import pharaoh

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
