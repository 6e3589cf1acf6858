"""Subwords of bytes: the file is that of the `tokenizers` library, foreign ones are refused, panics are errors."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import tokenizers

from glassformer.data import byte_level
from glassformer.data.config import MOST_ENTRIES, TokenizerConfig
from glassformer.data.subword import Subword
from glassformer.data.tokenizer import (
    SPECIALS,
    TOKENIZERS,
    BytePairTokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
    tokenizer_from_json,
)
from glassformer.foundation.errors import DataError

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest <pad> <pad>"] * 5
KINDS = {kind: cls for kind, cls in TOKENIZERS.items() if issubclass(cls, Subword)}
MOST_LEARNED = 200  # what TEXTS give beyond the bytes


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@cache
def trained(kind: str, more: int = 38) -> Subword:
    """With so many entries more than the least."""
    cls = KINDS[kind]
    return cls.train(TEXTS, TokenizerConfig(kind=kind, vocab_size=cls.least_vocab_size + more))


def test_there_are_three_kinds() -> None:
    assert list(KINDS) == ["bpe", "wordpiece", "unigram"]


def test_the_vocabulary_is_specials_then_bytes_then_what_was_learned(kind: str) -> None:
    tokenizer, least = trained(kind), KINDS[kind].least_vocab_size
    assert least < tokenizer.vocab_size <= least + 38
    assert tokenizer.tokens(range(6)) == list(SPECIALS)
    assert sorted(tokenizer._pieces[6:262]) == [bytes([byte]) for byte in range(256)]
    assert all(len(piece) == 1 for piece in tokenizer._pieces[262:least])
    assert all(len(piece) > 1 for piece in tokenizer._pieces[least:])
    assert len(tokenizer.encode("lowest")) < len("lowest")


def test_the_size_asked_for_is_the_size_got_when_the_text_allows() -> None:
    for kind, least in (("bpe", 262), ("wordpiece", 517)):
        assert KINDS[kind].least_vocab_size == least
        assert trained(kind, 0).vocab_size == least
        assert trained(kind, 8).vocab_size == least + 8
        assert trained(kind, 100_000).vocab_size < least + MOST_LEARNED  # no pair is left that repeats
    for more in range(5):  # the library goes beyond, by pieces that it does not weigh
        assert trained("unigram", more).vocab_size == 262 + more
    assert trained("unigram", 100_000).vocab_size < 262 + MOST_LEARNED


def test_the_library_itself_reads_our_file_and_agrees(kind: str) -> None:
    tokenizer = trained(kind)
    library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    library.encode_special_tokens = True
    for text in [*TEXTS, "unseen wörds \U0001f600  two  spaces "]:
        assert library.encode(text).ids == tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        if kind != "wordpiece":  # the library's decoder knows bytes or ##, and not both
            assert library.decode(tokenizer.encode(text)) == text
    assert [library.id_to_token(id) for id in range(6)] == list(SPECIALS)


def test_text_full_of_special_tokens_learns_none_of_them(kind: str) -> None:
    text = " ".join(SPECIALS) + "".join(SPECIALS)
    tokenizer = KINDS[kind].train([text] * 50, TokenizerConfig(kind=kind, vocab_size=1_000))
    ids = tokenizer.encode(text)
    assert min(ids) >= len(SPECIALS)
    assert tokenizer.decode(ids) == text


def test_a_long_text_has_the_ids_that_it_has_whole(kind: str) -> None:
    """`encode` cuts it, and the library alone does not."""
    tokenizer = trained(kind)
    words = ["lowest", " ", "  wider", "\n\n", "new ", "\x1c", "!\x1c", "\u00a0\n", "##", "日本 "]
    text = "".join(words[place * place % len(words)] for place in range(60_000))
    assert len(text) > 2 * byte_level.PART
    assert sum(1 for _ in byte_level.parts(text)) > 2
    assert tokenizer.encode(text) == tokenizer._library.encode(text, add_special_tokens=False).ids
    assert "".join(byte_level.parts(text)) == text


def test_one_word_without_an_end_is_one_part() -> None:
    text = "a" * (byte_level.PART * 3)
    assert list(byte_level.parts(text)) == [text]
    assert list(byte_level.parts("")) == [""]


def test_training_takes_a_stream_and_keeps_no_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MB pass, of the same few words; the library takes 256 texts at a time, however long: here 1 MB."""
    monkeypatch.setattr(byte_level, "PART", 2**12)

    def stream() -> Iterator[str]:
        for _ in range(8):
            yield "lower lowest newer\n" * 55_000

    tracemalloc.start()
    tokenizer = KINDS[kind].train(stream(), TokenizerConfig(kind=kind, vocab_size=600))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
    assert tokenizer.decode(tokenizer.encode("lowest")) == "lowest"


def test_wordpiece_tells_what_begins_a_word_from_what_continues_it() -> None:
    tokenizer = trained("wordpiece", 60)
    vocabulary = tokenizer._library.get_vocab()
    assert [each for each in vocabulary if each.startswith("##") and len(each) > 3]
    spelled = {id: token for token, id in vocabulary.items()}
    for text in ("lowest", "zz", " wider"):
        first, *rest = [spelled[id] for id in tokenizer.encode(text)]
        assert not first.startswith("##")
        assert all(token.startswith("##") for token in rest)


