"""Byte-pair encoding: the file is that of the `tokenizers` library, foreign ones are refused, panics are errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers

from glassformer.data import byte_level
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import SPECIALS, BytePairTokenizer, tokenizer_from_json
from glassformer.foundation.errors import DataError

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest <pad> <pad>"] * 5


def trained(vocab_size: int = 300) -> BytePairTokenizer:
    return BytePairTokenizer.train(TEXTS, TokenizerConfig(kind="bpe", vocab_size=vocab_size))


def test_the_vocabulary_is_specials_then_bytes_then_merges() -> None:
    tokenizer = trained()
    assert tokenizer.vocab_size <= 300
    assert tokenizer.tokens(range(6)) == list(SPECIALS)
    assert sorted(tokenizer._pieces[6:262]) == [bytes([byte]) for byte in range(256)]
    assert all(len(piece) > 1 for piece in tokenizer._pieces[262:])
    assert len(tokenizer.encode("lowest")) < len("lowest")


def test_the_size_asked_for_is_the_size_got_when_the_text_allows() -> None:
    assert trained(262).vocab_size == 262
    assert trained(270).vocab_size == 270
    assert trained(100_000).vocab_size < 400  # no pair is left that repeats


def test_the_library_itself_reads_our_file_and_agrees() -> None:
    tokenizer = trained()
    library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    library.encode_special_tokens = True
    for text in [*TEXTS, "unseen wörds \U0001f600  two  spaces "]:
        assert library.encode(text).ids == tokenizer.encode(text)
        assert library.decode(tokenizer.encode(text)) == text == tokenizer.decode(tokenizer.encode(text))
    assert [library.id_to_token(id) for id in range(6)] == list(SPECIALS)


def test_text_full_of_special_tokens_learns_none_of_them() -> None:
    text = " ".join(SPECIALS) + "".join(SPECIALS)
    tokenizer = BytePairTokenizer.train([text] * 50, TokenizerConfig(kind="bpe", vocab_size=1_000))
    ids = tokenizer.encode(text)
    assert min(ids) >= len(SPECIALS)
    assert tokenizer.decode(ids) == text


def edited(edit: Callable[[dict[str, Any]], object]) -> str:
    record = json.loads(trained().to_json())
    edit(record)
    return json.dumps(record)


def pop_byte(record: dict[str, Any]) -> None:
    del record["model"]["vocab"]["!"]


FOREIGN = {
    "a normaliser": (lambda r: r.update(normalizer={"type": "Lowercase"}), "differs in normalizer"),
    "a space put in front": (lambda r: r["pre_tokenizer"].update(add_prefix_space=True), "differs in pre_tokenizer"),
    "an expression of its own": (
        lambda r: r.update(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
        ),
        "differs in pre_tokenizer",
    ),
    "truncation": (
        lambda r: r.update(truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}),
        "differs in truncation",
    ),
    "one more added token": (
        lambda r: r["added_tokens"].append({**r["added_tokens"][0], "id": 299, "content": "est"}),
        "differs in added_tokens",
    ),
    "random merges": (lambda r: r["model"].update(dropout=0.5), "differs in model.dropout"),
    "a missing byte": (pop_byte, "holds every byte"),
    "a gap in the ids": (lambda r: r["model"]["vocab"].update(zzz=5_000), "without a gap"),
    "a token of no bytes": (lambda r: r["model"]["vocab"].update({"日": len(r["model"]["vocab"])}), "'日'"),
    "no model": (lambda r: r.update(model={}), "no file of the `tokenizers` library"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_would_lose_text_is_refused(name: str) -> None:
    edit, said = FOREIGN[name]
    with pytest.raises(DataError) as error:
        tokenizer_from_json(edited(edit))
    assert said in str(error.value)
    assert len(str(error.value)) < 500


def test_a_panic_of_the_library_becomes_an_error() -> None:
    """The library's own panic, by an expression that never ends: no `except Exception` would stop it."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    with pytest.raises(DataError, match="failed on this text"), byte_level.panics_are_errors():
        library.encode("a" * 25 + "b")


def test_other_exceptions_pass_unchanged() -> None:
    for kind in (KeyboardInterrupt, SystemExit, KeyError):
        with pytest.raises(kind), byte_level.panics_are_errors():
            raise kind


def test_a_panic_while_encoding_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """Named as the library's, which cannot be made from Python."""

    class Panicking:
        def encode(self, *_: object, **__: object) -> None:
            raise PanicException("capacity overflow")

        encode_batch_fast = encode

    tokenizer = trained()
    monkeypatch.setattr(tokenizer, "_library", Panicking())
    for use in (lambda: tokenizer.encode("text"), lambda: tokenizer.encode_all(["text"])):
        with pytest.raises(DataError, match="capacity overflow"):
            use()
