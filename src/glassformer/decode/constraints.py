"""Constraints on a text: what it must match, contain or begin with, and what it must not.

The library llguidance (the extra `constrain`) follows a grammar over the bytes that each token spells. The tokens
allowed next become a filter like any other (Willard and Louf 2023).
"""

from __future__ import annotations

import json
import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch

from glassformer.base.errors import ConfigError, DataError, RowError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, UNK, Tokenizer, WordTokenizer, utf8
from glassformer.decode.answer import CONTEXTS, MODELS, Limit
from glassformer.decode.beam import Forced
from glassformer.decode.filters import Context, Filter, Named, check_known, forbidden, logit_bias
from glassformer.decode.installed import llguidance

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


FREELY = '%llguidance {"no_forcing": true}\n'
"""Allows every way to split required text into tokens, not only the tokenizer's own."""
OPTIONS = "x-guidance"
"""The key of a schema under which llguidance reads options."""
COMPACT = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""How JSON is laid out: at most one space after `,` and `:`, none elsewhere. Blanks without end use up a limit."""
STATES_A_TEXT = 8
"""Grammar states kept per text being written: after its latest prefixes, and after guesses that follow them."""


class Spelling:
    """A tokenizer with the interface that llguidance needs."""

    eos_token_id, bos_token_id, special_token_ids = EOS, BOS, [*range(len(SPECIALS))]

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = [*(name.encode() for name in SPECIALS), *tokenizer.spelling()[len(SPECIALS) :]]

    def __call__(self, text: str | bytes) -> list[int]:
        return self.tokenizer.encode(text.decode() if isinstance(text, bytes) else text)


class States:
    """What all grammars over one tokenizer share: its tokens, and a cache of grammar states after prefixes of texts.

    It keeps the states used most recently, `STATES_A_TEXT` per text being written, so finished texts and unused
    grammars are dropped in time. A prefix without a cached state is followed again from its longest cached prefix.
    """

    def __init__(self, tokenizer: Tokenizer, texts: int = 1) -> None:
        """`texts`: how many texts are written at a time, with any grammars; a step with more rows raises it."""
        self.tokenizer, self.texts = tokenizer, texts
        self._found: OrderedDict[tuple[LLMatcher, tuple[int, ...]], LLMatcher] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def tokens(self) -> LLTokenizer:
        """The tokens in llguidance's form, which is large and therefore made only once for all grammars."""
        return llguidance().LLTokenizer(llguidance().TokenizerWrapper(Spelling(self.tokenizer)))

    def behind(self, root: LLMatcher, ids: tuple[int, ...], rows: int) -> LLMatcher | None:
        """The state of the grammar `root` after these ids, in a step of `rows` rows; None if they violate it.

        It is made from a copy of the state after the longest cached prefix.
        """
        if (root, ids) in self._found:
            self._found.move_to_end((root, ids))
            return self._found[root, ids]
        known = next((n for n in range(len(ids) - 1, 0, -1) if (root, ids[:n]) in self._found), 0)
        state = self._found.get((root, ids[:known]), root).deep_copy()
        if ids and not state.consume_tokens([*ids[known:]]):
            return None
        self._found[root, ids] = state
        while len(self._found) > STATES_A_TEXT * max(self.texts, rows):
            self._found.popitem(last=False)
        return state


class Grammar(NamedTuple):
    """A grammar in llguidance's syntax, and its name in error messages."""

    text: str
    what: str


def matches(tokenizer: Tokenizer, expression: str) -> Filter:
    """Make a filter: the whole text must match a regular expression, in the syntax of Rust's `regex`.

    Errors: `ConfigError` for an invalid expression, a tokenizer of whole words, and without llguidance.
    """
    return Constraint(States(tokenizer), of_regex(expression)).filter


def fits(tokenizer: Tokenizer, schema: str) -> Filter:
    """Make a filter: the text must be JSON that fits a JSON schema (draft 2020-12, as far as llguidance supports it).

    It is compact (`of_schema`). Errors: as `matches`, and `DataError` for a schema that is not a JSON object.
    """
    return Constraint(States(tokenizer), of_schema(schema)).filter


def of_regex(expression: str) -> Grammar:
    """Make the grammar of a regular expression. Errors: `ConfigError` without llguidance, `DataError` if no Unicode."""
    utf8(expression)
    from_library = llguidance().LLMatcher
    made = json.loads(from_library.grammar_from_regex(expression))["grammars"][0]["lark_grammar"]
    return Grammar(from_library.grammar_from_lark(FREELY + made), "A regular expression")


