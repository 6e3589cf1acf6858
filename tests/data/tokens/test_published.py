"""Published tokenizers give the ids and texts here that they give in the `tokenizers` library."""

import json
import sys
from functools import cache
from itertools import pairwise
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from tokenizers import Tokenizer as Library

from data.tokens.published_examples import FORM_NAMES, PUBLISHED, TEXT, WHOLE, json_of
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.running.token_file import encoder
from glassformer.data.tokenizer import TOKENIZERS, tokenizer_from_json
from glassformer.data.tokens import vocabulary
from glassformer.data.tokens.byte_level import CUTS
from glassformer.data.tokens.decoding import Decoding
from glassformer.data.tokens.exported import Adopted, adopt, exported, returned
from glassformer.data.tokens.sentencepiece import SentencePieceTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, UNK, WHITE_SPACE, last_place, shares

PARTS = [
    *TEXT, *"▁ \n\t<0x41>é漢\r\x85\u3000", "  ", "\n\n", ".\n", "!\n\n", WHOLE, " the", "reads", "IT'S", "<unk>", "<s>",
    "▁ ", " " * 12, "e\u0301", "\u0301",
]  # fmt: skip
TEXTS = some.one_of(some.lists(some.sampled_from(PARTS), max_size=24).map("".join), some.text(max_size=24))
every = pytest.mark.parametrize("name", PUBLISHED)
sentencepiece = pytest.mark.parametrize("name", FORM_NAMES)


@cache
def both(name: str) -> tuple[Adopted, Library]:
    theirs = Library.from_str(json_of(name))
    theirs.encode_special_tokens = True
    ends = {BOS: 1, EOS: 2, UNK: 0} if name in FORM_NAMES else {EOS: theirs.get_vocab_size() - 1}
    return adopt(theirs.to_str(), ends), theirs


@every
@given(text=TEXTS)
@example(text=f"{WHOLE} {TEXT}")
def test_the_ids_and_the_text_of_them_are_theirs(name, text):
    (ours, rows, _), theirs = both(name)
    expected = theirs.encode(text, add_special_tokens=False).ids
    ids = ours.encode(text)
    assert [rows[id] for id in ids] == expected
    assert ours.decode(ids) == theirs.decode(expected, skip_special_tokens=False)
    assert min(ids, default=len(SPECIALS)) >= len(SPECIALS)
    assert ours.encode_all([text, "a", ""]) == [ids, ours.encode("a"), []]


@every
@given(text=TEXTS)
@example(text=f"{WHOLE} {TEXT}")
def test_a_text_comes_back_except_for_what_stands_for_a_space(name, text):
    ours = both(name)[0].tokenizer
    back = ours.decode(ours.encode(text))
    if name not in FORM_NAMES:
        assert back == (normalize("NFC", text) if CUTS[name].composed else text)
        return
    written, front = text.replace("▁", " "), FORM_NAMES[name].front
    begun = front == "unless it begins with one" and written.startswith(" ")
    assert back == (written[1:] if begun else written)


@every
@given(text=TEXTS)
@example(text=f"{WHOLE} {TEXT}")
def test_what_ids_add_one_by_one_is_the_text(name, text):
    ours = both(name)[0].tokenizer
    ids, result = ours.encode(text), Decoding(ours)
    assert "".join(map(result.add, ids)) + result.end() == ours.decode(ids)
    behind = Decoding(ours, behind=True)
    assert "".join(map(behind.add, ids)) + behind.end() == b"".join(map(ours.adds, ids)).decode()


@every
@given(text=TEXTS)
@example(text=f"{WHOLE} {TEXT}")
def test_the_ids_of_the_parts_are_those_of_the_whole(name, text):
    ours = both(name)[0].tokenizer
    blank = WHITE_SPACE + ours.cuts.as_space
    places = [at for at in range(1, len(text)) if text[at] in ours.cuts.before and text[at - 1] not in blank]
    assert last_place(text, ours.cuts) == max(places, default=0)
    parts = [text[first:last] for first, last in pairwise([0, *places, len(text)])]
    ids, encode = ours.encode(text), encoder(ours)
    assert [id for part in ours.encode_parts(parts) for id in part] == ids
    assert [int(id) for n, part in enumerate(parts) for id in encode(part, n > 0)] == ids
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "SHARE", 5)
        assert "".join(shares(text, ours.cuts)) == text
        assert ours.encode(text) == ids


