"""A tokenizer of ours as a tokenizer.json that the `tokenizers` library reads, with the same tokens for every text.

The special tokens keep their names, except among words (`names_of`). A tokenizer may lose some of them, because the
exported model has no row for them; the other tokens then move up. `returned` is the inverse, for a file that has them
all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from glassformer.base.errors import DataError
from glassformer.data.tokens.bytewise import ByteTokenizer
from glassformer.data.tokens.cuts import WHITE_SPACE
from glassformer.data.tokens.sentencepiece import SentencePieceTokenizer
from glassformer.data.tokens.subword import BytePairTokenizer, Subword
from glassformer.data.tokens.unigram import UnigramTokenizer
from glassformer.data.tokens.vocabulary import BOS, SPECIALS, UNK, Tokenizer, read_json
from glassformer.data.tokens.wordpiece import WordPieceTokenizer
from glassformer.data.tokens.words import CharacterTokenizer, WordTokenizer

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
    from glassformer.data.tokens.byte_level import NOTHING_BEFORE  # here: it loads the library

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
    from glassformer.data.tokens.byte_level import BYTES  # here: it loads the library

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
    from glassformer.data.tokens.byte_level import NOTHING_BEFORE

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
