"""Vocabularies out of GGUF files (llama.cpp's format), as the tokenizer.json that the `tokenizers` library would have.

The format, version 3: a header, then named values; only these are read here. Of each kind of vocabulary the way to cut
text is in no such file but for its name, `tokenizer.ggml.pre`, so it is written here as its model's own file has it.
"""

import json
import re
import struct
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from glassformer.data.tokens.byte_level import LLAMA_3

UNKNOWN, CONTROL, OF_USER = 2, 3, 4
"""Types of tokens: two that are special, and those that are found in a text before all else."""
FILLED = re.compile(r"\[PAD\d+\]")
"""What llama.cpp calls rows of a model that its tokenizer has no token for."""
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
TEXT, LIST = 8, 9


class Reader:
    """Reads values one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, letter: str, count: int = 1) -> list[Any]:
        found = struct.unpack_from(f"<{count}{letter}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{letter}")
        return list(found)

    def text(self) -> str:
        [size] = self.numbers("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            [kind], [count] = self.numbers("I"), self.numbers("Q")
            return [self.text() for _ in range(count)] if kind == TEXT else self.numbers(NUMBERS[kind], count)
        return self.numbers(NUMBERS[kind])[0]


def values_in(path: Path) -> dict[str, Any]:
    """The named values of a file."""
    reader = Reader(path.read_bytes())
    assert reader.data[:4] == b"GGUF"
    reader.at = 4
    [_], [_, count] = reader.numbers("I"), reader.numbers("Q", 2)
    return {reader.text(): reader.value(reader.numbers("I")[0]) for _ in range(count)}


def bytes_of(*before: pre_tokenizers.PreTokenizer, words: bool = True) -> pre_tokenizers.PreTokenizer:
    """Text cut by the given ones and then, if `words`, by GPT-2's expression, in letters that stand for bytes."""
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
    return pre_tokenizers.Sequence([*before, letters]) if before else letters


def split(expression: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(expression), "isolated")


DIGITS = pre_tokenizers.Digits(individual_digits=True)
CUTS = {
    "gpt-2": bytes_of(),
    "smollm": bytes_of(DIGITS),
    "starcoder": bytes_of(DIGITS),
    "refact": bytes_of(DIGITS),
    "llama-bpe": bytes_of(split(LLAMA_3), words=False),
    "qwen2": bytes_of(split(LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")), words=False),
    "falcon": pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), bytes_of(),
        pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]"),
    ]),
}  # fmt: skip
"""`tokenizer.ggml.pre` -> how text is cut."""


def tokenizer_json(values: dict[str, Any]) -> str:
    """The tokenizer.json of the vocabulary in a file's values."""
    tokens = values["tokenizer.ggml.tokens"]
    vocabulary = {token: id for id, token in enumerate(tokens) if not FILLED.fullmatch(token)}
    types = {token: values["tokenizer.ggml.token_type"][id] for token, id in vocabulary.items()}
    if values["tokenizer.ggml.model"] == "llama":
        merges = merges_of(vocabulary, values["tokenizer.ggml.scores"])
        unknown = tokens[values.get("tokenizer.ggml.unknown_token_id", 0)]
        made = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, byte_fallback=True, fuse_unk=True))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        made.decoder = decoders.Sequence(parts)
    else:
        pre = values["tokenizer.ggml.pre"]
        merges = [tuple(each.split(" ")) for each in values["tokenizer.ggml.merges"]]
        made = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
        made.pre_tokenizer, made.decoder = CUTS[pre], decoders.ByteLevel()
    made.add_special_tokens([token for token, kind in types.items() if kind in (UNKNOWN, CONTROL)])
    made.add_tokens([AddedToken(token, normalized=False) for token, kind in types.items() if kind == OF_USER])
    return json.dumps(json.loads(made.to_str()))


def merges_of(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """The merges that SentencePiece's scores stand for: each cut of a piece into two, the best pieces first."""
    found = []
    for piece, id in vocabulary.items():
        cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [each for each in cuts if each[0] in vocabulary and each[1] in vocabulary]
        known.sort(key=lambda each: (vocabulary[each[0]], vocabulary[each[1]]))
        found += [(scores[id], each) for each in known]
    found.sort(key=lambda each: each[0], reverse=True)
    return [each for _, each in found]
