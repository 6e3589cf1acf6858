"""Byte-level subwords with the `tokenizers` library: learn, read its file, know its bytes, survive its panics.

Text becomes UTF-8, and each byte one of 256 printable letters, as in GPT-2; the library's models then cut sequences of
these letters. So no text is outside a vocabulary that has the letters, and no letter is a mark of white space.
`subword`, `wordpiece` and `unigram` import this module only when they make a tokenizer, because it loads the library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.base.errors import DataError
from glassformer.data.tokens.vocabulary import (
    MOST_ENTRIES,
    SPECIALS,
    THE_FILE,
    UNK,
    WORDS,
    Cuts,
    read_json,
    shares,
    utf8,
)

_PRINTING = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTING]
BYTES = {chr(byte): byte for byte in _PRINTING} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}
"""The byte that each letter stands for. A byte that is not printable has a letter from U+0100 on."""
LETTERS = tuple(sorted(BYTES))
IN_NO_TEXT = {letter for letter, byte in BYTES.items() if byte in (0xC0, 0xC1) or byte >= 0xF5}
"""The letters of bytes that UTF-8 never has (RFC 3629, section 3). A published vocabulary may lack them."""
NOTHING_BEFORE = json.loads(cast("bytes", processors.TemplateProcessing("$A", "$A $B:1", []).__getstate__()))
"""The library's record of a tokenizer that puts no token before a text, not even if it is a document."""
COMPOSED = {"type": "NFC"}
"""The library's record of a normaliser that composes characters."""


def cut_to_bytes() -> pre_tokenizers.PreTokenizer:
    """GPT-2's split into words with the white space before them, in letters that stand for bytes; it loses nothing."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def untrained(model: models.Model, cut: pre_tokenizers.PreTokenizer, *, composed: bool = False) -> Tokenizer:
    """The library's tokenizer around a model: the six special tokens, and no normaliser unless text is `composed`."""
    library = Tokenizer(model)
    if composed:
        library.normalizer = normalizers.NFC()
    library.pre_tokenizer = cut
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(list(SPECIALS))  # pyright: ignore[reportUnknownMemberType] (the library's stub)
    return library


def learn(library: Tokenizer, trainer: trainers.Trainer, texts: Iterable[str]) -> Mapping[str, object]:
    """Train the library's model on texts; returns it as JSON. Texts may be a stream: only distinct words are kept."""
    with panics_are_errors():
        library.train_from_iterator((part for text in texts if utf8(text) for part in shares(text)), trainer)
    record = cast("dict[str, object]", json.loads(library.to_str()))
    return cast("Mapping[str, object]", record["model"])


def read(text: str, ours: Tokenizer, kind: str, *, runs: bool = False, ends: bool = False) -> Tokenizer:
    """Read the library's tokenizer from `text`, if all but its vocabulary is as in `ours`, an untrained one.

    `runs`: whether it may also have runs of spaces, which it finds in a text before all else (`is_run`). `ends`:
    whether it may have more special tokens, which end a text (`is_end`), and put nothing before a document.

    So a file can bring neither its own regular expression nor a normaliser that loses text. Its settings are compared
    before the library sees them, because an expression can be made to take forever; and again afterwards, with all
    defaults.
    """
    record, settings = read_json(text), _settings(ours.to_str())
    if ends and record.get("post_processor") == NOTHING_BEFORE:
        settings["post_processor"] = NOTHING_BEFORE
    for name, value in record.items():
        if name not in ("model", "added_tokens") and not agrees(value, settings.get(name)):
            raise _differs(kind, [name])
    with panics_are_errors():
        try:
            library = Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"The `tokenizers` library cannot read this file: {str(error)[:150]}. {THE_FILE}") from None
    theirs = _settings(library.to_str())
    pieces_of_text, added = library.get_vocab(with_added_tokens=False), cast("list[object]", theirs["added_tokens"])
    theirs["added_tokens"] = [
        each for each in added if not ((runs and is_run(each)) or (ends and is_end(each, pieces_of_text)))
    ]
    if wrong := [name for name in settings if settings[name] != theirs.get(name)]:
        raise _differs(kind, wrong)
    library.encode_special_tokens = True  # "<pad>" in a user's text is five characters, not id 0
    return library


def is_run(added: object) -> bool:
    """Whether one of added_tokens is a run of spaces, which any text may have; no place to cut is within one."""
    if not isinstance(added, dict):
        return False
    record = cast("dict[str, object]", added)
    content, flags = record.get("content"), ("single_word", "lstrip", "rstrip", "special")
    spaces = isinstance(content, str) and len(content) > 1 and not content.strip(" ")
    return spaces and all(record.get(flag) is False for flag in flags)


