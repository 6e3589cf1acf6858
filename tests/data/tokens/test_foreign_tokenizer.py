"""A tokenizer file that glassformer would not have written is refused, and the library's panics are errors."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig, names_file
from glassformer.data.dataset import build_tokenizers, read_tokenizer_file
from glassformer.data.pairs import Pair
from glassformer.data.tokenizer import TOKENIZERS, tokenizer_from_json
from glassformer.data.tokens import byte_level
from glassformer.data.tokens.subword import Subword
from glassformer.data.tokens.vocabulary import MOST_ENTRIES, SPECIALS

KINDS = {kind: cls for kind, cls in TOKENIZERS.items() if issubclass(cls, Subword)}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@cache
def trained(kind: str) -> Subword:
    texts = ["low lower lowest", "new newer newest", "wide wider widest <pad> <pad>"] * 5
    return KINDS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=KINDS[kind].least_vocab_size + 38))


NOT_A_TOKENIZER = {
    "no JSON": ("{", "is not valid JSON"),
    "too deep": ("[" * 100_000, "nested too deep"),
    "no object": ("[1]", "type list"),
    "no kind": ("{}", "kind None"),
    "unknown kind": ('{"kind": "syllable"}', "kind 'syllable'"),
    "a model of the library that no kind has": ('{"model": {"type": "WordLevel"}}', "'WordLevel'"),
    "a model's name of the wrong type": ('{"model": {"type": ["BPE"]}}', "['BPE']"),
    "a model of the wrong type": ('{"model": 7}', "library cannot read this file"),
    "kind of the wrong type": ('{"kind": ["word"]}', "kind ['word']"),
    "other special tokens": ('{"kind": "word", "specials": ["<s>"], "entries": []}', "['<s>']"),
    "other special tokens of bytes": ('{"kind": "byte", "specials": ["<s>"]}', "['<s>']"),
    "no entries": (json.dumps({"kind": "word", "specials": SPECIALS}), "list of strings"),
    "an entry that is no string": (json.dumps({"kind": "word", "specials": SPECIALS, "entries": [1]}),
        "list of strings"),
    "an entry of two words": (json.dumps({"kind": "word", "specials": SPECIALS, "entries": ["a", "b c"]}),
        "entry 1 is 'b c'"),
    "an entry of two characters": (json.dumps({"kind": "character", "specials": SPECIALS, "entries": ["ab"]}),
        "must be one character, but entry 0 is 'ab'"),
    "an entry twice": (json.dumps({"kind": "word", "specials": SPECIALS, "entries": ["a", "a"]}), "occur twice"),
    "half a character": (json.dumps({"kind": "character", "specials": SPECIALS, "entries": ["\ud800"]}), "U+D800"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_A_TOKENIZER)
def test_what_is_no_tokenizer_is_refused(name):
    text, message = NOT_A_TOKENIZER[name]
    with pytest.raises(DataError) as error:
        tokenizer_from_json(text)
    assert message in str(error.value)


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
        lambda r: r["added_tokens"].append({**r["added_tokens"][0], "id": 299, "content": "est", "special": False}),
        "differs in added_tokens",
    ),
    "a piece of text that is special": (
        lambda r: r["added_tokens"].append({**r["added_tokens"][0], "id": 6, "content": "!"}),
        "differs in added_tokens",
    ),
    "a missing byte": (pop_byte, "must hold every byte"),
    "a token of no bytes": (lambda r: add_token(r, "日"), "'日'"),
    "no vocabulary": (lambda r: r["model"].pop("vocab"), "library cannot read this file"),
    "a vocabulary of another type": (lambda r: r["model"].update(vocab="abc"), "library cannot read this file"),
    "added tokens of another type": (lambda r: r.update(added_tokens={"a": 1}), "library cannot read this file"),
    "a version of another type": (lambda r: r.update(version=[[]]), "differs in version"),
}
FOREIGN_BY_KIND = {
    ("bpe", "a space put in front"): (
        lambda r: r["pre_tokenizer"].update(add_prefix_space=True),
        "differs in pre_tokenizer",
    ),
    ("bpe", "random merges"): (lambda r: r["model"].update(dropout=0.5), "differs in model.dropout"),
    ("bpe", "a gap in the ids"): (lambda r: r["model"]["vocab"].update(zzz=5_000), "without a gap"),
    ("bpe", "no model"): (lambda r: r.update(model={}), "library cannot read this file"),
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
        "must hold every byte",
    ),
    ("unigram", "an unknown piece"): (lambda r: r["model"].update(unk_id=3), "differs in model.unk_id"),
    ("unigram", "bytes spelled by name"): (
        lambda r: r["model"].update(byte_fallback=True),
        "differs in model.byte_fallback",
    ),
    ("unigram", "a piece twice"): (lambda r: add_token(r, "lo") or add_token(r, "lo"), "without a gap"),
    ("unigram", "a score of another type"): (
        lambda r: r["model"]["vocab"][9].__setitem__(1, "high"),
        "library cannot read this file",
    ),
    ("unigram", "a score that is no number"): (
        lambda r: r["model"]["vocab"][9].__setitem__(1, float("inf")),
        "library cannot read this file",
    ),
}
CASES = [(kind, name, case) for kind in KINDS for name, case in FOREIGN.items()]
CASES += [(kind, name, case) for (kind, name), case in FOREIGN_BY_KIND.items()]


@pytest.mark.parametrize(
    ("of", "case"), [(of, case) for of, _, case in CASES], ids=[f"{of}: {n}" for of, n, _ in CASES]
)
def test_a_file_that_would_lose_text_is_refused(of, case):
    edit, message = case
    with pytest.raises(DataError) as error:
        tokenizer_from_json(edited(of, edit))
    assert message in str(error.value)
    assert len(str(error.value)) < 500


def test_deep_nesting_is_refused(kind):
    text = (
        trained(kind).to_json().replace('"normalizer": null', '"normalizer": ' + '{"a": ' * 50_000 + "1" + "}" * 50_000)
    )
    for read in (tokenizer_from_json, KINDS[kind].from_json):
        with pytest.raises(DataError, match="nested too deep"):
            read(text)


def test_a_vocabulary_beyond_all_use_is_refused(kind, monkeypatch):
    assert MOST_ENTRIES == 2**20
    monkeypatch.setattr(byte_level, "MOST_ENTRIES", 550)
    text = edited(kind, lambda record: [add_token(record, f"zz{'q' * place}") for place in range(600)])
    with pytest.raises(DataError, match="at most 550 entries"):
        tokenizer_from_json(text)


def test_scores_beyond_all_sums_lose_no_text():
    def sink(record: dict[str, Any]) -> None:
        for entry in record["model"]["vocab"]:
            entry[1] = -1e308

    tokenizer = tokenizer_from_json(edited("unigram", sink))
    for text in ("lowest of the low", "x" * 500):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_file_of_an_older_library_may_leave_out_what_that_did_not_write(kind):
    def leave_out(record: dict[str, Any]) -> None:
        for name in ("truncation", "padding", "post_processor"):
            record.pop(name)

    assert tokenizer_from_json(edited(kind, leave_out)).to_json() == trained(kind).to_json()


def test_a_panic_of_the_library_becomes_an_error():
    """The library's own panic, by an expression that never ends: no `except Exception` would stop it."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    with pytest.raises(DataError, match="failed on this text"), byte_level.panics_are_errors():
        library.encode("a" * 25 + "b")


