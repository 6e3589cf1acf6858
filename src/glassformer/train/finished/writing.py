"""Write text with a run: what it reads for a prompt, how long its texts are, and which tokens it never writes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from glassformer.data.purpose import WRITING, refuse_unfit
from glassformer.data.running.text_settings import TEXT
from glassformer.data.tokens.vocabulary import BOS, lacking
from glassformer.decode.answer import ASKED, Limit, limit_of, nothing
from glassformer.decode.choose.conflict import refuse_certain
from glassformer.decode.choose.context import Filter, Named
from glassformer.decode.choose.draw import filters_of
from glassformer.decode.choose.unwritten import unwritten, without
from glassformer.decode.choose.words import NO_WISHES, Wishes
from glassformer.decode.method import method_of
from glassformer.decode.prepare import prepared
from glassformer.decode.speculative import Tally
from glassformer.decode.stream import Piece, check_stops, goes_on, write
from glassformer.foundation.errors import ConfigError, DataError, RowError, TooLongError
from glassformer.train.finished.committee import load_runs, shortest_of
from glassformer.train.finished.guessing import Guessing, guessed
from glassformer.train.finished.loading import tell_decoding
from glassformer.train.recipe import Recipe

USUAL_TOKENS = 200
"""Tokens of a continuation, if no other number is asked for."""
CROP = " With --crop its end is read."
"""Advice for a user of the command line."""


class Writer:
    """The best checkpoint of a run, or those of several as a committee, ready to continue prompts.

    A model with an encoder answers them instead.
    """

    def __init__(
        self, run: Path, recipe: Recipe, guessing: Guessing | None = None, others: Sequence[Path] = ()
    ) -> None:
        """`recipe` is the run's own, with other decoding; with `guessing` it decodes speculatively.

        `others`: runs that write with this one, as a committee (`load_runs`).

        Errors: `ConfigError` for a run that writes no text.
        """
        refuse_unfit(run, recipe.data, WRITING)
        self.recipe, self.guessing, self.tally = recipe, guessing, Tally()
        self.loaded = load_runs(run, recipe, others)
        self.shortest = shortest_of(self.loaded.model, [run, *others])
        """The run that takes the shortest texts, if several write as one."""
        decode = recipe.decode
        self.model = prepared(self.loaded.model, decode.precision, decode.cache, compile=decode.compile)
        self.tokenizers = self.loaded.tokenizers
        self.continues = self.model.encoder is None
        """Whether a text continues its prompt; otherwise it is an answer to it."""
        data = recipe.data
        self.documents = data.task != TEXT or data.documents is not False
        limits = [data.window if data.task == TEXT else None, self.model.config.stack.max_len]
        self.max_context = min((each for each in limits if each is not None), default=None) if self.continues else None
        self.drop = max(1, (self.max_context or 0) // 4)
        """How many tokens are dropped from the front at a time, if a text is longer than the context."""

    def unknown(self, prompts: Sequence[str | list[int]], called: str = "prompt") -> str:
        """A note that numbers, from 1, the prompts of which the vocabulary lacks a part; empty if there are none.

        Ids are read as they are, so that none of theirs is lacking.
        """
        lacks = self.tokenizers.source.lacks
        parts = {i: found for i, each in enumerate(prompts, 1) if isinstance(each, str) and (found := lacks(each))}
        if not parts:
            return ""
        which = ", ".join(map(str, [*parts][:5])) + (", ..." if len(parts) > 5 else "")
        return f"{called} {which}: {lacking('it', chain.from_iterable(parts.values()))}."

    def write(
        self,
        prompts: Sequence[str],
        n: int = 1,
        stops: Sequence[str] = (),
        crop: bool = False,
        wishes: Wishes = NO_WISHES,
        poll: Callable[[], None] = nothing,
    ) -> Iterator[Piece]:
        """Write `n` texts for each prompt, piece by piece: row i * n + k is text k of prompt i.

        `decode.batch_size` rows are written together, which changes none of them. `wishes` apply to all. Errors:
        `DataError`, before the first piece, for a prompt that is longer than the model reads (with `crop` its end is
        read), or empty where it must not be; `ConfigError` for wishes that contradict each other.
        """
        check_stops(stops)
        if wishes.forced:
            raise ConfigError(
                "Forced words need a beam search, but here a text is written token by token. Use translate with a "
                "beam, or beam_search(prompts=, forced=)."
            )
        ids = [self.ids(prompt, number, crop, hint=CROP) for number, prompt in enumerate(prompts, 1)]
        decode, total = self.recipe.decode, len(ids) * n
        asked = decode.max_new_tokens
        begun = wishes.begun(self.tokenizers.target)
        usual = Limit(asked or USUAL_TOKENS, ASKED)
        limits = [usual if self.continues else limit_of(self.model, each, asked, begun) for each in ids]
        wishes.check_room(self.tokenizers.target, min(limits, default=usual))
        grammar = wishes.grammar(self.tokenizers.target)
        first = [without(self.never(wishes.constrained)), *wishes.filters(self.tokenizers.target, grammar)]
        if ids and not stops and (wishes.constrained or wishes.begin):  # a stop could end the text before
            with naming_texts(total, n):
                self.refuse_conflict(first, ids[0], limits[0].tokens)
        method = method_of(decode, first)
        if self.guessing is not None:
            method = guessed(self.guessing, self.loaded, self.recipe, first, self.tally)
        behind = [self.goes_on(*each) for each in zip(ids, prompts, strict=True)]
        tell_decoding(self.loaded.model, decode)
        for start in range(0, total, decode.batch_size):
            rows = range(start, min(start + decode.batch_size, total))
            given = [ids[row // n] for row in rows]
            pieces = write(
                self.model,
                self.tokenizers.target,
                sources=None if self.continues else given,
                prompts=given if self.continues else None,
                max_new_tokens=[limits[row // n].tokens for row in rows],
                method=method,
                stops=stops,
                max_context=self.max_context,
                drop=self.drop,
                numbers=rows,
                prefix=self.recipe.data.objective == "prefix",
                poll=poll,
                behind=[behind[row // n] for row in rows],
                complete=None if grammar is None else grammar.complete,
            )
            with naming_texts(total, n):
                for piece in pieces:
                    yield piece._replace(row=start + piece.row)

    def refuse_conflict(self, first: Sequence[Filter], prompt: Sequence[int], most: int) -> None:
        """Refuse settings that certainly leave the text of a prompt without a next token. Errors: `ConfigError`."""
        steps = [*first, *(each for each in filters_of(self.recipe.decode) if isinstance(each, Named))]
        refuse_certain(steps, self.tokenizers.target.vocab_size, prompt if self.continues else [BOS], most)

    def goes_on(self, ids: Sequence[int], prompt: str | list[int]) -> bool:
        """Whether the text continues the words of its prompt, so that its first word needs a space before it."""
        text = prompt if isinstance(prompt, str) else None
        return self.continues and goes_on(self.tokenizers.target, ids, text)

    def ids(self, prompt: str, number: int, crop: bool = False, *, called: str = "prompt", hint: str = "") -> list[int]:
        """The ids that the model reads for a prompt. A text that is a document starts with <bos>.

        Errors: `DataError`, in which the prompt is `called` so; `hint` is added for a prompt that could be cropped.
        """
        begin = [BOS] if self.continues and self.documents else []
        ids = [*begin, *self.tokenizers.source.encode(prompt)]
        if not ids or not (self.continues or prompt.strip()):
            why = "continues a text, as its data.documents is false" if self.continues else "answers a source"
            raise DataError(f"This model {why}; {called} {number} is empty. Give a text.")
        of_model = self.model.config
        limit = self.max_context if self.continues or of_model.encoder is None else of_model.encoder.max_len
        length = len(ids) + (0 if self.continues else 1)
        if limit is not None and length > limit and not (crop and self.continues):
            setting = "data.window" if self.recipe.data.task == TEXT and self.continues else "model.max_len"
            whose = f"{self.shortest}: " if self.shortest and setting == "model.max_len" else ""
            raise TooLongError(
                f"{whose}A {called} may have at most {limit} tokens here ({setting}), special tokens included; "
                f"{called} {number} has {length}: {prompt[:40]!r}... Shorten it, or train with a larger {setting}."
                + (hint if self.continues else "")
            )
        return ids

    def never(self, constrained: bool = False) -> list[int]:
        """Special tokens that no text has (`unwritten`). With a grammar <eos> is allowed, because it ends the text."""
        data = self.recipe.data
        return unwritten(data.layout, data.objective, ends=not self.continues or self.documents or constrained)


@contextmanager
def naming_texts(total: int, n: int) -> Generator[None]:
    """Call the row of an error by its text and its prompt, of `total` texts of which each prompt has `n`."""
    try:
        yield
    except RowError as error:
        which = f"text {error.row % n + 1}" if n > 1 else "the text"
        raise error.named(f"{which} of prompt {error.row // n + 1}" if total > n else which) from None
