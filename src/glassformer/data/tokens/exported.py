"""Tokenizers of other libraries: a published one taken over behind our special tokens, and ours written for theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

from glassformer.base.errors import DataError
from glassformer.data.tokens.byte_level import BYTES, IN_NO_TEXT, LETTERS, NOTHING_BEFORE, is_run
from glassformer.data.tokens.sentencepiece import SentencePieceTokenizer, form_of
from glassformer.data.tokens.subword import (
    BytePairTokenizer,
    ByteTokenizer,
    Subword,
    UnigramTokenizer,
    WordPieceTokenizer,
)
from glassformer.data.tokens.vocabulary import (
    BOS,
    EOS,
    SPECIALS,
    THE_FILE,
    UNK,
    WHITE_SPACE,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
    read_json,
)

# A tokenizer of ours as a tokenizer.json that the `tokenizers` library reads, with the same tokens for every text.

CHARACTER = r"[\s\S]"
"""A pattern for one character, whichever it is."""
BETWEEN_WORDS = f"[{WHITE_SPACE}]+"
"""The library's own splitting knows fewer characters of white space than `str.split`."""
SUBWORDS: tuple[type[Subword], ...] = (BytePairTokenizer, WordPieceTokenizer, UnigramTokenizer)
LISTED = (CharacterTokenizer, WordTokenizer)
"""The kinds whose vocabulary lacks something, which becomes <unk>."""


def exported(tokenizer: Tokenizer, kept: Sequence[int] | None = None, begin: int | None = None) -> str:
    """The JSON text of the library's tokenizer, in which the ids `kept` of ours are 0, 1, 2, ...

    `kept`: the ids of the exported model, in ascending order; None: all. `begin`: our id of the token that comes
    before each text, if texts are documents; a tokenizer that puts none there says so. Errors:
    `DataError` for a kind that the library does not have.
    """
    kept = range(tokenizer.vocab_size) if kept is None else kept
    ids = {old: new for new, old in enumerate(kept) if old < tokenizer.vocab_size}
    record = record_of(tokenizer)
    model = record["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [model["vocab"][old] for old in ids]
    else:
        model["vocab"] = {token: ids[old] for token, old in model["vocab"].items() if old in ids}
    record["added_tokens"] = [each | {"id": ids[each["id"]]} for each in record["added_tokens"] if each["id"] in ids]
    record["post_processor"] = None
    if begin is not None:
        own = tokenizer.begins
        record["post_processor"] = beginning(names_of(tokenizer)[begin], ids[begin]) if own else NOTHING_BEFORE
    return json.dumps(record, ensure_ascii=False, indent=2)


def record_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """The library's record of a tokenizer with all of its tokens. Errors: `DataError`."""
    if isinstance(tokenizer, Subword):
        record = json.loads(tokenizer.to_json())
        return record | {"decoder": without_mark(tokenizer.mark, record["decoder"])}
    if isinstance(tokenizer, ByteTokenizer):
        return of_bytes()
    if isinstance(tokenizer, CharacterTokenizer | WordTokenizer):
        return of_list(tokenizer)
    raise DataError(f"A tokenizer of the kind {tokenizer.kind!r} has no tokenizer.json. Export another run.")


def without_mark(mark: str, decoder: object) -> object:
    """A decoder that removes a mark first. No token has it elsewhere: "#" is always a token by itself."""
    if not mark:
        return decoder
    return {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": mark}, "content": ""}, decoder]}


def of_bytes() -> dict[str, Any]:
    """Byte-pair encoding without merges: each byte is a token."""
    record = json.loads(BytePairTokenizer.untrained().to_str())
    letters = sorted(BYTES, key=BYTES.__getitem__)
    record["model"]["vocab"] = {token: id for id, token in enumerate([*SPECIALS, *letters])}
    return record


def of_list(tokenizer: CharacterTokenizer | WordTokenizer) -> dict[str, Any]:
    """A list of characters or words, cut by a pattern."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    each_is_token = isinstance(tokenizer, CharacterTokenizer)
    names = names_of(tokenizer)
    vocabulary = {token: id for id, token in enumerate([*names, *tokenizer.entries])}
    library = Library(models.WordLevel(vocabulary, unk_token=names[UNK]))
    cut = (Regex(CHARACTER), "isolated") if each_is_token else (Regex(BETWEEN_WORDS), "removed")
    library.pre_tokenizer = pre_tokenizers.Split(*cut)
    if each_is_token:
        library.decoder = decoders.Fuse()
    library.add_special_tokens(list(names))  # pyright: ignore[reportUnknownMemberType] (the library's stub)
    return json.loads(library.to_str())


def names_of(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The names of the special tokens in a file, which no part of a text may have.

    What is between white space is a word, "<eos>" too, so among words these names get a space; <unk>, which is shown
    in a text, only if it is a word of the vocabulary.
    """
    if not isinstance(tokenizer, WordTokenizer):
        return SPECIALS
    shown = SPECIALS[UNK] not in tokenizer.entries
    return tuple(name if id == UNK and shown else f"{name[:-1]} >" for id, name in enumerate(SPECIALS))


def beginning(token: str, id: int) -> Any:
    """The library's record for a token before each text."""
    from tokenizers import processors

    made = processors.TemplateProcessing([token, "$A"], [token, "$A", "$B:1"], [(token, id)])
    return json.loads(cast("bytes", made.__getstate__()))


def returned(text: str) -> tuple[Tokenizer, bool] | None:
    """The tokenizer of ours that `exported` wrote with all special tokens, and whether one begins each text.

    None for any other text. Limits of length and padding, which transformers adds when it saves a tokenizer that has
    used them, cut no text into other tokens.
    """
    record = {**read_json(text), "truncation": None, "padding": None}
    begins = record.get("post_processor") is not None
    try:
        tokenizer = rebuilt(record)
    except (DataError, KeyError, TypeError, AttributeError):
        return None
    if tokenizer is None:
        return None
    again = json.loads(exported(tokenizer, begin=BOS if begins else None))
    return (tokenizer, begins) if again == record else None


def rebuilt(record: Mapping[str, Any]) -> Tokenizer | None:
    """A tokenizer of ours for a record that may be of our making; whether it is must be checked."""
    kind, vocabulary = record["model"]["type"], record["model"]["vocab"]
    named = tuple(each["content"] for each in record["added_tokens"])
    before = record.get("post_processor")
    nothing = {"post_processor": before if before == NOTHING_BEFORE else None}
    if kind == "WordLevel" and not record["decoder"]:
        words = WordTokenizer(sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :])
        return words if named == names_of(words) else None
    if named[: len(SPECIALS)] != SPECIALS:
        return None
    if kind == "WordLevel":
        return CharacterTokenizer(sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :])
    if kind == "BPE" and vocabulary == of_bytes()["model"]["vocab"] and not record["model"]["merges"]:
        return ByteTokenizer()
    if kind == "BPE" and record["model"]["byte_fallback"]:
        return SentencePieceTokenizer.from_json(json.dumps({**record, **nothing}))
    own = next((each for each in SUBWORDS if each.model == kind), None)
    if own is None:
        return None
    usual = json.loads(own.untrained().to_str())
    return own.from_json(json.dumps({**record, "decoder": usual["decoder"], **nothing}))