def test_other_exceptions_pass_unchanged():
    for each in (KeyboardInterrupt, SystemExit, KeyError):
        with pytest.raises(each), byte_level.panics_are_errors():
            raise each


def test_a_panic_while_encoding_becomes_an_error(kind):
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


# --- A tokenizer from a file of one's own: what is taken over, and what is refused with the way


TEXT = ["the cat sat on the mat, and the dog sat on the log."] * 20
LEARNED = TOKENIZERS["bpe"].train(TEXT, TokenizerConfig(kind="bpe", vocab_size=280))


def theirs(path: Path, *, size: int = 300, alphabet: bool = True, before: bool = False, model: str = "BPE") -> Path:
    """A file that the library `tokenizers` wrote, as its own examples make it."""
    made = Tokenizer(models.BPE() if model == "BPE" else models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=before)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    special = {"vocab_size": size, "special_tokens": ["<|endoftext|>", "[UNK]"], "initial_alphabet": letters}
    trainer = trainers.BpeTrainer(**special) if model == "BPE" else trainers.WordPieceTrainer(**special)
    made.train_from_iterator(TEXT, trainer)
    made.save(str(path))
    return path


def test_a_tokenizer_of_another_library_cuts_as_it_does_there_behind_our_special_tokens(tmp_path):
    path = theirs(tmp_path / "own.json")
    found, library = read_tokenizer_file(path), Tokenizer.from_file(str(path))
    for text in ("the cat sat", "a dog, naïve ☃"):
        assert found.tokens(found.encode(text))
        assert found.decode(found.encode(text)) == text
        ids = library.encode(text).ids
        assert [*map(found.adds, found.encode(text))] == [library.decode([id]).encode() for id in ids] or "☃" in text
        assert len(ids) == len(found.encode(text))
    assert found.tokens(range(len(SPECIALS))) == [*SPECIALS]
    assert found.decode(found.encode("<|endoftext|>")) == "<|endoftext|>", "of theirs, text as any other"