def of_schema(schema: str) -> Grammar:
    """Make the grammar of a JSON schema; it allows every value of the schema, in compact JSON.

    Options of llguidance in the schema itself (`x-guidance`) take precedence over those of `COMPACT`. Errors:
    `ConfigError` without llguidance, `DataError` unless a JSON object.
    """
    try:
        record: object = json.loads(schema)
    except (ValueError, RecursionError) as error:
        why = str(error)[:80]
        raise DataError(f"A JSON schema must be a JSON object; this one is not JSON: {why}. Correct it.") from None
    if not isinstance(record, dict):
        raise DataError(f"A JSON schema must be a JSON object; got {schema[:40]!r}. Try " + '{"type": "object"}.')
    fields = cast("dict[str, object]", record)
    own = fields.get(OPTIONS, {})
    options = {**COMPACT, **cast("dict[str, object]", own)} if isinstance(own, dict) else own
    made = f"{FREELY}start: %json {json.dumps({**fields, OPTIONS: options})}"
    return Grammar(llguidance().LLMatcher.grammar_from_lark(made), "A JSON schema")


class Constraint:
    """A grammar that a tokenizer's texts must follow; `States` holds how far each text has come."""

    def __init__(self, states: States, grammar: Grammar) -> None:
        from_library, (text, self.what) = llguidance(), grammar
        if isinstance(states.tokenizer, WordTokenizer):
            raise ConfigError(
                f"{self.what} needs a tokenizer that can spell any word; this one has whole words only. Train with "
                "tokenizer.kind 'character', 'byte' or 'bpe'."
            )
        self.size, self._states = states.tokenizer.vocab_size, states
        if problem := from_library.LLMatcher.validate_grammar(text, states.tokens):
            why = " ".join(re.split(r"\n +1 \|", problem)[0].split())  # without the grammar text that follows
            raise ConfigError(f"{self.what} must be one that llguidance supports; it says {why[:200]!r}. Correct it.")
        self._root: LLMatcher = from_library.LLMatcher(states.tokens, text, log_level=0)

    def filter(self, logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        """Set logits to -inf where a token would violate the grammar; <eos> is allowed where the text is complete.

        Errors: `ConfigError` if no token is allowed, except in a beam (`context.searched`), which handles that itself.
        """
        if logits.shape[-1] != self.size:
            raise ConfigError(
                f"A constraint needs one logit for each of its tokenizer's {self.size} ids; got {logits.shape[-1]}. "
                "Use the tokenizer of the model."
            )
        rows = len(context.written)
        which = zip(context.written, context.numbers, strict=True)
        may = np.stack([self._may(tuple(ids), number, rows, context.searched) for ids, number in which])
        may[:, [id for id in range(len(SPECIALS)) if id != EOS]] = False
        return logits.masked_fill(~torch.from_numpy(may).to(logits.device), -math.inf)

    def complete(self, ids: Sequence[int]) -> bool:
        """Whether the text of these ids may end here."""
        state = self._states.behind(self._root, (*ids,), 1)
        return state is not None and state.is_accepting()

    def _may(
        self, ids: tuple[int, ...], number: int, rows: int, searched: bool
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        state = self._states.behind(self._root, ids, rows)
        if state is None:
            raise self._lost(len(ids), number)
        mask = np.frombuffer(state.compute_bitmask(), np.uint8)
        may = np.unpackbits(mask, bitorder="little")[: self.size].astype(np.bool_)
        if not state.is_accepting() and not may[EOS + 1 :].any():  # beyond its limits, llguidance allows only the end
            if not searched:
                raise self._lost(len(ids), number)
            may[:] = False  # in a beam, only this hypothesis ends
        return may

    def _lost(self, n: int, number: int) -> RowError:
        return RowError(
            f"{self.what} must allow some token of the vocabulary at each step, and be small enough for llguidance; "
            f"after {n} tokens of ",
            number,
            ", llguidance allows none. Use characters of the vocabulary, and fewer repetitions and alternatives.",
        )


@dataclass(frozen=True)
class Constraints:
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
        grammar = of_regex(self.regex) if self.regex else of_schema(self.schema) if self.schema else None
        return None if grammar is None else Constraint(States(tokenizer), grammar)

    def filters(self, tokenizer: Tokenizer, grammar: Constraint | None = None) -> list[Filter]:
        """Make the filters, in the order in which they apply; `grammar`, if it was made before, is not made again.

        Errors: `ConfigError` for text not in the vocabulary.
        """
        made: list[Filter] = []
        if self.biases:
            bias = logit_bias({token_of(tokenizer, text): value for text, value in self.biases.items()})
            made.append(Named(bias, "Constraints.biases") if -math.inf in self.biases.values() else bias)
        if self.banned:
            made.append(Named(banned_texts(tokenizer, self.banned), "Constraints.banned"))
        grammar = grammar or self.grammar(tokenizer)
        if grammar is not None:
            made.append(Named(grammar.filter, "Constraints.regex" if self.regex else "Constraints.schema"))
        if self.begin:
            made.append(Named(begins_with(ids_of(tokenizer, self.begin)), "Constraints.begin"))
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


NO_CONSTRAINTS = Constraints()


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
