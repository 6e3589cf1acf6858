"""The tokenizer of a run: learned from its training text, or read from a file of the user's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig, names_file
from glassformer.data.lines import no_such_file
from glassformer.data.tokenizer import TOKENIZERS, tokenizer_from_json
from glassformer.data.tokens.vocabulary import SPECIALS, THE_FILE, Cuts, Tokenizer, read_json
from glassformer.data.tokens.words import Labels

LOG = logging.getLogger(__name__)
LARGEST = 2**28
"""The most bytes of a tokenizer's file; the vocabularies of published models have up to 40 million."""
OTHER = (
    "Give the tokenizer.json of a run, or one of byte-level BPE or of SentencePiece; or let a vocabulary be learned "
    "from your text, for example with tokenizer.kind='bpe'."
)
"""The remedy for a file that cannot be used."""


def tokenizer_of(kind: str, texts: Callable[[Cuts], Iterable[str]], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer of a kind, learned from texts that are cut as it allows; or the one in the file that `kind` names."""
    if names_file(kind):
        return read_tokenizer_file(Path(kind).expanduser())
    made = TOKENIZERS[kind]
    return made.train(texts(made.cuts), config)


def read_tokenizer_file(path: Path) -> Tokenizer:
    """Read a tokenizer.json: that of a run, or one of another library with our special tokens in place of its own.

    Errors: `DataError` naming the file, and the setting that cannot be taken over.
    """
    from glassformer.data.tokens.exported import AGAIN, ANOTHER, adopt  # here: it loads the library

    if not path.exists():
        raise no_such_file(path)
    if path.is_dir():
        raise DataError(f"tokenizer.kind names a file; {path} is a folder. Give the tokenizer.json in it.")
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path}: a tokenizer's file has at most {LARGEST:,} bytes; this one has more. {OTHER}")
    try:
        text = path.read_text("utf-8")
        if is_ours(read_json(text)):
            found = tokenizer_from_json(text)
        else:
            found, _, left_out = adopt(text, {})
            if left_out:
                LOG.info(f"{path}: {len(left_out)} special tokens are not used, such as {left_out[0]}")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. {OTHER}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is no tokenizer.json: it is not UTF-8 text. {OTHER}") from None
    except DataError as error:
        reason = str(error).removesuffix(THE_FILE).removesuffix(AGAIN).removesuffix(ANOTHER)
        raise DataError(f"{path}: {reason.rstrip()} {OTHER}") from None
    if isinstance(found, Labels):
        raise DataError(f"{path} holds no vocabulary of texts, but {type(found).__name__.lower()}. {OTHER}")
    if found.vocab_size < len(SPECIALS) + 2:
        least = f"a vocabulary has at least two tokens besides the {len(SPECIALS)} special ones"
        raise DataError(f"{path}: {least}; this one has {found.vocab_size - len(SPECIALS)}. {OTHER}")
    return found


def is_ours(record: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json is one that `to_json` wrote, not of another library: our special tokens come first."""
    added = record.get("added_tokens")
    first = cast("list[object]", added)[: len(SPECIALS)] if isinstance(added, list) else []
    names = [cast("dict[str, object]", each).get("content") for each in first if isinstance(each, dict)]
    return "kind" in record or names == [*SPECIALS]
