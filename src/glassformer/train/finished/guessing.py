"""Draft tokens for speculative decoding, from another run or from the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.decode.answer import Method
from glassformer.decode.filters import Filter
from glassformer.decode.prepare import prepared
from glassformer.decode.speculative import Tally, check_guessing, speculative
from glassformer.store.checkpoint import Loaded
from glassformer.train.finished.loading import load_run, placed_like
from glassformer.train.recipe import Recipe, load_recipe


class Guessing(NamedTuple):
    """The draft run, or the number of tokens that must be in the text already; and the number of guesses at a time."""

    draft: Path | None = None
    lookup: int = 0
    guesses: int = 4


def guessed(asked: Guessing, loaded: Loaded, recipe: Recipe, first: Sequence[Filter], tally: Tally) -> Method:
    """The speculative decoding that was asked for; a draft is on the device of the run that writes.

    Errors: `ConfigError` for a draft with other tokenizers, and those of loading it.
    """
    draft = None
    if asked.draft is not None:
        found = load_run(asked.draft, placed_like(load_recipe(asked.draft / "recipe.toml"), recipe))
        pairs = zip(found.tokenizers, loaded.tokenizers, strict=True)
        if any(theirs.to_json() != ours.to_json() for theirs, ours in pairs):
            raise ConfigError(
                f"A draft must have the same vocabulary as the run that it guesses for; {asked.draft} has another. "
                "Train it on the same texts with the same [tokenizer]."
            )
        decode = recipe.decode
        draft = prepared(found.model, decode.precision, decode.cache, compile=decode.compile)
    check_guessing(loaded.model, draft, asked.lookup, asked.guesses, recipe.decode)
    of = {"draft": draft, "lookup": asked.lookup, "guesses": asked.guesses}
    return partial(speculative, **of, sampling=recipe.decode, filters=first, tally=tally)
