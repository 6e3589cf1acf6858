"""An example of a flag's value that works for the vocabulary of a run. Imports no torch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from glassformer.base.errors import GlassformerError
from glassformer.data.tokens.vocabulary import SPECIALS, UNK, Tokenizer
from glassformer.store.folders import TOKENIZER, best_or_newest


def bias_for(run: Path, text: str) -> str:
    """Return a value for `--bias`, quoted for a shell: of `text` if it is a token of the run, else of one like it.

    A run whose vocabulary cannot be read is not complained about here: then it is `text`, whatever its tokens are.
    """
    quoted = shlex.quote(f"{token_like(run, text) or text or 'e'}=-2.5")
    return quoted if quoted.startswith("'") else f"'{quoted}'"


def token_like(run: Path, text: str) -> str | None:
    """Return a text that is one token of the run's vocabulary: `text`, a part of it, or any; None if none is found."""
    from glassformer.data.tokenizer import tokenizer_from_json  # here, as only a mistake needs it

    try:
        found = best_or_newest(run, read=(TOKENIZER,), hashed=False).folder
        if found is None:
            return None
        tokenizer = tokenizer_from_json((found / TOKENIZER).read_text("utf-8"))
        return next((each for each in candidates(tokenizer, text) if is_token(tokenizer, each)), None)
    except (GlassformerError, OSError, UnicodeDecodeError):
        return None


def candidates(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yield `text`, its tokens, and then all tokens of the vocabulary."""
    yield text
    for id in (*tokenizer.encode(text), *range(len(SPECIALS), tokenizer.vocab_size)):
        yield tokenizer.decode([id])


def is_token(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a text is one token, and can be read in a message."""
    ids = tokenizer.encode(text) if text.strip() and text.isprintable() else []
    return len(ids) == 1 and ids[0] != UNK
