"""Taking over the tokenizer of a published model: the same pieces and merges, behind our special tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from glassformer.data.tokens.byte_level import LETTERS
from glassformer.data.tokens.subword import BytePairTokenizer
from glassformer.data.tokens.vocabulary import SPECIALS, read_json
from glassformer.foundation.errors import DataError

WANTED: dict[str, tuple[object, ...]] = {
    "model.type": ("BPE", None),
    "model.dropout": (None, 0.0),
    "model.byte_fallback": (False, None),
    "model.ignore_merges": (False, None),
    "model.continuing_subword_prefix": (None, ""),
    "model.end_of_word_suffix": (None, ""),
    "normalizer": (None,),
    "pre_tokenizer.type": ("ByteLevel",),
    "pre_tokenizer.add_prefix_space": (False,),
    "pre_tokenizer.use_regex": (True, None),
}
"""The settings of a tokenizer.json that decide how text is cut, and the values with which it is cut as ours does."""


class Adopted(NamedTuple):
    """A tokenizer of ours that cuts text as theirs does."""

    tokenizer: BytePairTokenizer
    rows: list[int | None]
    """For each of our ids, the id of the same token in theirs; None if theirs has no such token."""
    left_out: list[str]
    """Their special tokens that are none of ours."""


def adopt(text: str, ends: Mapping[int, int | None]) -> Adopted:
    """Take over a tokenizer.json of the `tokenizers` library that does byte-level BPE as GPT-2 does.

    `ends`: for PAD, BOS, EOS and UNK, the id that theirs has for it, or None; an id that is none of its special tokens
    counts as None. Errors: `DataError` for any other tokenizer, naming the setting that differs.
    """
    record = cast("Mapping[str, Any]", read_json(text))
    refuse_other_cuts(record)
    vocabulary: dict[str, int] = record["model"]["vocab"]
    special = special_tokens(record.get("added_tokens") or [], vocabulary)
    plain = [token for token, _ in sorted(vocabulary.items(), key=lambda each: each[1]) if token not in special]
    if missing := [letter for letter in LETTERS if letter not in vocabulary]:
        raise DataError(
            f"A byte-level vocabulary has a token for each of the 256 bytes; this one lacks {len(missing)}, the first "
            f"of them {missing[0]!r}. Import a model that has all."
        )
    ours = json.loads(BytePairTokenizer.untrained().to_str())
    ours["model"]["vocab"] = {token: id for id, token in enumerate([*SPECIALS, *plain])}
    ours["model"]["merges"] = record["model"].get("merges") or []
    named = [row if (row := ends.get(id)) in special.values() else None for id in range(len(SPECIALS))]
    left_out = [token for token, id in special.items() if id not in named]
    tokenizer = BytePairTokenizer.from_json(json.dumps(ours))
    return Adopted(tokenizer, [*named, *(vocabulary[token] for token in plain)], left_out)


def refuse_other_cuts(record: Mapping[str, Any]) -> None:
    """Refuse a tokenizer that cuts text in another way. Errors: `DataError`."""
    for place, wanted in WANTED.items():
        part, _, name = place.partition(".")
        value = record.get(part)
        if name:
            value = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else value
        if value not in wanted or type(value) not in map(type, wanted):
            raise DataError(
                f"Only byte-level BPE that cuts text as GPT-2 does can be imported, with {place}={wanted[0]!r}; this "
                f"tokenizer has {value!r:.60}. Import another model."
            )
    vocabulary = cast("dict[str, object]", record["model"]).get("vocab")
    if not isinstance(vocabulary, dict) or not all(
        type(id) is int for id in cast("dict[str, object]", vocabulary).values()
    ):
        raise DataError(
            "A BPE tokenizer has model.vocab, from tokens to ids; this one has none. Copy the file again from where it "
            "came."
        )


def special_tokens(added: list[dict[str, Any]], vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The special tokens of a tokenizer.json and their ids.

    Errors: `DataError` for an added token that is not special: it is found in a text before the merges, which our
    tokenizers do not do.
    """
    plain = [each["content"] for each in added if not each.get("special")]
    if plain:
        raise DataError(
            f"Tokens that were added to a vocabulary later can be imported only if they are special; {len(plain)} are "
            f"not, the first of them {plain[0]!r:.40}. Import another model."
        )
    return {each["content"]: vocabulary.get(each["content"], each["id"]) for each in added}