def test_wordpiece_takes_the_longest_piece_that_it_knows() -> None:
    tokenizer = trained("wordpiece", 60)
    known = set(tokenizer._library.get_vocab())
    for word in ("lowest", "newest", "widest", "lower"):
        rest, found = word, []
        while rest:
            mark = "##" if found else ""
            piece = max((rest[:end] for end in range(1, len(rest) + 1) if mark + rest[:end] in known), key=len)
            found.append(piece)
            rest = rest.removeprefix(piece)
        assert tokenizer.tokens(tokenizer.encode(word)) == found


def test_a_word_without_an_end_is_no_unknown_one() -> None:
    tokenizer = trained("wordpiece")
    text = "x" * 1_000
    ids = tokenizer.encode(text)
    assert min(ids) >= len(SPECIALS)
    assert tokenizer.decode(ids) == text


def test_unigram_takes_the_most_probable_cut() -> None:
    """Told once more by trying every cut of a word."""
    tokenizer = trained("unigram")
    scores = dict(map(tuple, json.loads(tokenizer.to_json())["model"]["vocab"]))

    def cuts(word: str) -> Iterator[list[str]]:
        if not word:
            yield []
        for end in range(1, len(word) + 1):
            if word[:end] in scores:
                yield from ([word[:end], *rest] for rest in cuts(word[end:]))

    for word in ("lowest", "newer", "wideness", "zebra"):
        best = max(cuts(word), key=lambda cut: sum(scores[piece] for piece in cut))
        found = tokenizer.tokens(tokenizer.encode(word))
        assert sum(scores[piece] for piece in found) == pytest.approx(sum(scores[piece] for piece in best), abs=1e-9)


def test_nothing_to_learn_from_leaves_bytes(kind: str) -> None:
    for texts in ([], [""], ["a"]):
        tokenizer = KINDS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=600))
        assert tokenizer.vocab_size == KINDS[kind].least_vocab_size
        assert tokenizer.decode(tokenizer.encode("né \0")) == "né \0"


def edited(kind: str, edit: Callable[[dict[str, Any]], object]) -> str:
    record = json.loads(trained(kind).to_json())
    edit(record)
    return json.dumps(record)


def pop_byte(record: dict[str, Any]) -> None:
    vocabulary = record["model"]["vocab"]
    if isinstance(vocabulary, dict):
        del vocabulary["!"]
    else:
        vocabulary[next(place for place, (token, _) in enumerate(vocabulary) if token == "!")][0] = "!!"


