"""A tokenizer as a tokenizer.json: the library gives the same tokens and texts, and the file is recognised again."""

import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tokenizers import Tokenizer as Library

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, Labels
from glassformer.data.tokens.exported import BETWEEN_WORDS, exported, names_of, returned
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, SPECIALS

TEXT = "The model reads a text. It reads  the text ## again:\n\tand a déjà vu, 12 times 😀."
MADE = {
    kind: made.train([TEXT] * 2, TokenizerConfig(kind=kind, vocab_size=540 if kind == "wordpiece" else 290))
    for kind, made in TOKENIZERS.items()
}
MADE["word, of their names"] = TOKENIZERS["word"].train([f"{TEXT} {' '.join(SPECIALS)}"], TokenizerConfig(kind="word"))
PARTS = [*TEXT, *"#▁<pad>\x1c\x85\u200b\u3000", *(f" {name} " for name in SPECIALS)]
MARKED = some.lists(some.sampled_from(PARTS), max_size=40).map("".join)
kinds = pytest.mark.parametrize("kind", MADE)


def library(text):
    made = Library.from_str(text)
    made.encode_special_tokens = True  # as tokenizer_config.json says with split_special_tokens
    return made


LIBRARIES = {kind: library(exported(made, begin=BOS)) for kind, made in MADE.items()}


@kinds
@given(text=some.one_of(MARKED, some.text(max_size=40)))
def test_the_library_gives_the_same_tokens_and_the_same_text(kind, text):
    if any(0xD800 <= ord(each) < 0xE000 for each in text):
        return
    ours, theirs = MADE[kind], LIBRARIES[kind]
    ids = ours.encode(text)
    assert theirs.encode(text).ids == [BOS, *ids]
    assert theirs.decode(ids, skip_special_tokens=False).replace("<unk >", "<unk>") == ours.decode(ids)


def test_white_space_is_what_words_are_split_at():
    spaces = re.compile(BETWEEN_WORDS)
    characters = map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1)))
    assert not [each for each in characters if bool(spaces.fullmatch(each)) != each.isspace()]


@kinds
def test_other_tokens_move_up_if_special_ones_are_left_out(kind):
    ours = MADE[kind]
    kept = [2, 3, *range(len(SPECIALS), ours.vocab_size)]
    theirs = library(exported(ours, kept, begin=EOS))
    assert theirs.get_vocab_size() == len(kept)
    assert [kept[id] for id in theirs.encode(TEXT).ids] == [EOS, *ours.encode(TEXT)]
    assert theirs.token_to_id(names_of(ours)[PAD]) is None


@kinds
@pytest.mark.parametrize("begin", [None, BOS])
def test_a_file_of_ours_is_recognised(kind, begin):
    found = returned(exported(MADE[kind], begin=begin))
    assert found is not None
    tokenizer, begins = found
    assert type(tokenizer) is type(MADE[kind])
    assert tokenizer.to_json() == MADE[kind].to_json()
    assert begins == (begin is not None)


@kinds
def test_a_file_that_was_saved_with_limits_and_padding_is_recognised(kind):
    theirs = library(exported(MADE[kind], begin=BOS))
    theirs.enable_truncation(5)
    theirs.enable_padding(pad_token=names_of(MADE[kind])[PAD])
    found = returned(theirs.to_str())
    assert found is not None
    assert found[0].to_json() == MADE[kind].to_json()


def changed(place, value):
    def change(record):
        for each in place[:-1]:
            record = record[each]
        record[place[-1]] = value

    return change


OTHERS = {
    "special": changed(("added_tokens", 0, "content"), "<s>"),
    "stripped": changed(("added_tokens", 0, "lstrip"), True),
    "normalizer": changed(("normalizer",), {"type": "Lowercase"}),
    "cut": changed(("pre_tokenizer",), None),
    "beginning": changed(("post_processor",), {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}),
    "decoder": changed(("decoder",), None),
    "model": changed(("model", "type"), "Other"),
    "no vocabulary": changed(("model",), {"type": "BPE"}),
    "no tokens": changed(("added_tokens",), None),
}


@kinds
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_any_other_file_is_not(kind, change):
    record = json.loads(exported(MADE[kind], begin=BOS))
    change(record)
    if record["decoder"] is None and kind.startswith("word"):
        return  # it has none
    assert returned(json.dumps(record)) is None


def test_labels_have_no_such_file():
    with pytest.raises(DataError, match=r"of the kind 'label' has no tokenizer.json\. Export another run"):
        exported(Labels(["a", "b"]))
