"""Constrained decoding: what is written matches a regular expression, or is JSON that fits a schema.

The grammar is followed by the library llguidance (the extra `constrain`), over the bytes that each token spells; which
tokens may come next is a filter like any other (Willard and Louf 2023).
"""

from __future__ import annotations

import json
import math
import re
from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch

from glassformer.data.vocabulary import BOS, EOS, SPECIALS, Tokenizer
from glassformer.data.words import WordTokenizer
from glassformer.decode.context import Context, Filter
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.shapes import Float, Tensor

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

FREELY = '%llguidance {"no_forcing": true}\n'
"""Of several ways to cut what must come into tokens all may be taken, not only the tokenizer's own."""
MOST_STATES = 4096
"""Beginnings of texts whose state is kept; another is found again from its first token."""


class Spelling:
    """What the library asks of a tokenizer."""

    eos_token_id, bos_token_id, special_token_ids = EOS, BOS, [*range(len(SPECIALS))]

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = [*(name.encode() for name in SPECIALS), *tokenizer.spelling()[len(SPECIALS) :]]

    def __call__(self, text: str | bytes) -> list[int]:
        return self.tokenizer.encode(text.decode() if isinstance(text, bytes) else text)


def matches(tokenizer: Tokenizer, expression: str) -> Filter:
    """A text matches the whole of a regular expression, and ends where it can (syntax of Rust's `regex`).

    Errors: `ConfigError` for an expression that is none, a tokenizer of whole words, and without llguidance.
    """
    made = json.loads(library().LLMatcher.grammar_from_regex(expression))
    return Constraint(tokenizer, made["grammars"][0]["lark_grammar"], "A regular expression").filter


def fits(tokenizer: Tokenizer, schema: str) -> Filter:
    """A text is JSON that fits a JSON schema, itself JSON (draft 2020-12, as far as llguidance has it).

    Errors: as of `matches`, and `DataError` for a schema that is no JSON object.
    """
    try:
        record: object = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise DataError(f"A JSON schema is a JSON object; this one is not JSON: {str(error)[:80]}.") from None
    if not isinstance(record, dict):
        raise DataError(f"A JSON schema is a JSON object; got {schema[:40]!r}. Try " + '{"type": "object"}.')
    return Constraint(tokenizer, f"start: %json {json.dumps(record)}", "A JSON schema").filter


class Constraint:
    """A grammar, and how far each text has come in it: a state for each beginning, one token behind its parent's."""

    def __init__(self, tokenizer: Tokenizer, grammar: str, what: str) -> None:
        from_library = library()
        if isinstance(tokenizer, WordTokenizer):
            raise ConfigError(
                f"{what} is followed character by character; a tokenizer of whole words spells none. Train with "
                "tokenizer.kind 'character', 'byte' or 'bpe'."
            )
        self.size, grammar = tokenizer.vocab_size, from_library.LLMatcher.grammar_from_lark(FREELY + grammar)
        wrapped = from_library.TokenizerWrapper(Spelling(tokenizer))
        self._tokens: LLTokenizer = from_library.LLTokenizer(wrapped)
        if said := from_library.LLMatcher.validate_grammar(grammar, self._tokens):
            why = " ".join(re.split(r"\n +1 \|", said)[0].split())  # before it shows the grammar
            raise ConfigError(f"{what} must be one that llguidance knows; it says {why[:200]!r}.")
        self._root: LLMatcher = from_library.LLMatcher(self._tokens, grammar)
        self._states: OrderedDict[tuple[int, ...], LLMatcher] = OrderedDict()

    def filter(self, logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        """The logits, -inf where a token would leave the grammar; <eos> may come where the text is whole."""
        if logits.shape[-1] != self.size:
            raise ConfigError(
                f"A constraint has the vocabulary of its tokenizer, {self.size} ids; got logits of {logits.shape[-1]}."
            )
        may = np.stack([self._may(tuple(ids)) for ids in context.written])
        may[:, [id for id in range(len(SPECIALS)) if id != EOS]] = False
        return logits.masked_fill(~torch.from_numpy(may).to(logits.device), -math.inf)

    def _may(self, ids: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        mask = self._at(ids).compute_bitmask()
        return np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[: self.size].astype(np.bool_)

    def _at(self, ids: tuple[int, ...]) -> LLMatcher:
        """The state behind these ids: a copy of the longest beginning's that is known, with the rest taken in."""
        if ids in self._states:
            self._states.move_to_end(ids)
            return self._states[ids]
        known = next((n for n in range(len(ids) - 1, 0, -1) if ids[:n] in self._states), 0)
        state = (self._states[ids[:known]] if known else self._root).deep_copy()
        self._take(state, ids[known:])
        self._states[ids] = state
        if len(self._states) > MOST_STATES:
            self._states.popitem(last=False)
        return state

    def _take(self, state: LLMatcher, ids: Sequence[int]) -> None:
        if ids and not state.consume_tokens([*ids]):
            raise DataError(f"What was written left the grammar: {state.get_error()[:100]}. Let no filter add tokens.")


def library() -> ModuleType:
    """llguidance. Errors: `ConfigError` where it is not installed."""
    try:
        return import_module("llguidance")
    except ImportError:
        raise ConfigError(
            "Regular expressions and JSON schemas are followed by llguidance, which is not installed. Install it: "
            "pip install 'glassformer[constrain]'."
        ) from None
