"""A tokenizer from a file of one's own: what is taken over, and what is refused with the way."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig, names_file
from glassformer.data.dataset import build_tokenizers, read_tokenizer_file
from glassformer.data.pairs import Pair
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.vocabulary import SPECIALS

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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"kind": "labels"}', "must name its kind"),
        ("no json", "must be a JSON object, but this text is not valid JSON"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ('{"a": 1}', "model.vocab"),
        ('{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "another pre_tokenizer"),
        (json.dumps({"kind": "word", "specials": SPECIALS, "entries": ["a"]}), "at least two tokens besides the 6"),
    ],
)
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
