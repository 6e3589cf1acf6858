"""Filters given as text: texts that may not be written, how a text begins, biases for tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import UNK, Tokenizer, utf8
from glassformer.decode.answer import CONTEXTS, MODELS, Limit
from glassformer.decode.choose.constrained import Constraint, constraint_of
from glassformer.decode.choose.context import Context, Filter, Named
from glassformer.decode.choose.penalties import check_known, forbidden, logit_bias
from glassformer.decode.forced import Forced


@dataclass(frozen=True)
class Wishes:
    """What a text must or must not contain, given as text; with a tokenizer it becomes filters.

    Errors: `ConfigError` for empty texts, `DataError` for half characters (lone surrogates), as from arguments that are
    not UTF-8.
    """

    banned: Sequence[str] = ()
    """Texts that must not be written."""
    begin: str = ""
    """How each text begins."""
    biases: Mapping[str, float] = field(default_factory=dict[str, float])
    """What to add to the logits of tokens, by their text."""
    regex: str = ""
    """A regular expression that the whole text must match."""
    schema: str = ""
    """A JSON schema, as JSON, that the text must fit."""
    forced: Sequence[str] = ()
    """Texts that each answer of a beam must contain."""

    def __post_init__(self) -> None:
        for name, texts in (("banned", self.banned), ("forced", self.forced)):
            if any(not each for each in texts):
                raise ConfigError(f"A {name} text must have at least one character; got ''. Remove it.")
        for text in (*self.banned, *self.forced, *self.biases, self.begin, self.regex, self.schema):
            utf8(text)
        if self.regex and self.schema:
            raise ConfigError("A text follows either a regular expression or a JSON schema; got both. Give only one.")

    @property
    def constrained(self) -> bool:
        """Whether a grammar determines where a text may end."""
        return bool(self.regex or self.schema)

    def grammar(self, tokenizer: Tokenizer) -> Constraint | None:
        """Make the grammar that the text follows; None if there is none. Errors: as `matches` and `fits`."""
        return constraint_of(tokenizer, self.regex, self.schema)

    def filters(self, tokenizer: Tokenizer, grammar: Constraint | None = None) -> list[Filter]:
        """Make the filters, in the order in which they apply; `grammar`, if it was made before, is not made again.

        Errors: `ConfigError` for text not in the vocabulary.
        """
        made: list[Filter] = []
        if self.biases:
            bias = logit_bias({token_of(tokenizer, text): value for text, value in self.biases.items()})
            made.append(Named(bias, "Wishes.biases") if -math.inf in self.biases.values() else bias)
        if self.banned:
            made.append(Named(banned_texts(tokenizer, self.banned), "Wishes.banned"))
        grammar = grammar or self.grammar(tokenizer)
        if grammar is not None:
            made.append(Named(grammar.filter, "Wishes.regex" if self.regex else "Wishes.schema"))
        if self.begin:
            made.append(Named(begins_with(ids_of(tokenizer, self.begin)), "Wishes.begin"))
        return made

    def begun(self, tokenizer: Tokenizer) -> int:
        """The number of tokens of `begin`. Errors: `ConfigError` if the vocabulary cannot write it."""
        return len(ids_of(tokenizer, self.begin)) if self.begin else 0

    def check_room(self, tokenizer: Tokenizer, limit: Limit) -> None:
        """Refuse a `begin` with more tokens than the limit. Errors: `ConfigError`."""
        if (length := self.begun(tokenizer)) > limit.tokens:
            more = "" if limit.name in (MODELS, CONTEXTS) else f", or raise max_new_tokens to {length} or more"
            raise ConfigError(
                f"A text must have room for its beginning; {self.begin[:40]!r} has {length} tokens, and a text may "
                f"have {limit.tokens} ({limit.name}). Shorten the beginning{more}."
            )

    def held(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> Forced | None:
        """The `forced` texts for a beam, or None; one of `stops` ends the text before it.

        Errors: `ConfigError` for text that the vocabulary cannot write, or that a stop text ends.
        """
        for text in self.forced:
            ids_of(tokenizer, text)
        if not self.forced:
            return None
        forced, ends = ([*map(tokenizer.normal, texts)] for texts in (self.forced, stops))
        for text, stop in ((text, stop) for text in forced for stop in ends if stop in text):
            raise ConfigError(
                f"A text ends before a stop text, so none can contain a forced text with one in it; got {text[:40]!r} "
                f"forced, with the stop text {stop[:40]!r}. Remove one of them."
            )
        return Forced(shown_of(tokenizer), forced)


NO_WISHES = Wishes()


def begins_with(ids: Sequence[int]) -> Filter:
    """Make a filter that forces the first tokens to be `ids`; after them it allows any token."""

    def forced(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        check_known(ids, logits, "a beginning")
        rows = [row for row, written in enumerate(context.written) if len(written) < len(ids)]
        only = logits.clone()
        for row in rows:
            id = ids[len(context.written[row])]
            only[row] = -math.inf
            only[row, id] = logits[row, id]
        return only

    return forced


def banned_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Filter:
    """Make a filter that forbids these texts, however they are split into tokens, even inside longer words.

    A text that the prompt began may not be completed either. Every id that would complete a text is forbidden: for each
    number of its bytes already there, the ids whose own bytes begin with the rest.
    """
    spelled, words = shown_of(tokenizer), [utf8(tokenizer.normal(text)) for text in texts]
    longest = max(map(len, words), default=0)
    enders: dict[tuple[bytes, int], list[int]] = {}

    def completing(word: bytes, there: int) -> list[int]:
        if (word, there) not in enders:
            rest = word[there:]
            enders[word, there] = [
                id for id, each in enumerate(spelled) if (each.startswith(rest) if there else rest in each)
            ]
        return enders[word, there]

    def without(logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        ids: list[list[int]] = []
        for row in context.read:
            tail = tail_of(row, spelled, longest)
            ends = ((word, n) for word in words for n in range(len(word)) if tail.endswith(word[:n]))
            ids.append([id for word, n in ends for id in completing(word, n)])
        return forbidden(logits, ids)

    return without


def shown_of(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes that a text shows of each id, by id: an <unk> too, unlike other special ids."""
    spelled = tokenizer.spelling()
    spelled[UNK] = tokenizer.adds(UNK)
    return spelled


