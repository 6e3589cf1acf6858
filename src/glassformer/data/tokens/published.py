r"""How published byte-level tokenizers cut text into words, within which they merge bytes.

Only these are read from a file: an expression from elsewhere could take forever, or lose text. Each loses none, but
GPT-NeoX composes characters: e and a combining accent become é.

GPT-2 (Radford et al. 2019)   the white space before a word belongs to it: "It's 12 o'clock" → It 's ␣12 ␣o 'clock
GPT-NeoX (Black et al. 2022)   the same in Unicode's form NFC; Pythia has it, too
SmolLM (Ben Allal et al. 2024)   the same, but each digit is a word: ␣ 1 2
Llama 3 (Grattafiori et al. 2024)   at most three digits form a word; line ends belong to the signs before them
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from glassformer.data.tokens.byte_level import COMPOSED, agrees, cut_to_bytes, untrained
from glassformer.data.tokens.cuts import WORDS, Cuts

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The expression in the tokenizer.json of the Llama 3 models."""


class Cut(NamedTuple):
    """One of these ways to cut text."""

    made: Callable[[], pre_tokenizers.PreTokenizer]
    cuts: Cuts = WORDS
    composed: bool = False
    """Whether text is first brought into Unicode's form NFC."""

    def untrained(self, model: models.Model) -> Tokenizer:
        """The library's tokenizer around a model, with no vocabulary but the special tokens."""
        return untrained(model, self.made(), composed=self.composed)

    def cuts_as(self, pre_tokenizer: object) -> bool:
        """Whether the pre_tokenizer of a tokenizer.json cuts in this way."""
        return agrees(pre_tokenizer, json.loads(cast("bytes", self.made().__getstate__())))


def smollm() -> pre_tokenizers.PreTokenizer:
    """GPT-2's words, cut around each digit."""
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), cut_to_bytes()])


def llama3() -> pre_tokenizers.PreTokenizer:
    """The words of Llama 3's expression, in letters that stand for bytes."""
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), letters])


CUTS = {
    "GPT-2": Cut(cut_to_bytes),
    "GPT-NeoX": Cut(cut_to_bytes, composed=True),
    "SmolLM": Cut(smollm),
    "Llama 3": Cut(llama3, Cuts(" \t")),
}


def cut_of(record: Mapping[str, object]) -> Cut | None:
    """The cut of a tokenizer.json; None for any other."""
    as_theirs = (cut for cut in CUTS.values() if cut.cuts_as(record.get("pre_tokenizer")))
    return next((cut for cut in as_theirs if record.get("normalizer") == (COMPOSED if cut.composed else None)), None)
