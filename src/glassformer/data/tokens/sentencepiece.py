"""SentencePiece's byte-pair encoding (Kudo and Richardson 2018), as Llama 1 and 2 and Mistral have it.

It merges characters, not bytes: a space is the character ▁, and a character that the vocabulary lacks becomes its
bytes, each a token (<0xE6>). A text begins with a space that it does not have, so that its first word is cut as all
others are; decoding removes that space. A ▁ in a text comes back as a space.

Such a tokenizer is read from a tokenizer.json and never trained here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.subword import Subword, join_pieces, piece_of
from glassformer.data.tokens.vocabulary import (
    SPECIALS,
    THE_FILE,
    UNK,
    Cuts,
    VocabularySettings,
    read_json,
    refuse_one_text,
)

if TYPE_CHECKING:
    import tokenizers

SPACE = "\u2581"
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A token that stands for one byte."""
WITHIN = re.compile(f"[^{SPACE}]{SPACE}")
"""A token that crosses a place where text is cut: a space after something else."""
NEVER, UNLESS, ALWAYS = "never", "unless it begins with one", "always"
"""When a text gets a space in front."""


class Form(NamedTuple):
    """How a file says that spaces become ▁ and that one comes first."""

    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any] | None
    front: str
    """NEVER, UNLESS or ALWAYS."""
    by_word: bool = False
    """Whether words are cut before they are merged; otherwise a token may be a run of spaces."""

    def decoder(self) -> dict[str, Any]:
        """What turns tokens back into text in a file of this form."""
        strip = [] if self.front == NEVER else [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
        parts = [replacing(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]
        return {"type": "Sequence", "decoders": parts}


def replacing(each: str, by: str) -> dict[str, Any]:
    """The library's record for a replacement."""
    return {"type": "Replace", "pattern": {"String": each}, "content": by}


def metaspace(scheme: str, *, split: bool) -> dict[str, Any]:
    """The library's record for words that begin with ▁."""
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


PREPENDED: dict[str, Any] = {
    "type": "Sequence",
    "normalizers": [{"type": "Prepend", "prepend": SPACE}, replacing(" ", SPACE)],
}
FRONTS = {"first": UNLESS, "always": UNLESS, "never": NEVER}
FORMS = (
    Form(PREPENDED, None, ALWAYS),
    *(Form(None, metaspace(each, split=split), FRONTS[each], split) for each in FRONTS for split in (False, True)),
)
"""All forms that transformers writes for Llama and Mistral."""


def form_of(record: Any) -> Form | None:
    """The form of a tokenizer.json; None if it has none of `FORMS`, or names no BPE with bytes to fall back on."""
    model = record.get("model")
    if not isinstance(model, dict) or cast("dict[str, object]", model).get("byte_fallback") is not True:
        return None
    given = record.get("normalizer"), record.get("pre_tokenizer")
    return next((form for form in FORMS if (form.normalizer, form.pre_tokenizer) == given), None)


class SentencePieceTokenizer(Subword):
    """Byte-pair encoding over characters, with bytes for those that are not in the vocabulary."""

    kind = "bpe"
    model = "BPE"
    cuts = Cuts(" ", as_space=SPACE)

    def __init__(self, text: str) -> None:
        from glassformer.data.tokens import byte_level  # here: it loads the library

        record = read_json(text)
        form = form_of(record)
        if form is None or record.get("decoder") != form.decoder():
            raise DataError(
                "A tokenizer of SentencePiece must be byte-pair encoding with byte_fallback, write spaces as "
                f"{SPACE} and have the decoder of its form; this one differs. {THE_FILE}"
            )
        self.form = form
        self._library = byte_level.read(
            json.dumps(without_front(record, form)), self.bare(form), "SentencePiece", ends=True
        )
        self._names = byte_level.ends_of(self._library)
        self._keep_ends(self._library)
        tokens = byte_level.numbered(self._library.get_vocab(), "SentencePiece", self.alphabet())
        self._pieces = [*(name.encode() for name in SPECIALS), *map(spelled, tokens[len(SPECIALS) :])]
        for id in self.ends:
            self._pieces[id] = b""
        self._panics_are_errors = byte_level.panics_are_errors
        if not form.by_word and (crossing := [token for token in tokens if WITHIN.search(token)]):
            raise DataError(
                f"A token of SentencePiece begins with {SPACE}, or has none, so that text can be cut before a space; "
                f"{crossing[0]!r:.40} has one within. Use another tokenizer."
            )

    @classmethod
    def bare(cls, form: Form) -> tokenizers.Tokenizer:
        """The library's tokenizer without vocabulary that puts nothing in front; this class does."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        library = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True))
        library.normalizer = normalizers.Replace(" ", SPACE)
        if form.by_word:
            library.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never", split=True)
        library.add_special_tokens(list(SPECIALS))  # pyright: ignore[reportUnknownMemberType] (the library's stub)
        return library

    @classmethod
    def untrained(cls) -> tokenizers.Tokenizer:
        return cls.bare(FORMS[0])

    @classmethod
    def alphabet(cls) -> Sequence[str]:
        return [f"<0x{byte:02X}>" for byte in range(256)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        refuse_one_text(texts)
        return super().encode_all([self._with_front(text) for text in texts])

    def encode_parts(self, parts: Sequence[str], *, behind: bool = False) -> list[list[int]]:
        first = [] if behind else [self._with_front(part) for part in parts[:1]]
        return super().encode_all([*first, *parts[len(first) :]])

    def decode(self, ids: Iterable[int]) -> str:
        text = join_pieces(self._pieces, ids)
        return text if self.form.front == NEVER else text.removeprefix(" ")

    def adds(self, id: int, *, first: bool = False) -> bytes:
        piece = piece_of(self._pieces, id)
        return piece.removeprefix(b" ") if first and self.form.front != NEVER and id != UNK else piece

    def to_json(self) -> str:
        record = json.loads(super().to_json())
        own = {"normalizer": self.form.normalizer, "pre_tokenizer": self.form.pre_tokenizer}
        return json.dumps(record | own | {"decoder": self.form.decoder()}, ensure_ascii=False, indent=2)

    @classmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> NoReturn:
        raise ConfigError("A tokenizer of SentencePiece is imported, not trained. Train tokenizer.kind='bpe'.")

    def _with_front(self, text: str) -> str:
        begun = self.form.front == UNLESS and text.startswith((" ", SPACE))
        return text if not text or begun or self.form.front == NEVER else f" {text}"


def without_front(record: Any, form: Form) -> dict[str, Any]:
    """The record of the same tokenizer, but for the space in front."""
    cut = metaspace("never", split=True) if form.by_word else None
    return {**record, "normalizer": replacing(" ", SPACE), "pre_tokenizer": cut, "decoder": None}


def spelled(token: str) -> bytes:
    """The bytes of a token."""
    byte = BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(SPACE, " ").encode()
