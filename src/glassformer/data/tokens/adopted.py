"""Taking over the tokenizer of a published model: the same pieces and merges, behind our special tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

from glassformer.base.errors import DataError
from glassformer.data.tokens.byte_level import IN_NO_TEXT, LETTERS, NOTHING_BEFORE, is_run
from glassformer.data.tokens.sentencepiece import SentencePieceTokenizer, form_of
from glassformer.data.tokens.subword import BytePairTokenizer
from glassformer.data.tokens.vocabulary import EOS, SPECIALS, THE_FILE, UNK, Tokenizer, read_json

WANTED: dict[str, tuple[object, ...]] = {
    "model.type": ("BPE", None),
    "model.dropout": (None, 0.0),
    "model.continuing_subword_prefix": (None, ""),
    "model.end_of_word_suffix": (None, ""),
}
"""The settings of a tokenizer.json that decide how pieces are merged, and the values with which ours does the same."""
KNOWN = "GPT-2, GPT-NeoX, SmolLM, Llama and Mistral"
"""Whose ways to cut text are known."""
ANOTHER = "Import another model."
AGAIN = "Copy the file again from where it came."
"""The remedy for a damaged file."""


class Adopted(NamedTuple):
    """A tokenizer of ours that cuts text as theirs does."""

    tokenizer: Tokenizer
    rows: list[int | None]
    """For each of our ids, the id of the same token in theirs; None if theirs has no such token."""
    left_out: list[str]
    """Their special tokens that are none of ours."""


def adopt(text: str, ends: Mapping[int, int | None], more: Sequence[int] = (), *, begins: bool = True) -> Adopted:
    """Take over a tokenizer.json of the `tokenizers` library with byte-pair encoding, of bytes or SentencePiece's.

    `ends`: for PAD, BOS, EOS and UNK, the id that theirs has for it, or None; an id that is none of its special tokens
    counts as None. `more`: ids of their special tokens besides `ends[EOS]` that end a text. `begins`: whether theirs
    puts the token `ends[BOS]` before a text. Errors: `DataError` for any other tokenizer, naming the setting
    that differs.
    """
    record = cast("Mapping[str, Any]", read_json(text))
    refuse_other_merges(record)
    vocabulary: dict[str, int] = record["model"]["vocab"]
    special, runs = added_tokens(record.get("added_tokens", []), vocabulary)
    refuse_shared_ids({**vocabulary, **special, **runs})
    plain = [token for token, _ in sorted(vocabulary.items(), key=lambda each: each[1]) if token not in special]
    ours, made = untrained_like(record, plain, runs)
    ours["model"]["vocab"] = {token: id for id, token in enumerate([*SPECIALS, *plain])}
    ours["model"]["merges"] = record["model"].get("merges")
    found_first = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    ours["added_tokens"] += [
        {"id": id, "content": run, **found_first} for id, run in enumerate(runs, len(ours["model"]["vocab"]))
    ]
    last = {token: id for token, id in special.items() if id in more and id != ends.get(EOS)}
    ours["added_tokens"] += [
        {"id": id, "content": token, **found_first, "special": True}
        for id, token in enumerate(last, len(ours["model"]["vocab"]) + len(runs))
    ]
    ours["post_processor"] = None if begins else NOTHING_BEFORE
    named = [row if (row := ends.get(id)) in special.values() else None for id in range(len(SPECIALS))]
    left_out = [token for token, id in special.items() if id not in (*named, *last.values())]
    try:
        tokenizer = made.from_json(json.dumps(ours))
    except DataError as error:
        raise DataError(str(error).replace(THE_FILE, AGAIN)) from None
    return Adopted(
        tokenizer, [*named, *(vocabulary[token] for token in plain), *runs.values(), *last.values()], left_out
    )


def untrained_like(
    record: Mapping[str, Any], plain: Sequence[str], runs: Mapping[str, int]
) -> tuple[dict[str, Any], type[Tokenizer]]:
    """The record of one of ours without vocabulary that cuts text as theirs does, and its class.

    `plain`: the tokens that are to be its vocabulary, besides the `runs` of spaces. Errors: `DataError` naming the
    setting that differs.
    """
    from tokenizers import models

    from glassformer.data.tokens import published  # here: it loads the library

    refuse_special_names(plain)
    if form := form_of(record):
        refuse_added([*runs])
        bare = json.loads(SentencePieceTokenizer.bare(form).to_str())
        own = {"normalizer": form.normalizer, "pre_tokenizer": form.pre_tokenizer, "decoder": form.decoder()}
        return bare | own, SentencePieceTokenizer
    cut = published.cut_of(record)
    if cut is None:
        cuts_alike = any(each.cuts_as(record.get("pre_tokenizer")) for each in published.CUTS.values())
        differs = "normalizer" if cuts_alike else "pre_tokenizer"
        raise DataError(
            f"A tokenizer can be imported if it cuts text as one of {KNOWN} does; this one has another {differs}: "
            f"{json.dumps(record.get(differs))[:80]}. {ANOTHER}"
        )
    refuse_other_pieces(plain)
    unknown = None if IN_NO_TEXT.union(plain).issuperset(LETTERS) else SPECIALS[UNK]
    model = models.BPE(ignore_merges=record["model"].get("ignore_merges") is True, unk_token=unknown)
    return json.loads(cut.untrained(model).to_str()), BytePairTokenizer


def refuse_other_merges(record: Mapping[str, Any]) -> None:
    """Refuse a tokenizer whose pieces are merged in another way. Errors: `DataError`."""
    model: Any = record.get("model")
    for place, wanted in WANTED.items():
        value = model.get(place.partition(".")[2]) if isinstance(model, dict) else model
        if value not in wanted or type(value) not in map(type, wanted):
            raise DataError(
                f"Only byte-pair encoding as {KNOWN} have it can be imported, with {place}={wanted[0]!r}; this "
                f"tokenizer has {value!r:.60}. {ANOTHER}"
            )
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or not all(map(is_id, cast("dict[str, object]", vocabulary).values())):
        raise DataError(
            "A BPE tokenizer has model.vocab, from tokens to ids, which are whole numbers from 0; this one has none, "
            f"or others. {AGAIN}"
        )


def is_id(value: object) -> bool:
    """Whether a value from a file can be the id of a token."""
    return type(value) is int and value >= 0


def added_tokens(added: Any, vocabulary: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The special tokens of a tokenizer.json and its runs of spaces, both with their ids, runs in the order of these.

    Errors: `DataError` for any other added token: it is found in a text before the merges, and text may be cut in it.
    """
    for each in added if isinstance(added, list) else [added]:
        if not (isinstance(each, dict) and isinstance(each.get("content"), str) and is_id(each.get("id"))):
            raise DataError(
                "Each of added_tokens has a content, which is text, and an id, a number from 0; got "
                f"{each!r:.80}. {AGAIN}"
            )
    refuse_added([each["content"] for each in added if each.get("special") is not True and not is_run(each)])
    runs: dict[str, int] = {each["content"]: each["id"] for each in added if is_run(each)}
    runs = dict(sorted(runs.items(), key=itemgetter(1)))
    special = {each["content"]: vocabulary.get(each["content"], each["id"]) for each in added}
    return {token: id for token, id in special.items() if token not in runs}, runs


def refuse_added(plain: Sequence[str]) -> None:
    """Refuse added tokens that cannot be taken over, if there are any. Errors: `DataError`."""
    if plain:
        raise DataError(
            "Tokens that were added to a vocabulary later can be imported only if they are special, or runs of spaces "
            f"in a byte-level one; {len(plain)} are not, the first of them {plain[0]!r:.40}. {ANOTHER}"
        )


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
    """Refuse tokens that are not made of bytes. Errors: `DataError`."""
    letters = set(LETTERS)
    if other := [token for token in plain if not token or not letters.issuperset(token)]:
        raise DataError(
            "The tokens of a byte-level vocabulary are written in 256 letters, one for each byte; this one has "
            f"{len(other)} others, the first of them {other[0]!r:.40}. {ANOTHER}"
        )


def refuse_special_names(plain: Sequence[str]) -> None:
    """Refuse a token of text that is called as one of our special tokens. Errors: `DataError`."""
    if taken := [token for token in plain if token in SPECIALS]:
        raise DataError(
            f"{', '.join(SPECIALS)} are special here and no text; this tokenizer has {taken[0]!r} as a token of text. "
            f"{ANOTHER}"
        )
