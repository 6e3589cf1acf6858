"""Write text with a run: what it reads for a prompt, how long its texts are, and which tokens it never writes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError, RowError, TooLongError, firsts
from glassformer.base.runtime import Threads
from glassformer.data.tokens.vocabulary import BOS, EOS, lacking
from glassformer.decode.answer import CONTEXTS, REQUESTED, Limit, Method, limit_of, method_of, nothing
from glassformer.decode.beam import check_search
from glassformer.decode.choose import refuse_certain
from glassformer.decode.constraints import NO_CONSTRAINTS, Constraints, can_spell, shown_of
from glassformer.decode.filters import Filter, Named, filters_of, one_end, unwritten, without
from glassformer.decode.prepare import prepared
from glassformer.decode.speculative import Tally, check_guessing, speculative
from glassformer.decode.stream import LIMITED, Piece, check_stops, goes_on, search_texts, write
from glassformer.store.checkpoint import Loaded
from glassformer.train.finished.loading import load_run, load_runs, placed_like, shortest_of, tell_decoding
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.sample_lengths import LENGTHS, Untrained, in_words, untrained
from glassformer.train.tasks import task_of
from glassformer.train.tasks.task import GENERATE

CROP = " With --crop its end is read."
"""Advice for a user of the command line."""


class Room(NamedTuple):
    """How much is read at once. A beam search reads prompt and text as a whole and drops nothing at the front."""

    longest: int
    """In tokens."""
    drop: int
    """A prompt that is cropped makes room for one token more than this, if nothing says how long its text may be."""
    setting: str
    """What it is called in a recipe."""

    def fitted(
        self, ids: list[int], number: int, requested: int | None, usual: int, crop: bool
    ) -> tuple[list[int], Limit]:
        """What is read of a prompt, and the limit of its text: what was asked for, else the usual one or what fits.

        The last token of a text is not read, so it needs no room. With `crop`, the end of the prompt is read that
        leaves room. Errors: `TooLongError` with the `number` of a prompt that leaves too little.
        """
        together = f"A beam search reads a prompt and its text together, at most {self.longest} tokens here"
        if requested is not None and requested > self.longest:
            raise TooLongError(
                f"{together} ({self.setting}), so a text may have at most {self.longest}; got max_new_tokens="
                f"{requested}. Set max_new_tokens={self.longest} or less."
            )
        if crop:
            needed = min(usual, self.drop + 1, self.longest) if requested is None else requested
            ids = ids[-(self.longest + 1 - needed) :]
        room = self.longest + 1 - len(ids)
        if requested is None:
            return ids, Limit(usual, REQUESTED) if usual <= room else Limit(room, CONTEXTS)
        if requested > room:
            raise TooLongError(
                f"{together} ({self.setting}); prompt {number} has {len(ids)}, which leaves room for {room}; got "
                f"max_new_tokens={requested}. Set max_new_tokens={room} or less, or shorten the prompt.{CROP}"
            )
        return ids, Limit(requested, REQUESTED)


# Draft tokens for speculative decoding, from another run or from the text itself.


class Guessing(NamedTuple):
    """The draft run, or the number of tokens that must be in the text already; and the number of guesses at a time."""

    draft: Path | None = None
    lookup: int = 0
    guesses: int = 4


def guessed(requested: Guessing, loaded: Loaded, recipe: Recipe, first: Sequence[Filter], tally: Tally) -> Method:
    """The speculative decoding that was asked for; a draft is on the device of the run that writes.

    Errors: `ConfigError` for a draft with other tokenizers, and those of loading it.
    """
    draft = None
    if requested.draft is not None:
        found = load_run(requested.draft, placed_like(load_recipe(requested.draft / "recipe.toml"), recipe))
        pairs = zip(found.tokenizers, loaded.tokenizers, strict=True)
        if any(theirs.to_json() != ours.to_json() for theirs, ours in pairs):
            raise ConfigError(
                f"A draft must have the same vocabulary as the run that it guesses for; {requested.draft} has another. "
                "Train it on the same texts with the same [tokenizer]."
            )
        decode = recipe.decode
        draft = prepared(found.model, decode.precision, decode.cache, compile=decode.compile)
    check_guessing(loaded.model, draft, requested.lookup, requested.guesses, recipe.decode)
    of = {"draft": draft, "lookup": requested.lookup, "guesses": requested.guesses}
    return partial(speculative, **of, sampling=recipe.decode, filters=first, tally=tally)


USUAL_TOKENS = 200
"""Tokens of a continuation, if no other number is asked for."""


class Writer:
    """The best checkpoint of a run, or those of several as an ensemble, ready to continue prompts.

    A model with an encoder answers them instead.
    """

    def __init__(
        self, run: Path, recipe: Recipe, guessing: Guessing | None = None, others: Sequence[Path] = ()
    ) -> None:
        """`recipe` is the run's own, with other decoding; with `guessing` it decodes speculatively.

        `others`: runs that write with this one, as an ensemble (`load_runs`).

        Errors: `ConfigError` for a run that writes no text.
        """
        self.task = task_of(recipe.data)
        self.task.refuse_unfit(run, GENERATE)
        if guessing is not None and recipe.decode.beam > 1:
            raise ConfigError(
                "A text is guessed at while it is written token by token; a beam search reads many at a time; got "
                f"guesses with decode.beam={recipe.decode.beam}. Remove the guesses, or set decode.beam=1."
            )
        self.recipe, self.guessing, self.tally = recipe, guessing, Tally()
        self.threads = Threads(recipe.decode.threads)
        """Those that texts are written with."""
        self.loaded = load_runs(run, recipe, others)
        self.shortest = shortest_of(self.loaded.model, [run, *others])
        """The run that takes the shortest texts, if several write as one."""
        decode = recipe.decode
        self.model = prepared(self.loaded.model, decode.precision, decode.cache, compile=decode.compile)
        self.tokenizers = self.loaded.tokenizers
        self.continues = self.model.encoder is None
        """Whether a text continues its prompt; otherwise it is an answer to it."""
        self.documents = self.task.begins
        limits = [self.task.window, self.model.config.stack.max_len]
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
        return f"{called} {firsts(parts)}: {lacking('it', chain.from_iterable(parts.values()))}."

    def untrained(self, prompts: Sequence[str | list[int]]) -> dict[int, Untrained]:
        """The prompts that are shorter or longer than every source in training, by their numbers, from 1."""
        encode, state = self.tokenizers.source.encode, self.loaded.state
        if not state.get(LENGTHS):
            return {}
        lengths = [len(encode(each) if isinstance(each, str) else each) for each in prompts]
        return {number: new for number, n in enumerate(lengths, 1) if (new := untrained(n, state))}

    def unwritable(self, stops: Sequence[str]) -> list[str]:
        """A note for each stop text that the vocabulary cannot write, so that it never comes."""
        spelled = shown_of(self.tokenizers.target)
        never = [each for each in stops if not can_spell(spelled, self.tokenizers.target.normal(each))]
        return [f"the vocabulary cannot write {each[:40]!r}, so no text ends there" for each in never]

    def write(
        self,
        prompts: Sequence[str],
        n: int = 1,
        stops: Sequence[str] = (),
        crop: bool = False,
        constraints: Constraints = NO_CONSTRAINTS,
        poll: Callable[[], None] = nothing,
    ) -> Iterator[Piece]:
        """Write `n` texts for each prompt, piece by piece: row i * n + k is text k of prompt i.

        With a beam they are the `n` best texts, best first, a piece each, and fewer where the search finds no more that
        differ. `decode.batch_size` rows, or prompts with a beam, are written together, which changes none of them.
        `constraints` apply to all. Errors: `DataError`, before the first piece, for a prompt that is longer than the
        model reads (with `crop` its end is read), or empty where it must not be; `ConfigError` for constraints that
        contradict each other.
        """

        def written() -> Generator[Piece]:
            check_stops(stops)
            target, decode = self.tokenizers.target, self.recipe.decode
            forced = constraints.held(target, stops)
            check_search(decode, forced=forced)
            ids = [self.ids(prompt, number, crop, hint=CROP) for number, prompt in enumerate(prompts, 1)]
            ids, limits = self.limited(ids, constraints.begun(target), crop)
            constraints.check_room(target, min(limits, default=self.usual))
            grammar = constraints.grammar(target)
            never, wanted = self.never(constraints.constrained), constraints.filters(target, grammar)
            wanted = [*self.ends(never), *wanted]
            first = [without(never), *wanted]
            if ids and not stops and (constraints.constrained or constraints.begin):  # a stop could end the text before
                with naming_texts(len(ids) * n, n):
                    self.refuse_conflict(first, ids[0], limits[0].tokens)
            if decode.beam > 1:
                filters, of_row = [*wanted, *filters_of(decode)], 1
                writes = partial(search_texts, search=decode, n=n, filters=filters, never=never, forced=forced)
            else:
                of_row = n
                writes = partial(write, method=self.method(first), max_context=self.max_context, drop=self.drop)
            behind = [self.goes_on(*each) for each in zip(ids, prompts, strict=True)]
            tell_decoding(self.loaded.model, decode, self.threads.reason)
            total = len(ids) * of_row
            for start in range(0, total, decode.batch_size):
                rows = range(start, min(start + decode.batch_size, total))
                given = [ids[row // of_row] for row in rows]
                pieces = writes(
                    self.model,
                    target,
                    sources=None if self.continues else given,
                    prompts=given if self.continues else None,
                    max_new_tokens=[limits[row // of_row].tokens for row in rows],
                    stops=stops,
                    numbers=rows,
                    prefix=self.recipe.data.objective == "prefix",
                    poll=poll,
                    behind=[behind[row // of_row] for row in rows],
                    complete=None if grammar is None else grammar.complete,
                )
                with naming_texts(total, of_row):
                    for piece in pieces:
                        row = start * n // of_row + piece.row
                        yield piece._replace(row=row, limit=limits[row // n].name if piece.end == LIMITED else "")

        yield from self.threads.through(written())

    @property
    def usual(self) -> Limit:
        """The limit of a continuation with room for it."""
        return Limit(self.recipe.decode.max_new_tokens or USUAL_TOKENS, REQUESTED)

    def limited(self, ids: list[list[int]], begun: int, crop: bool) -> tuple[list[list[int]], list[Limit]]:
        """What is read of each prompt and the limit of its texts, which begin with `begun` given tokens.

        Errors: `TooLongError` where a search needs more than the context (`fitted`).
        """
        requested = self.recipe.decode.max_new_tokens
        if not self.continues:
            return ids, [limit_of(self.model, each, requested, begun) for each in ids]
        if self.recipe.decode.beam == 1 or self.max_context is None:
            return ids, [self.usual] * len(ids)
        whose = f" of {self.shortest}" if self.shortest and self.limiting == "model.max_len" else ""
        room = Room(self.max_context, self.drop, self.limiting + whose)
        pairs = [room.fitted(each, number, requested, USUAL_TOKENS, crop) for number, each in enumerate(ids, 1)]
        return [read for read, _ in pairs], [limit for _, limit in pairs]

    def method(self, first: Sequence[Filter]) -> Method:
        """The method that writes token by token; the filters in `first` come before all others."""
        if self.guessing is not None:
            return guessed(self.guessing, self.loaded, self.recipe, first, self.tally)
        return method_of(self.recipe.decode, first)

    @property
    def limiting(self) -> str:
        """The setting that limits what is read."""
        return "data.window" if self.task.window is not None and self.continues else "model.max_len"

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
        ids = self.tokenizers.source.encode(prompt)
        if self.continues and self.documents and (self.tokenizers.source.begins or (not ids and self.has_begin)):
            ids = [BOS, *ids]
        if not ids or not (self.continues or prompt.strip()):
            cause = "it has no token that begins one" if self.documents else "its data.documents is false"
            why = f"continues a text, as {cause}" if self.continues else "answers a source"
            raise DataError(f"This model {why}; {called} {number} is empty. Give a text.")
        of_model = self.model.config
        limit = self.max_context if self.continues or of_model.encoder is None else of_model.encoder.max_len
        length = len(ids) + (0 if self.continues else 1)
        if limit is not None and length > limit and not (crop and self.continues):
            setting = self.limiting
            whose = f"{self.shortest}: " if self.shortest and setting == "model.max_len" else ""
            raise TooLongError(
                f"{whose}A {called} may have at most {limit} tokens here ({setting}), special tokens included; "
                f"{called} {number} has {length}: {prompt[:40]!r}... Shorten it, or train with a larger {setting}."
                + (hint if self.continues else "")
            )
        return ids

    def never(self, constrained: bool = False) -> list[int]:
        """Special tokens that no text has (`unwritten`). With a grammar <eos> is allowed, because it ends the text."""
        ends = not self.continues or self.documents or constrained
        never = unwritten(self.task.layout.decoder, self.recipe.data.objective, ends=ends)
        return [*never, *self.tokenizers.target.ends] if EOS in never else never

    def ends(self, never: Sequence[int]) -> list[Filter]:
        """What takes the other tokens that end a text for <eos>, if the vocabulary has any and a text may end."""
        others = self.tokenizers.target.ends
        return [one_end(others)] if others and EOS not in never else []

    @property
    def has_begin(self) -> bool:
        """Whether the model knows <bos>: an imported one may have no row for it."""
        assert self.model.decoder is not None
        return bool(self.model.decoder.embedding.weight[BOS].any())


def note_of(found: Mapping[int, Untrained], called: str) -> str:
    """A note that numbers these prompts, which are `called` so; empty if there are none."""
    return f"{called} {firsts(found)}: {in_words([*found.values()])}." if found else ""


@contextmanager
def naming_texts(total: int, n: int) -> Generator[None]:
    """Call the row of an error by its text and its prompt, of `total` texts of which each prompt has `n`."""
    try:
        yield
    except RowError as error:
        which = f"text {error.row % n + 1}" if n > 1 else "the text"
        raise error.named(f"{which} of prompt {error.row // n + 1}" if total > n else which) from None