def is_end(added: object, pieces_of_text: Collection[str]) -> bool:
    """Whether one of added_tokens is special, none of our six and no piece of a text: so may be what ends a text."""
    record = cast("dict[str, object]", added) if isinstance(added, dict) else {}
    content = record.get("content")
    return record.get("special") is True and content not in SPECIALS and content not in pieces_of_text


def ends_of(library: Tokenizer) -> dict[int, str]:
    """The special tokens besides our six, by id."""
    added = library.get_added_tokens_decoder()
    return {id: each.content for id, each in added.items() if each.special and id >= len(SPECIALS)}


def unknown_is_a_token(record: Mapping[str, object]) -> bool:
    """Whether a file says that a byte that the vocabulary lacks becomes <unk>."""
    model = record.get("model")
    return isinstance(model, dict) and cast("dict[str, object]", model).get("unk_token") == SPECIALS[UNK]


def runs_of(library: Tokenizer) -> set[str]:
    """The runs of spaces that a tokenizer finds in a text before all else."""
    return {each.content for each in library.get_added_tokens_decoder().values() if not each.special}


def pieces(
    vocabulary: Mapping[str, int],
    kind: str,
    alphabet: Iterable[str],
    mark: str = "",
    runs: Collection[str] = (),
    ends: Collection[str] = (),
) -> list[bytes]:
    """The bytes of each id, of a vocabulary that must contain `alphabet`; `mark` before a token stands for no bytes.

    `runs`: tokens that stand for themselves. `ends`: tokens that add nothing to a text.
    """
    tokens = numbered(vocabulary, kind, alphabet)[len(SPECIALS) :]
    tokens = [token if len(token) == len(mark) else token.removeprefix(mark) for token in tokens]
    tokens = ["" if token in ends else token for token in tokens]
    try:
        spelled = [token.encode() if token in runs else bytes(BYTES[each] for each in token) for token in tokens]
    except KeyError as error:
        raise DataError(
            f"The tokens of a {kind} vocabulary must spell bytes, but one has the letter {error}, which stands for no "
            f"byte. {THE_FILE}"
        ) from None
    return [*(name.encode() for name in SPECIALS), *spelled]


def numbered(vocabulary: Mapping[str, int], kind: str, alphabet: Iterable[str]) -> list[str]:
    """The tokens in the order of their ids.

    Errors: `DataError` for a gap, and unless `alphabet` is among them, but for letters that are `IN_NO_TEXT`.
    """
    by_id = sorted((id, token) for token, id in vocabulary.items())
    if len(by_id) > MOST_ENTRIES:
        raise DataError(
            f"A vocabulary has at most {MOST_ENTRIES:,} entries, but this {kind} one has {len(by_id):,}. Use a smaller "
            "one."
        )
    if [id for id, _ in by_id] != list(range(len(by_id))) or not set(alphabet) - IN_NO_TEXT <= vocabulary.keys():
        raise DataError(
            f"A {kind} vocabulary must hold every byte of UTF-8 and number its ids from 0 without a gap, but this one "
            f"does not. {THE_FILE}"
        )
    return [token for _, token in by_id]


@contextmanager
def panics_are_errors() -> Generator[None, None, None]:
    """Turn a panic of the library's Rust code into DataError: no `except Exception` would stop its BaseException."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"The `tokenizers` library failed on this text or file: {str(error)[:150]}. Use another file, or remove "
            f"the text."
        ) from None


def _settings(text: str) -> dict[str, object]:
    """All of the library's record except vocabulary and merges."""
    record = cast("dict[str, object]", json.loads(text))
    model = cast("dict[str, object]", record.pop("model"))
    return record | {f"model.{name}": value for name, value in model.items() if name not in ("vocab", "merges")}


def agrees(theirs: object, ours: object) -> bool:
    """Whether a setting of a file is the same as ours; a file may leave out what an older library did not write."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        mine = cast("dict[str, object]", ours)
        return all(name in mine and agrees(it, mine[name]) for name, it in cast("dict[str, object]", theirs).items())
    if isinstance(theirs, list) and isinstance(ours, list):
        these, those = cast("list[object]", theirs), cast("list[object]", ours)
        return len(these) == len(those) and all(map(agrees, these, those))
    return theirs == ours


def _differs(kind: str, names: list[str]) -> DataError:
    return DataError(
        f"A {kind} tokenizer of glassformer must be byte-level, without another normaliser, with the special tokens "
        f"{', '.join(SPECIALS)} at ids 0 to {len(SPECIALS) - 1}, but this one differs in {', '.join(names)}. "
        f"{THE_FILE}"
    )


# How published byte-level tokenizers cut text into words, within which they merge bytes.

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
