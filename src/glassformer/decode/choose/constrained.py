"""Constrained decoding: the text must match a regular expression, or be JSON that fits a schema.

The library llguidance (the extra `constrain`) follows the grammar over the bytes that each token spells. The tokens
allowed next become a filter like any other (Willard and Louf 2023).
"""

from __future__ import annotations

import json
import math
import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch

from glassformer.base.errors import ConfigError, DataError, RowError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, Tokenizer, utf8
from glassformer.data.tokens.words import WordTokenizer
from glassformer.decode.choose.context import Context, Filter
from glassformer.decode.choose.installed import llguidance

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


def constraint_of(tokenizer: Tokenizer, regex: str = "", schema: str = "") -> Constraint | None:
    """Make the constraint of an expression or a schema; None without either. Errors: as `matches` and `fits`."""
    grammar = of_regex(regex) if regex else of_schema(schema) if schema else None
    return None if grammar is None else Constraint(States(tokenizer), grammar)


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
        if said := from_library.LLMatcher.validate_grammar(text, states.tokens):
            why = " ".join(re.split(r"\n +1 \|", said)[0].split())  # without the grammar text that follows
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
