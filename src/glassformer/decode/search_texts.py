"""The most probable texts behind prompts, found by a beam search; `stream.py` writes a text token by token instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from glassformer.data.tokens.vocabulary import Tokenizer, utf8
from glassformer.decode.beam import check_beam
from glassformer.decode.beam_settings import BeamSettings
from glassformer.decode.choose.context import Filter
from glassformer.decode.choose.words import shown_of, tail_of
from glassformer.decode.forced import Forced
from glassformer.decode.hypotheses import Hypothesis, UnansweredError
from glassformer.decode.method import search_of
from glassformer.decode.stops import Cut
from glassformer.decode.stream import ENDED, LIMITED, STOPPED, Piece, TextStream
from glassformer.nn.transformer import Transformer

LONGEST_CHARACTER = 4
"""Bytes of the longest character in UTF-8."""


def search_texts(
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    search: BeamSettings,
    n: int,
    sources: Sequence[Sequence[int]] | None,
    prompts: Sequence[Sequence[int]] | None,
    max_new_tokens: Sequence[int],
    stops: Sequence[str],
    filters: Sequence[Filter],
    never: Sequence[int],
    forced: Forced | None,
    numbers: Sequence[int],
    prefix: bool,
    poll: Callable[[], None],
    behind: Sequence[bool],
    complete: Callable[[Sequence[int]], bool] | None,
) -> Iterator[Piece]:
    """Yield the `n` best texts of each row, best first: a piece each, which has row i * n + k for text k of row i.

    There are fewer where the search finds no more that differ. Arguments are those of `beam_search` and `write`; as in
    `write`, a stop text is left out of the text that it ends. Errors: those of `beam_search`; that for a row without an
    answer comes after the texts of the rows before it.
    """
    check_beam(search.beam, n, search.beam_groups)
    refused: UnansweredError | None = None
    found: list[list[Hypothesis]]
    try:
        found = search_of(search)(
            model,
            sources=sources,
            prompts=prompts,
            max_new_tokens=max_new_tokens,
            n_best=1 if n == 1 else search.beam,  # of which some may be one text, in other tokens
            filters=filters,
            never=never,
            forced=forced,
            numbers=numbers,
            prefix=prefix,
            stop=stop_of(tokenizer, stops, behind) if stops else None,
            poll=poll,
        )
    except UnansweredError as error:
        found, refused = error.found, error
    for row, answers in enumerate(found):
        texts: dict[str, Piece] = {}
        for each in answers:
            text, stopped = told(tokenizer, stops, each.ids, behind[row])
            end = STOPPED if stopped else ENDED if each.complete else LIMITED
            whole = end != LIMITED or complete is None or complete(each.ids)
            length = len(each.ids) + (each.complete and not each.stopped)
            texts.setdefault(text, Piece(row, text, length, end, whole, each.log_probability, each.score))
        for k, piece in enumerate([*texts.values()][:n]):
            yield piece._replace(row=row * n + k)
    if refused is not None:
        raise refused


def told(tokenizer: Tokenizer, stops: Sequence[str], ids: Sequence[int], behind: bool) -> tuple[str, bool]:
    """Return the text of the ids up to a stop text, and whether there is one; `behind` is that of `TextStream`."""
    stream = TextStream(tokenizer, stops, behind=behind)
    text = "".join([*map(stream.add, ids), stream.end()])
    return text, stream.stopped


def stop_of(tokenizer: Tokenizer, stops: Sequence[str], behind: Sequence[bool]) -> Cut:
    """Make a `Cut` that ends a row once its text has a stop text. `behind`: of each row, as for `TextStream`.

    It looks at the end of a text, as no stop text came before, and reads the text as a whole only where one may stand.
    """
    spelled, words = shown_of(tokenizer), [tokenizer.normal(each) for each in stops]
    longest = max(len(utf8(each)) for each in words) + LONGEST_CHARACTER

    def before_stop(row: int, ids: Sequence[int]) -> str | None:
        tail = tail_of(ids, spelled, len(spelled[ids[-1]]) + longest).decode(errors="replace")
        if not any(each in tail for each in words):
            return None
        stream = TextStream(tokenizer, stops, behind=behind[row])
        text = "".join(map(stream.add, ids))
        return text if stream.stopped else None

    return before_stop