@every
def test_it_is_stored_and_exported_as_it_is(name):
    ours = both(name)[0].tokenizer
    assert tokenizer_from_json(ours.to_json()).to_json() == ours.to_json()
    again = returned(exported(ours, begin=BOS))
    assert again[0].to_json() == ours.to_json()
    assert again[1]
    theirs = Library.from_str(exported(ours))
    theirs.encode_special_tokens = True
    for text in (TEXT, f" {TEXT}", "▁a"):
        assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text)
        assert theirs.decode(ours.encode(text), skip_special_tokens=False) == ours.decode(ours.encode(text))


def test_runs_of_spaces_come_before_all_else():
    """Of a run of 15 spaces, the longest tokens first; a word behind two spaces has none before it."""
    ours = both("GPT-NeoX")[0].tokenizer
    written = [ours.decode([id]) for id in ours.encode(f"a{' ' * 15}b  c")]
    assert written == ["a", " " * 7, " " * 7, " ", "b", "  ", "c"]


def test_runs_are_of_byte_pairs_alone():
    record = json.loads(
        TOKENIZERS["wordpiece"].train([TEXT], TokenizerConfig(kind="wordpiece", vocab_size=600)).to_json()
    )
    record["added_tokens"].append({"id": len(record["model"]["vocab"]), "content": "  ", **FLAGS})
    with pytest.raises(DataError, match="differs in added_tokens"):
        tokenizer_from_json(json.dumps(record))


def test_white_space_is_what_python_takes_for_it():
    assert sorted(WHITE_SPACE) == [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]


def changed(name, *path, value):
    record = json.loads(json_of(name))
    part = record
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return json.dumps(record)


FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
ENDS = json.loads(json_of("Llama 2"))["added_tokens"]
OTHERS = {
    "another cut": (changed("GPT-2", "pre_tokenizer", value={"type": "Whitespace"}), "another pre_tokenizer.*Whitesp"),
    "another expression": (
        changed("Llama 3", "pre_tokenizer", "pretokenizers", 0, "pattern", value={"Regex": "(a+)+$"}),
        r"another pre_tokenizer: .*\"Regex\": \"\(",
    ),
    "a normaliser": (changed("SmolLM", "normalizer", value={"type": "NFC"}), "has another normalizer: .*NFC"),
    "another mark": (changed("Llama 2", "normalizer", "normalizers", 0, "prepend", value="_"), "another pre_tokenizer"),
    "another form": (changed("GPT-NeoX", "normalizer", value={"type": "NFKC"}), "has another normalizer: .*NFKC"),
    "an added word": (
        changed("GPT-NeoX", "added_tokens", 0, "content", value=" a "),
        "or runs of spaces.*; 1 are not.*' a '",
    ),
    "runs among pieces": (
        changed("Llama 2", "added_tokens", value=[*ENDS, {"id": 999, "content": "  ", **FLAGS}]),
        "special, or runs of spaces in a byte-level one; 1 are not",
    ),
    "a missing byte": (changed("Llama 2", "model", "vocab", "<0x41>", value=None), "whole numbers from 0"),
    "suffixes": (changed("Llama 2", "model", "end_of_word_suffix", value="</w>"), "end_of_word_suffix=None.*'</w>'"),
}


@pytest.mark.parametrize(("text", "message"), OTHERS.values(), ids=OTHERS)
def test_what_cuts_in_another_way_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        adopt(text, {})


def stored(name, edit):
    record = json.loads(both(name)[0].tokenizer.to_json())
    edit(record)
    return json.dumps(record)


DAMAGED = {
    "decoder": (lambda r: r.update(decoder=None), "have the decoder of its form"),
    "normaliser": (lambda r: r.update(normalizer={"type": "Lowercase"}), "write spaces as"),
    "byte": (lambda r: r["model"]["vocab"].pop("<0x41>"), "must hold every byte"),
    "dropout": (lambda r: r["model"].update(dropout=0.5), "differs in model.dropout"),
    "crossing": (
        lambda r: (
            r["model"]["vocab"].update({"a▁": len(r["model"]["vocab"])}),
            r["model"]["merges"].append(["a", "▁"]),
        ),
        "'a▁' has one within",
    ),
}


@pytest.mark.parametrize(("edit", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(edit, message):
    with pytest.raises(DataError, match=message):
        tokenizer_from_json(stored("Llama 2", edit))


def test_it_is_not_trained_here():
    with pytest.raises(ConfigError, match=r"is imported, not trained\. Train tokenizer\.kind='bpe'"):
        SentencePieceTokenizer.train([TEXT], TokenizerConfig(kind="bpe"))
