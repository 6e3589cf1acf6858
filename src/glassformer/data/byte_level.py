"""The `tokenizers` library behind four functions: learn merges, read its file, know its bytes, survive its panics.

This is the one module that imports the library; `subword` asks for it when a byte-pair tokenizer is made.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import cast

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from glassformer.data.vocabulary import SPECIALS, utf8
from glassformer.foundation.errors import DataError


def learn(texts: Iterable[str], vocab_size: int) -> str:
    """The library's file for as many merges as fill `vocab_size`, or fewer if no pair is left that repeats."""
    library = _untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with panics_are_errors():
        library.train_from_iterator((text for text in texts if utf8(text)), trainer)
    return library.to_str()


def read(text: str) -> Tokenizer:
    """The library's tokenizer, if all but its vocabulary is as `_untrained` makes it.

    So a file can bring neither a regular expression of its own nor a normaliser that loses text.
    """
    with panics_are_errors():
        try:
            library = Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"This is no file of the `tokenizers` library: {str(error)[:150]}.") from None
    ours, theirs = _settings(_untrained()), _settings(library)
    if wrong := [name for name in ours if ours[name] != theirs.get(name)]:
        raise DataError(
            f"A bpe tokenizer of glassformer is byte-level, without normaliser, with the special tokens "
            f"{', '.join(SPECIALS)} at ids 0 to {len(SPECIALS) - 1}, but this one differs in {', '.join(wrong)}. "
            f"Take the tokenizer.json of a glassformer run."
        )
    library.encode_special_tokens = True  # "<pad>" in a user's text is five characters, not id 0
    return library


def pieces(vocabulary: dict[str, int]) -> list[bytes]:
    """The bytes of each id. The library spells a byte that does not print as a letter from U+0100 on."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printing]
    alphabet = {chr(byte): byte for byte in printing} | {chr(256 + i): byte for i, byte in enumerate(others)}
    by_id = sorted((id, token) for token, id in vocabulary.items())
    if [id for id, _ in by_id] != list(range(len(by_id))) or not alphabet.keys() <= vocabulary.keys():
        raise DataError(
            "A bpe vocabulary holds every byte, and its ids count from 0 without a gap, but this one's do not. "
            "Take the tokenizer.json of a glassformer run."
        )
    try:
        spelled = [bytes(alphabet[letter] for letter in token) for _, token in by_id[len(SPECIALS) :]]
    except KeyError as error:
        raise DataError(
            f"The tokens of a bpe vocabulary spell bytes, but one has the letter {error}, which stands for no byte. "
            f"Take the tokenizer.json of a glassformer run."
        ) from None
    return [*(name.encode() for name in SPECIALS), *spelled]


@contextmanager
def panics_are_errors() -> Generator[None, None, None]:
    """A panic of the library's Rust code is a BaseException, which no `except Exception` of a caller would stop."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"The tokenizers library failed on this text or file: {str(error)[:150]}. Take another file, or leave "
            f"the text out."
        ) from None


def _untrained() -> Tokenizer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(list(SPECIALS))  # pyright: ignore[reportUnknownMemberType] (the library's stub)
    return library


def _settings(library: Tokenizer) -> dict[str, object]:
    """All of the library's record but vocabulary and merges."""
    record = cast("dict[str, object]", json.loads(library.to_str()))
    model = cast("dict[str, object]", record.pop("model"))
    return record | {f"model.{name}": value for name, value in model.items() if name not in ("vocab", "merges")}