def test_a_tokenizer_of_a_run_is_the_same_again(tmp_path):
    for kind in TOKENIZERS:
        config = TokenizerConfig(kind=kind, vocab_size=600)
        made = TOKENIZERS[kind].train(TEXT, config)
        (tmp_path / f"{kind}.json").write_text(made.to_json(), "utf-8")
        assert read_tokenizer_file(tmp_path / f"{kind}.json").to_json() == made.to_json()


def test_a_missing_byte_is_unknown_as_in_an_import(tmp_path):
    found = read_tokenizer_file(theirs(tmp_path / "few.json", size=60, alphabet=False))
    assert found.lacks("é")
    assert not found.lacks("the cat")


@pytest.mark.parametrize(("content", "expected"), [
    ('{"kind": "labels"}', "must name its kind"),
    ("no json", "must be a JSON object, but this text is not valid JSON"),
    (b"\xff\xfe\x00", "is not UTF-8 text"),
    ('{"a": 1}', "model.vocab"),
    ('{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "another pre_tokenizer"),
    (json.dumps({"kind": "word", "specials": SPECIALS, "entries": ["a"]}), "at least two tokens besides the 6"),
])  # fmt: skip
def test_what_is_no_tokenizer_is_refused_by_its_path(tmp_path, content, expected):
    path = tmp_path / "own.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as refused:
        read_tokenizer_file(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert expected in message
    assert message.count("Give ") == 1
    assert "Import another model" not in message


def test_other_tokenizers_are_refused_with_what_differs(tmp_path):
    for more, message in (({"model": "WordPiece"}, "model.type='BPE'"), ({"before": True}, "another pre_tokenizer")):
        with pytest.raises(DataError, match=message):
            read_tokenizer_file(theirs(tmp_path / "own.json", **more))
    with pytest.raises(DataError, match="there is no such file"):
        read_tokenizer_file(tmp_path / "missing.json")
    with pytest.raises(DataError, match=r"is a folder. Give the tokenizer\.json in it"):
        read_tokenizer_file(tmp_path)


def test_a_kind_with_a_slash_or_json_at_its_end_is_a_file():
    assert [names_file(each) for each in ("bpe", "bpee", "own.json", "a/b", "./c", None)] == [
        *(False, False, True, True, True, False)
    ]
    TokenizerConfig(kind="nowhere/own.json")  # a run is read where its file is gone
    with pytest.raises(ConfigError, match=r"tokenizer\.kind='bpee' is not known.*Did you mean 'bpe'"):
        TokenizerConfig(kind="bpee")
    with pytest.raises(ConfigError, match=r"tokenizer\.min_count"):
        TokenizerConfig(kind="own.json", min_count=2)


@pytest.mark.parametrize("shared", [True, False])
def test_each_side_may_have_its_file(tmp_path, shared):
    path = tmp_path / "own.json"
    path.write_text(LEARNED.to_json(), "utf-8")
    own = {"source_kind": str(path), "kind": str(path) if shared else "word", "shared": shared}
    found = build_tokenizers(TokenizerConfig(**own), [Pair("a cat", "un chat")])
    assert found.source.to_json() == LEARNED.to_json()
    assert (found.source is found.target) == shared
    labelled = build_tokenizers(TokenizerConfig(kind=str(path)), [Pair("a cat", "good")], labelled=True)
    assert labelled.source.to_json() == LEARNED.to_json()
    assert labelled.labels == ["good"]
