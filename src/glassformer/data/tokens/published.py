r"""How published byte-level tokenizers cut text into words, within which they merge bytes.

Only these are read from a file: an expression from elsewhere could take forever, or lose text. Each loses none.

GPT-2 (Radford et al. 2019)   the white space before a word belongs to it: "It's 12 o'clock" → It 's ␣12 ␣o 'clock
SmolLM (Ben Allal et al. 2024)   the same, but each digit is a word: ␣ 1 2
Llama 3 (Grattafiori et al. 2024)   at most three digits form a word; line ends belong to the signs before them
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple, cast

from tokenizers import Regex, pre_tokenizers

from glassformer.data.tokens.byte_level import agrees, cut_to_bytes
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

    def record(self) -> dict[str, object]:
        """The library's record of it, as it is in a tokenizer.json."""
        return json.loads(cast("bytes", self.made().__getstate__()))


def smollm() -> pre_tokenizers.PreTokenizer:
    """GPT-2's words, cut around each digit."""
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), cut_to_bytes()])


def llama3() -> pre_tokenizers.PreTokenizer:
    """The words of Llama 3's expression, in letters that stand for bytes."""
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), letters])


CUTS = {"GPT-2": Cut(cut_to_bytes), "SmolLM": Cut(smollm), "Llama 3": Cut(llama3, Cuts(" \t"))}


def cut_of(record: object) -> Cut | None:
    """The cut that a pre_tokenizer of a tokenizer.json is; None for any other."""
    return next((cut for cut in CUTS.values() if agrees(record, cut.record())), None)