def add_token(record: dict[str, Any], token: str) -> None:
    vocabulary = record["model"]["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary[token] = len(vocabulary)
    else:
        vocabulary.append([token, -1.0])


def split_by(expression: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


FOREIGN = {
    "a normaliser": (lambda r: r.update(normalizer={"type": "Lowercase"}), "differs in normalizer"),
    "an expression of its own": (lambda r: r.update(pre_tokenizer=split_by("(a+)+$")), "differs in pre_tokenizer"),
    "an expression that takes all memory": (
        lambda r: r.update(normalizer={**split_by("((((a{1,999}){1,999}){1,999}){1,999})"), "type": "Replace"}),
        "differs in normalizer",
    ),
    "another cut around ours": (
        lambda r: r.update(
            pre_tokenizer={"type": "Sequence", "pretokenizers": [split_by("(a+)+$"), r["pre_tokenizer"]]}
        ),
        "differs in pre_tokenizer",
    ),
    "no cut at all": (lambda r: r.update(pre_tokenizer=None), "differs in pre_tokenizer"),
    "truncation": (
        lambda r: r.update(truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}),
        "differs in truncation",
    ),
    "a setting that nobody knows": (lambda r: r.update(hooks=["x"]), "differs in hooks"),
    "one more added token": (
        lambda r: r["added_tokens"].append({**r["added_tokens"][0], "id": 299, "content": "est"}),
        "differs in added_tokens",
    ),
    "a missing byte": (pop_byte, "holds every byte"),
    "a token of no bytes": (lambda r: add_token(r, "日"), "'日'"),
    "no vocabulary": (lambda r: r["model"].pop("vocab"), "no file of the `tokenizers` library"),
    "a vocabulary of another type": (lambda r: r["model"].update(vocab="abc"), "no file of the `tokenizers` library"),
    "added tokens of another type": (lambda r: r.update(added_tokens={"a": 1}), "no file of the `tokenizers` library"),
    "a version of another type": (lambda r: r.update(version=[[]]), "differs in version"),
}
FOREIGN_BY_KIND = {
    ("bpe", "a space put in front"): (
        lambda r: r["pre_tokenizer"].update(add_prefix_space=True),
        "differs in pre_tokenizer",
    ),
    ("bpe", "random merges"): (lambda r: r["model"].update(dropout=0.5), "differs in model.dropout"),
    ("bpe", "a gap in the ids"): (lambda r: r["model"]["vocab"].update(zzz=5_000), "without a gap"),
    ("bpe", "no model"): (lambda r: r.update(model={}), "no file of the `tokenizers` library"),
    ("wordpiece", "short words only"): (
        lambda r: r["model"].update(max_input_chars_per_word=3),
        "differs in model.max_input_chars_per_word",
    ),
    ("wordpiece", "another mark"): (
        lambda r: r["model"].update(continuing_subword_prefix="@@"),
        "differs in model.continuing_subword_prefix",
    ),
    ("wordpiece", "'#' is no word of its own"): (
        lambda r: r["pre_tokenizer"]["pretokenizers"].pop(0),
        "differs in pre_tokenizer",
    ),
    ("wordpiece", "a byte within a word missing"): (
        lambda r: r["model"]["vocab"].update({"##ab": r["model"]["vocab"].pop("##!")}),
        "holds every byte",
    ),
    ("unigram", "an unknown piece"): (lambda r: r["model"].update(unk_id=3), "differs in model.unk_id"),
    ("unigram", "bytes spelled by name"): (
        lambda r: r["model"].update(byte_fallback=True),
        "differs in model.byte_fallback",
    ),
    ("unigram", "a piece twice"): (lambda r: add_token(r, "lo") or add_token(r, "lo"), "without a gap"),
    ("unigram", "a score of another type"): (
        lambda r: r["model"]["vocab"][9].__setitem__(1, "high"),
        "no file of the `tokenizers` library",
    ),
    ("unigram", "a score that is no number"): (
        lambda r: r["model"]["vocab"][9].__setitem__(1, float("inf")),
        "no file of the `tokenizers` library",
    ),
}
CASES = [(kind, name, case) for kind in KINDS for name, case in FOREIGN.items()]
CASES += [(kind, name, case) for (kind, name), case in FOREIGN_BY_KIND.items()]


@pytest.mark.parametrize(
    ("of", "case"), [(of, case) for of, _, case in CASES], ids=[f"{of}: {n}" for of, n, _ in CASES]
)
def test_a_file_that_would_lose_text_is_refused(of: str, case: tuple[Callable[[dict[str, Any]], object], str]) -> None:
    edit, said = case
    with pytest.raises(DataError) as error:
        tokenizer_from_json(edited(of, edit))
    assert said in str(error.value)
    assert len(str(error.value)) < 500


def test_deep_nesting_is_refused(kind: str) -> None:
    text = (
        trained(kind).to_json().replace('"normalizer": null', '"normalizer": ' + '{"a": ' * 50_000 + "1" + "}" * 50_000)
    )
    for read in (tokenizer_from_json, KINDS[kind].from_json):
        with pytest.raises(DataError, match="nested too deep"):
            read(text)


def test_a_vocabulary_beyond_all_use_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_ENTRIES == 2**20
    monkeypatch.setattr(byte_level, "MOST_ENTRIES", 550)
    text = edited(kind, lambda record: [add_token(record, f"zz{'q' * place}") for place in range(600)])
    with pytest.raises(DataError, match="at most 550 entries"):
        tokenizer_from_json(text)


def test_scores_beyond_all_sums_lose_no_text() -> None:
    def sink(record: dict[str, Any]) -> None:
        for entry in record["model"]["vocab"]:
            entry[1] = -1e308

    tokenizer = tokenizer_from_json(edited("unigram", sink))
    for text in ("lowest of the low", "x" * 500):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_file_of_an_older_library_may_leave_out_what_that_did_not_write(kind: str) -> None:
    def leave_out(record: dict[str, Any]) -> None:
        for name in ("truncation", "padding", "post_processor"):
            record.pop(name)

    assert tokenizer_from_json(edited(kind, leave_out)).to_json() == trained(kind).to_json()


def test_a_panic_of_the_library_becomes_an_error() -> None:
    """The library's own panic, by an expression that never ends: no `except Exception` would stop it."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    with pytest.raises(DataError, match="failed on this text"), byte_level.panics_are_errors():
        library.encode("a" * 25 + "b")


def test_other_exceptions_pass_unchanged() -> None:
    for each in (KeyboardInterrupt, SystemExit, KeyError):
        with pytest.raises(each), byte_level.panics_are_errors():
            raise each


def test_a_panic_while_encoding_becomes_an_error(kind: str) -> None:
    class PanicException(BaseException):
        """Named as the library's, which cannot be made from Python."""

    class Panicking:
        def encode_batch_fast(self, *_: object, **__: object) -> None:
            raise PanicException("capacity overflow")

    tokenizer = KINDS[kind].from_json(trained(kind).to_json())
    tokenizer._library = Panicking()
    for use in (lambda: tokenizer.encode("text"), lambda: tokenizer.encode_all(["text"])):
        with pytest.raises(DataError, match="capacity overflow"):
            use()


def test_each_kind_has_its_class() -> None:
    assert [type(trained(kind)) for kind in KINDS] == [BytePairTokenizer, WordPieceTokenizer, UnigramTokenizer]