# Taking over the tokenizer of a published model: the same pieces and merges, behind our special tokens.

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
    tokens: dict[int, str] = {}
    for token, id in {**vocabulary, **special, **runs}.items():
        if id in tokens:
            raise DataError(
                f"Each token has an id of its own; this tokenizer gives {id} to {tokens[id]!r:.40} and {token!r:.40}. "
                f"{AGAIN}"
            )
        tokens[id] = token
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

    from glassformer.data.tokens import byte_level  # here: it loads the library

    if taken := [token for token in plain if token in SPECIALS]:
        raise DataError(
            f"{', '.join(SPECIALS)} are special here and no text; this tokenizer has {taken[0]!r} as a token of text. "
            f"{ANOTHER}"
        )
    if form := form_of(record):
        refuse_added([*runs])
        bare = json.loads(SentencePieceTokenizer.bare(form).to_str())
        own = {"normalizer": form.normalizer, "pre_tokenizer": form.pre_tokenizer, "decoder": form.decoder()}
        return bare | own, SentencePieceTokenizer
    cut = byte_level.cut_of(record)
    if cut is None:
        cuts_alike = any(each.cuts_as(record.get("pre_tokenizer")) for each in byte_level.CUTS.values())
        differs = "normalizer" if cuts_alike else "pre_tokenizer"
        raise DataError(
            f"A tokenizer can be imported if it cuts text as one of {KNOWN} does; this one has another {differs}: "
            f"{json.dumps(record.get(differs))[:80]}. {ANOTHER}"
        )
    letters = set(LETTERS)
    if other := [token for token in plain if not token or not letters.issuperset(token)]:
        raise DataError(
            "The tokens of a byte-level vocabulary are written in 256 letters, one for each byte; this one has "
            f"{len(other)} others, the first of them {other[0]!r:.40}. {ANOTHER}"
        )
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