def can_spell(spelled: Sequence[bytes], text: str) -> bool:
    """Whether some tokens, one after another, show a text; it may begin and end inside of them."""
    word = utf8(text)
    if any(word in each for each in spelled):
        return True
    # There are n bytes of it once a token ends with them, or continues those that are there.
    reached = {n for n in range(1, len(word)) if any(each.endswith(word[:n]) for each in spelled)}
    for n in range(1, len(word)):
        if n in reached:
            rest = word[n:]
            if any(each.startswith(rest) for each in spelled):
                return True
            reached |= {n + len(each) for each in spelled if each and rest.startswith(each)}
    return False


def tail_of(ids: Sequence[int], spelled: Sequence[bytes], least: int) -> bytes:
    """The last bytes that `ids` spell: at least `least` of them, or all if there are fewer."""
    tail = b""
    for id in reversed(ids):
        if len(tail) >= least:
            break
        tail = spelled[id] + tail
    return tail


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode a text. Errors: `ConfigError` if the vocabulary lacks a part of it."""
    ids = tokenizer.encode(text)
    if UNK in ids or not ids:
        raise ConfigError(
            f"The model can write only what is in its vocabulary; parts of {text[:40]!r} are not. Choose another text."
        )
    return ids


def token_of(tokenizer: Tokenizer, text: str) -> int:
    """The id of a text that is one token. Errors: `ConfigError` if it is several tokens or none."""
    ids = ids_of(tokenizer, text)
    if len(ids) > 1:
        raise ConfigError(
            f"A bias is for one token; {text[:40]!r} is {len(ids)} tokens: {tokenizer.tokens(ids)!r:.80}. Give each "
            "token its own bias."
        )
    return ids[0]
