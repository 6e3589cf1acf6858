"""`glassformer generate RUN ...`: read prompts and write texts, as they are generated or once a beam has found them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError, DataError, firsts
from glassformer.base.settings import declared_in
from glassformer.cli.arguments import (
    NO_BEAM,
    Arguments,
    beamed,
    drawless,
    refuse_idle_search,
    refuse_idle_seed,
    whole_number,
    with_settings,
)
from glassformer.cli.constraints import constraints_of, unescaped
from glassformer.cli.lines import refuse_more, texts_of
from glassformer.cli.runs import existing_run, existing_runs, recipe_of
from glassformer.cli.verbs import VERBS
from glassformer.data.lines import LONGEST_LINE, MARK, decoded, read_lines
from glassformer.decode.settings import Sampling
from glassformer.train.recipe import Recipe, override
from glassformer.train.sample_lengths import Untrained, untrained_field
from glassformer.train.settings import DecodeConfig

if TYPE_CHECKING:
    from glassformer.decode.stream import Piece
    from glassformer.train.finished.writing import Guessing

SHORT = [each.name for each in VERBS["generate"].options if each.name.replace("-", "_") in declared_in(DecodeConfig)]
"""Settings of [decode] that are also flags of this verb."""
OF_DRAWS = {"temperature": 0.0, "contrastive_alpha": 0.0, **{name: getattr(Sampling, name) for name in Sampling.drawn}}
"""Settings that have no effect where nothing is drawn, each with the value that turns it off."""
NO_CHANGES: Mapping[str, object] = {}
MOST_TEXTS = 100_000
"""The most texts per prompt."""
MOST_GUESSES = 1_000
SEPARATOR = b"---\n"


def run(arguments: Arguments) -> int:
    """Write texts to standard output as they are generated: prompt and continuation, or the answer; or JSON."""
    folder, *others = existing_runs(arguments, "A prompt is given with --prompt or --file.")
    recipe = decoding(recipe_of(folder), arguments)
    n = whole_number("n", arguments.options.get("n", "1"), MOST_TEXTS)
    refuse_alike(n, recipe)
    guessing = guessing_of(arguments)
    prompts, constraints = prompts_of(arguments, recipe), constraints_of(arguments, folder)
    from glassformer.train.finished.writing import Writer, note_of  # after the checks: importing torch takes a second

    writer = Writer(folder, recipe, guessing, others)
    stops = [unescaped(each) for each in arguments.lists.get("stop", [])]
    if unknown := writer.unknown(prompts):
        print(unknown, file=sys.stderr)
    untrained = writer.untrained(prompts)
    for each in writer.unwritable(stops):
        print(f"--stop: {each}", file=sys.stderr)
    if not writer.continues and not {"prompt", "file"} & arguments.options.keys() and "\n" in prompts[0]:
        print("All lines of standard input are one source; glassformer translate answers each line.", file=sys.stderr)
    ends: list[Piece] = []
    written = writer.write(prompts, n, stops, crop="crop" in arguments.options, constraints=constraints)
    pieces = with_ends(in_order(written) if recipe.decode.beam == 1 else written, ends)
    try:
        if "json" in arguments.options:
            show_json(pieces, prompts, n, untrained)
        else:
            echoed = writer.continues and "no-prompt" not in arguments.options
            show(pieces, prompts if echoed else [""] * len(prompts), n)
    finally:
        if not all(each.complete for each in ends):
            print(note_of_cut(ends, arguments, writer.continues), file=sys.stderr)
        if note := note_of_context(ends, len(prompts), n):
            print(note, file=sys.stderr)
    if note := note_of(untrained, "prompt"):
        print(note, file=sys.stderr)
    if len(ends) < len(prompts) * n:
        print(note_of_fewer(ends, len(prompts), n), file=sys.stderr)
    if guessing is not None:
        print(f"{writer.tally.stayed} of {writer.tally.guessed} guesses were accepted.", file=sys.stderr)
    return 0


def guessing_of(arguments: Arguments) -> Guessing | None:
    """Return the source of guessed tokens that the flags name, or None if there is none. Errors: `ConfigError`."""
    given = arguments.options
    if not {"draft", "lookup", "guesses"} & given.keys():
        return None
    if ("draft" in given) == ("lookup" in given):
        raise ConfigError(
            "Guesses come from another run (--draft RUN) or from the text (--lookup N). Give exactly one of them."
        )
    lookup = whole_number("lookup", given["lookup"], MOST_GUESSES) if "lookup" in given else 0
    guesses = whole_number("guesses", given.get("guesses", "4"), MOST_GUESSES)
    draft = existing_run(given["draft"]) if "draft" in given else None
    from glassformer.train.finished.writing import Guessing  # here, as importing torch takes a second

    return Guessing(draft, lookup, guesses)


def decoding(recipe: Recipe, arguments: Arguments) -> Recipe:
    """Return the run's recipe with the decode settings that were given.

    Texts are sampled, unless a flag asks for a beam: if neither the recipe nor a flag gives a temperature, it is 1.
    """
    changes = with_settings(arguments, {name: f"decode.{name.replace('-', '_')}" for name in SHORT})
    greedy, searched = "greedy" in arguments.options, "decode.beam" in changes
    if greedy and searched:
        raise ConfigError(
            "--greedy takes the most probable token at each step; decode.beam searches for the most probable text. "
            "Give only one of them."
        )
    if searched:
        decoded = beamed(recipe, drawing_nothing(changes, "decode.beam searches for the most probable text"))
    elif greedy:
        decoded = override(recipe, NO_BEAM | drawing_nothing(changes, "--greedy takes the most probable token"))
    else:
        decoded = sampled(recipe, changes)
    refuse_idle_seed(decoded.decode, changes)
    refuse_idle_search(decoded.decode, changes)
    return decoded


def drawing_nothing(changes: Mapping[str, object], who: str) -> dict[str, object]:
    """Return the settings with those of drawing turned off. Errors: `ConfigError` for one that contradicts `who`."""
    turned_off = {f"decode.{name}": value for name, value in OF_DRAWS.items()}
    for place, value in turned_off.items():
        if changes.get(place, value) != value:
            other = "chooses in another way" if place == "decode.contrastive_alpha" else "would have no effect"
            raise ConfigError(f"{who} and does not sample; {place} {other}. Give only one of them.")
    return {**turned_off, **changes}


def sampled(recipe: Recipe, changes: Mapping[str, object] = NO_CHANGES) -> Recipe:
    """Return the recipe with changes, without a beam, and with temperature 1 unless it or a change draws otherwise.

    The beam of a recipe is for its evaluations.
    """
    looks_ahead = changes.get("decode.contrastive_alpha", recipe.decode.contrastive_alpha)
    usual: dict[str, object] = {} if recipe.decode.temperature or looks_ahead else {"decode.temperature": 1.0}
    return override(recipe, {**NO_BEAM, **usual, **changes})


def refuse_alike(n: int, recipe: Recipe) -> None:
    """Refuse several texts for a prompt where they would be equal, and more than a beam has. Errors: `ConfigError`."""
    if recipe.decode.beam > 1:
        refuse_more("n", n, recipe.decode.beam)
    elif n > 1 and recipe.decode.temperature == 0:
        raise ConfigError(
            f"{drawless(recipe.decode)} draws nothing and writes the same text each time; got --n {n}. Remove --n, or "
            f"sample instead (for example --temperature 0.8). --beam {n} searches for the {n} most probable texts."
        )


def prompts_of(arguments: Arguments, recipe: Recipe) -> list[str]:
    """Return the prompts: that of `--prompt`, the lines of `--file`, or standard input without its last line end.

    A terminal is not waited for: without a prompt, the prompt is empty.
    """
    given, file = arguments.options.get("prompt"), arguments.options.get("file")
    if given is not None and file is not None:
        raise ConfigError("--prompt gives one prompt, --file one prompt per line. Give only one of them.")
    if file is not None:
        return [*texts_of(read_lines(file), f"{file}:", arguments, recipe)]
    if idle := [f"--{each}" for each in ("field", "plain") if each in arguments.options]:
        raise ConfigError(f"{idle[0]} is for the lines of --file; all else is one prompt. Remove {idle[0]}.")
    if given is not None:
        return [given]
    if sys.stdin.isatty():
        return [""]
    data = sys.stdin.buffer.read(LONGEST_LINE + 1).removeprefix(MARK)
    if len(data) > LONGEST_LINE:
        raise DataError(
            f"A prompt may have at most {LONGEST_LINE:,} bytes; standard input has more. Give a shorter one."
        )
    return [decoded(data.removesuffix(b"\n").removesuffix(b"\r"), "Standard input")]


def in_order(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces of row 0 as they come, then all of row 1, and so on, though the rows are generated together."""
    waiting: dict[int, list[Piece]] = {}
    turn = 0
    for piece in pieces:
        waiting.setdefault(piece.row, []).append(piece)
        while turn in waiting:
            ready = waiting.pop(turn)
            yield from ready
            if not ready[-1].end:
                break
            turn += 1


