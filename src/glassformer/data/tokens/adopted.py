"""Taking over the tokenizer of a published model: the same pieces and merges, behind our special tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from glassformer.data.tokens.byte_level import LETTERS
from glassformer.data.tokens.subword import BytePairTokenizer
from glassformer.data.tokens.vocabulary import SPECIALS, THE_FILE, Tokenizer, read_json
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
PUBLISHED = {
    "model.byte_fallback": "as SentencePiece's BPE in Llama 2 has",
    "model.ignore_merges": "as Llama 3's BPE has",
}
"""Published tokenizers that other values of these settings belong to."""
AGAIN = "Copy the file again from where it came."
"""The remedy for a damaged file."""


class Adopted(NamedTuple):
    """A tokenizer of ours that cuts text as theirs does."""

    tokenizer: Tokenizer
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
    special = special_tokens(record.get("added_tokens", []), vocabulary)
    refuse_shared_ids({**vocabulary, **special})
    plain = [token for token, _ in sorted(vocabulary.items(), key=lambda each: each[1]) if token not in special]
    refuse_other_pieces(plain)
    ours = json.loads(BytePairTokenizer.untrained().to_str())
    ours["model"]["vocab"] = {token: id for id, token in enumerate([*SPECIALS, *plain])}
    ours["model"]["merges"] = record["model"].get("merges")
    named = [row if (row := ends.get(id)) in special.values() else None for id in range(len(SPECIALS))]
    left_out = [token for token, id in special.items() if id not in named]
    try:
        tokenizer = BytePairTokenizer.from_json(json.dumps(ours))
    except DataError as error:
        raise DataError(str(error).replace(THE_FILE, AGAIN)) from None
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
                f"tokenizer has {value!r:.60}{f', {PUBLISHED[place]}' if place in PUBLISHED else ''}. Import another "
                "model."
            )
    model: Any = record.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or not all(map(is_id, cast("dict[str, object]", vocabulary).values())):
        raise DataError(
            "A BPE tokenizer has model.vocab, from tokens to ids, which are whole numbers from 0; this one has none, "
            f"or others. {AGAIN}"
        )


def is_id(value: object) -> bool:
    """Whether a value from a file can be the id of a token."""
    return type(value) is int and value >= 0


def special_tokens(added: Any, vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The special tokens of a tokenizer.json and their ids.

    Errors: `DataError` for an added token that is not special: it is found in a text before the merges, which our
    tokenizers do not do.
    """
    for each in added if isinstance(added, list) else [added]:
        if not (isinstance(each, dict) and isinstance(each.get("content"), str) and is_id(each.get("id"))):
            raise DataError(
                "Each of added_tokens has a content, which is text, and an id, a number from 0; got "
                f"{each!r:.80}. {AGAIN}"
            )
    plain = [each["content"] for each in added if each.get("special") is not True]
    if plain:
        raise DataError(
            f"Tokens that were added to a vocabulary later can be imported only if they are special; {len(plain)} are "
            f"not, the first of them {plain[0]!r:.40}. Import another model."
        )
    return {each["content"]: vocabulary.get(each["content"], each["id"]) for each in added}


def refuse_shared_ids(ids: Mapping[str, int]) -> None:
    """Refuse two tokens with one id, which would share its probability. Errors: `DataError`."""
    tokens: dict[int, str] = {}
    for token, id in ids.items():
        if id in tokens:
            raise DataError(
                f"Each token has an id of its own; this tokenizer gives {id} to {tokens[id]!r:.40} and {token!r:.40}. "
                f"{AGAIN}"
            )
        tokens[id] = token


def refuse_other_pieces(plain: Sequence[str]) -> None:
    """Refuse tokens that are not made of bytes, and a vocabulary that lacks some bytes. Errors: `DataError`."""
    pieces, letters = set(plain), set(LETTERS)
    if missing := [letter for letter in LETTERS if letter not in pieces]:
        raise DataError(
            f"A byte-level vocabulary has a token for each of the 256 bytes; this one lacks {len(missing)}, the first "
            f"of them {missing[0]!r}. Import a model that has all."
        )
    if other := [token for token in plain if not token or token in SPECIALS or not letters.issuperset(token)]:
        raise DataError(
            f"The tokens of a byte-level vocabulary are written in 256 letters, one for each byte, and "
            f"{', '.join(SPECIALS)} are special here; this one has {len(other)} others, the first of them "
            f"{other[0]!r:.40}. Import another model."
        )
