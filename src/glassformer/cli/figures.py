"""`translate` with figures: several answers to a line, scores and alignments, as columns or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.cli.arguments import Arguments, whole_number
from glassformer.foundation.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.train.finished.ranked import Asked, Ranked
    from glassformer.train.finished.use import Translated


def asked_of(arguments: Arguments, beam: int) -> Asked | None:
    """The figures that the flags ask for; none: only the answer itself. Errors: `ConfigError`."""
    given = arguments.options
    if not {"n-best", "scores", "alignments", "json"} & given.keys():
        return None
    n_best = whole_number("n-best", given.get("n-best", "1"), 1024)
    if n_best > beam:
        raise ConfigError(
            f"--n-best takes at most as many answers as the beam has beginnings; got {n_best} with a beam of {beam}. "
            f"Give --beam {n_best} or more."
        )
    from glassformer.train.finished.ranked import Asked  # here, as importing torch takes a second

    return Asked(n_best, "scores" in given, "alignments" in given)


def line_of(number: int, answer: Translated | None, arguments: Arguments) -> str:
    """What is written for a line of the input, without its last line end; `answer` None: for a blank one."""
    best = answer.best if answer else ()
    if "json" in arguments.options:
        record = {"line": number, "source_tokens": answer.source if answer else [], "answers": [*map(as_record, best)]}
        return json.dumps(record, ensure_ascii=False)
    if "n-best" in arguments.options:
        return "\n".join(f"{number}\t{columns(each, arguments)}" for each in best) or f"{number}\t"
    return "\n".join(columns(each, arguments) for each in best)


def columns(each: Ranked, arguments: Arguments) -> str:
    """Text, and where they are asked for score and alignment, with tabs between; none stands in the text."""
    from glassformer.decode.read_back import pharaoh

    shown = ["".join(" " if letter in "\t\r\n" else letter for letter in each.text)]
    shown += [f"{each.score:.6f}"] if "scores" in arguments.options else []
    shown += [pharaoh(each.links)] if "alignments" in arguments.options else []
    return "\t".join(shown)


def as_record(each: Ranked) -> dict[str, object]:
    """An answer for a program; a figure that is not known is left out."""
    figures: dict[str, float | Sequence[object] | None] = {
        "score": each.score,
        "log_probability": each.log_probability,
        "alignment": [list(link) for link in each.links] or None,
    }
    known = {name: value for name, value in figures.items() if value is not None}
    return {"text": each.text, "tokens": each.tokens, "complete": each.complete, **known}