def with_ends(pieces: Iterable[Piece], ends: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces, and collect in `ends` the last one of each text."""
    for piece in pieces:
        if piece.end:
            ends.append(piece)
        yield piece


def note_of_cut(ends: list[Piece], arguments: Arguments, continues: bool) -> str:
    """Return the note that limits cut some of these texts before they matched; that of the context has its advice."""
    from glassformer.decode.answer import CONTEXTS  # here, as importing torch takes a second

    flag = "--regex" if "regex" in arguments.options else "--json-schema"
    cut = [number for number, piece in enumerate(ends, 1) if not piece.complete]
    room = lengths_of(each for each in ends if not each.complete)
    verb = "was" if len(cut) == 1 else "were"
    came = "the text was" if len(ends) == 1 else f"{len(cut)} of {len(ends)} texts ({firsts(cut)}) {verb}"
    message = f"A text matches {flag} only when it is complete; {came} cut before that, at {room} tokens."
    if all(each.complete or each.limit == CONTEXTS for each in ends):
        return message
    return f"{message} Raise --max-new-tokens{'' if continues else ' (at most model.max_len)'}."


def note_of_context(ends: list[Piece], n_prompts: int, n: int) -> str:
    """Return the note of the texts that end where the context is full, though nobody asked for it; "" without any."""
    from glassformer.decode.answer import CONTEXTS  # here, as importing torch takes a second

    cut = [piece for piece in ends if piece.limit == CONTEXTS]
    if not cut:
        return ""
    where = f" behind prompt {firsts(sorted({piece.row // n + 1 for piece in cut}))}" if n_prompts > 1 else ""
    came = "The text" if len(ends) == 1 else f"{len(cut)} of {len(ends)} texts"
    return (
        f"A beam search reads a prompt and its text together. {came}{where} ended at {lengths_of(cut)} tokens, as the "
        "prompt leaves no more of the context. For longer texts shorten the prompt, or give --max-new-tokens with "
        "--crop."
    )


def note_of_fewer(ends: list[Piece], n_prompts: int, n: int) -> str:
    """Return the note of which prompts a search found fewer than `n` texts for."""
    found = Counter(piece.row // n + 1 for piece in ends)
    fewer = [number for number in range(1, n_prompts + 1) if found[number] < n]
    where = f" behind prompt {firsts(fewer)}" if n_prompts > 1 else ""
    return f"The search found fewer than {n} texts that differ{where}. Raise --beam or lower --n: there may be no more."


def lengths_of(ends: Iterable[Piece]) -> str:
    """Return how many tokens these texts have, for a message."""
    lengths = sorted({piece.tokens for piece in ends})
    return " or ".join(map(str, lengths)) if len(lengths) < 3 else f"{lengths[0]} to {lengths[-1]}"


def show(pieces: Iterable[Piece], prompts: list[str], n: int) -> None:
    """Print each text after its prompt, flushing each piece, with a line `---` between texts and a line end at the end.

    If this is interrupted, what was written so far stays.
    """
    out, row, last = sys.stdout.buffer, -1, b"\n"
    try:
        for piece in pieces:
            text = piece.text.encode()
            if piece.row != row:
                row = piece.row
                out.write(SEPARATOR if row else b"")
                text, last = prompts[row // n].encode() + text, b""
            if piece.end and not (text or last).endswith(b"\n"):
                text += b"\n"
            last = text or last
            out.write(text)
            out.flush()
    finally:
        if not last.endswith(b"\n"):
            out.write(b"\n")
            out.flush()


def show_json(pieces: Iterable[Piece], prompts: list[str], n: int, untrained: Mapping[int, Untrained]) -> None:
    """Print one JSON object per line for each text: prompt, text (without the prompt), tokens, and why it ended.

    With a beam also its log-probability and score; where the length of a source is new to the model, also that.
    """
    text: list[str] = []
    for piece in pieces:
        text.append(piece.text)
        if piece.end:
            found: dict[str, object] = {
                "prompt": prompts[piece.row // n],
                "text": "".join(text),
                "tokens": piece.tokens,
                "end": piece.end,
                **untrained_field(untrained.get(piece.row // n + 1)),
            }
            if piece.score is not None:
                found |= {"log_probability": piece.log_probability, "score": piece.score}
            sys.stdout.buffer.write(json.dumps(found, ensure_ascii=False).encode() + b"\n")
            sys.stdout.buffer.flush()
            text = []
