"""A token file holds the tokens of the text, is found again, and is made anew when a byte of it is another."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fresh import printed
from glassformer.base.cache_folder import cache_folder, unwritable
from glassformer.base.errors import ConfigError, DataError, ResourceError
from glassformer.data.config import TokenizerConfig
from glassformer.data.running import text as reading
from glassformer.data.running import token_file
from glassformer.data.running import token_file as token_cache
from glassformer.data.running.text import Part, measure
from glassformer.data.running.token_file import (
    ABANDONED,
    SMALL,
    TokenCounts,
    TokenFile,
    encoder,
    joined,
    key_of,
    open_tokens,
    token_type,
    tokens_of,
    write_tokens,
)
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer, CharacterTokenizer, Tokenizer
from glassformer.data.tokens import vocabulary
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK

TEXTS = ["one two  three\n", "é漢 😀 two", "three\tone", "x"]
CHARACTERS = st.text(st.sampled_from("abé漢😀 \n\u2003"), min_size=1, max_size=40)


def part(folder: Path, texts: list[str]) -> Part:
    folder.mkdir(exist_ok=True)
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    return measure(str(path)).part()


def trained(kind: str, texts: list[str] = TEXTS) -> Tokenizer:
    return TOKENIZERS[kind].train(texts, TokenizerConfig(kind=kind, vocab_size=600))


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=st.text(st.sampled_from("abé漢😀 \n\t\u2003\xa0"), max_size=300))
def test_arrays_of_ids_are_those_of_the_tokenizer(kind, text):
    tokenizer = SOME.setdefault(kind, trained(kind))
    assert encoder(tokenizer)(text, False).tolist() == tokenizer.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "SHARE", 7)
        assert joined(tokenizer, text, False).tolist() == tokenizer.encode(text)


SOME: dict[str, Tokenizer] = {}


@pytest.mark.parametrize("kind", ["character", "byte"])
def test_half_a_character_is_refused(kind):
    with pytest.raises(DataError, match="lone surrogate"):
        encoder(trained(kind))("a\ud83d", False)


@pytest.mark.parametrize("size", [1, 5, 2**20], ids=["letters", "pieces", "whole"])
@pytest.mark.parametrize("documents", [False, True], ids=["running", "documents"])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_token_file_holds_the_tokens_of_each_document(kind, documents, size, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", size)
    tokenizer = trained(kind, TEXTS[:2])
    rows = [tokenizer.encode(text) for text in TEXTS]
    marked = [[BOS, *row, EOS] if documents else row for row in rows]
    found = tokens_of(part(tmp_path, TEXTS), tokenizer, documents=documents)
    assert found.tokens.tolist() == [id for row in marked for id in row]
    assert found.documents.tolist() == [sum(map(len, marked[:place])) for place in range(len(TEXTS))]
    counts = found.counts
    assert (len(found), counts.n_tokens) == (len(found.tokens),) * 2
    assert counts.n_unknown == sum(id == UNK for row in rows for id in row)
    assert counts.n_documents == len(TEXTS)
    assert counts.n_bytes == sum(len(text.encode()) for text in TEXTS)
    assert counts.n_characters == sum(map(len, TEXTS))
    assert counts.n_words == sum(len(text.split()) for text in TEXTS)
    assert counts.sha256 == hashlib.sha256("".join(f"{text}\0" for text in TEXTS).encode()).hexdigest()


@given(CHARACTERS, st.integers(1, 9))
def test_words_are_counted_once_wherever_text_is_cut(tmp_path_factory, text, size):
    texts = [each for each in text.split("\n") if each.strip()] or ["a"]
    folder = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PIECE", size)
        write_tokens(folder, part(folder / "text", texts), ByteTokenizer(), documents=True)
    assert open_tokens(folder).counts.n_words == sum(len(each.split()) for each in texts)


def test_windows_are_taken(tmp_path):
    found = tokens_of(part(tmp_path, ["ab", "c", "def"]), ByteTokenizer(), documents=True)
    #  place     0    1  2   3    4    5   6    7    8  9  10  11
    #           bos   a  b  eos  bos   c  eos  bos   d  e   f  eos
    a = ord("a") + 6
    taken = found.take(np.array([0, 2, 8]), 4)
    assert taken.tolist() == [[BOS, a, a + 1, EOS], [a + 1, EOS, BOS, a + 2], [a + 3, a + 4, a + 5, EOS]]
    assert taken.dtype == np.int64
    for starts in (np.array([9]), np.array([-1])):
        with pytest.raises(AssertionError):
            found.take(starts, 4)


def test_windows_of_a_large_file_do_not_stay_in_memory(tmp_path, monkeypatch):
    """What is taken twice is the same, and the pages are the system's again in between."""
    monkeypatch.setattr("glassformer.data.running.token_file.LARGE", 0)
    found = tokens_of(part(tmp_path, ["some text " * 10_000]), ByteTokenizer(), documents=False)
    starts = np.arange(0, 90_000, 3_000)
    first = found.take(starts, 100)
    assert np.array_equal(found.take(starts, 100), first)
    assert first.tolist() == [found.tokens[start : start + 100].tolist() for start in starts]
    if Path("/proc/self/smaps").exists():
        found.take(starts, 100)
        assert resident(found.path / "tokens.bin") == 0


def resident(path: Path) -> int:
    """KiB of a mapped file that this process holds."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    places = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    assert places
    return sum(int(lines[place + 4].split()[1]) for place in places if lines[place + 4].startswith("Rss"))


@given(st.lists(st.sampled_from([BOS, UNK, 7]), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 40))
def test_the_most_special_tokens_are_those_of_the_fullest_window(ids, block, length):
    """However many of them are looked through at once, and where the text is shorter than the window, too."""
    counts = TokenCounts("", "", 8, True, len(ids), 0, 1, 1, 1, 1)
    file = TokenFile(Path(), np.array(ids, np.uint16), np.array([0]), counts)
    special = [sum(id != 7 for id in ids[at : at + length]) for at in range(len(ids))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_file, "BLOCK", block)
        assert file.most_special(length) == max(special)


def test_a_part_without_a_token_has_none(tmp_path):
    found = tokens_of(part(tmp_path, ["word   "]).corpus.part(4), trained("word"), documents=False)
    assert (len(found), found.tokens.tolist(), found.documents.tolist()) == (0, [], [0])


def test_ids_take_two_bytes_as_long_as_they_fit(tmp_path):
    assert (token_type(SMALL).itemsize, token_type(SMALL + 1).itemsize) == (2, 4)
    most = CharacterTokenizer([chr(place) for place in range(0x20000, 0x20000 + SMALL)])
    text = chr(0x20000 + SMALL - 1) + chr(0x20000)
    found = tokens_of(part(tmp_path, [text]), most, documents=False)
    assert found.tokens.tolist() == most.encode(text) == [SMALL + 5, 6]
    assert found.tokens.dtype == np.uint32


def test_a_file_is_found_again_by_text_part_tokenizer_and_marks(tmp_path, monkeypatch):
    here = part(tmp_path, TEXTS)
    first = tokens_of(here, ByteTokenizer(), documents=True)
    monkeypatch.setattr(token_cache, "write_tokens", refuse)
    assert tokens_of(here, ByteTokenizer(), documents=True).path == first.path
    assert tokens_of(part(tmp_path / "moved", TEXTS), ByteTokenizer(), documents=True).path == first.path
    keys = {
        key_of(part(tmp_path / "other", texts), tokenizer, documents=documents)
        for texts in (TEXTS, TEXTS[:-1])
        for tokenizer in (ByteTokenizer(), trained("character"))
        for documents in (False, True)
    } | {key_of(here.corpus.part(1), ByteTokenizer(), documents=True)}
    assert len(keys) == 9


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("made anew")


@pytest.mark.parametrize("name", ["tokens.bin", "documents.bin", "MANIFEST.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_file_is_made_anew_and_that_is_said(name, harm, tmp_path):
    here = part(tmp_path, TEXTS)
    first = tokens_of(here, ByteTokenizer(), documents=True)
    tokens, path = first.tokens.tolist(), first.path / name
    data = path.read_bytes()
    for at in (0, len(data) // 2, len(data) - 2):
        if harm == "flip":
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        elif harm == "cut":
            path.write_bytes(data[:at])
        else:
            path.unlink()
        lines: list[str] = []
        again = tokens_of(here, ByteTokenizer(), documents=True, note=lines.append)
        assert again.tokens.tolist() == tokens
        assert len(lines) == 1
        assert "was damaged" in lines[0]
        assert tokens_of(here, ByteTokenizer(), documents=True, note=lines.append).tokens.tolist() == tokens
        assert len(lines) == 1
    assert [each.name for each in first.path.parent.iterdir()] == [first.path.name]


def test_a_number_changed_in_the_manifest_is_noticed(tmp_path):
    found = tokens_of(part(tmp_path, TEXTS), ByteTokenizer(), documents=True)
    path = found.path / "MANIFEST.json"
    path.write_text(path.read_text().replace('"n_words": 9', '"n_words": 8'))
    with pytest.raises(ValueError, match=r"MANIFEST.json has changed since it was written"):
        open_tokens(found.path)


@pytest.mark.parametrize("damaged", [False, True], ids=["new", "damaged"])
def test_who_ends_second_takes_what_is_there(damaged, tmp_path, monkeypatch):
    here = part(tmp_path, TEXTS)
    if damaged:
        (tokens_of(here, ByteTokenizer(), documents=True).path / "tokens.bin").write_bytes(b"")
    inner: list[TokenFile] = []

    def slow(folder: Path, *given: object, **named: object) -> None:
        """Another process begins later and ends first."""
        write_tokens(folder, *given, **named)
        if not inner:
            monkeypatch.setattr(token_cache, "write_tokens", write_tokens)
            inner.append(tokens_of(here, ByteTokenizer(), documents=True))

    monkeypatch.setattr(token_cache, "write_tokens", slow)
    outer = tokens_of(here, ByteTokenizer(), documents=True)
    assert outer.path == inner[0].path
    assert outer.tokens.tolist() == inner[0].tokens.tolist()
    assert [each.name for each in outer.path.parent.iterdir()] == [outer.path.name]


def test_two_processes_that_make_the_same_file_at_once_both_end_well(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("some words and a line\n" * 50_000)
    program = (
        "import sys; from glassformer.data.running.text import measure;"
        "from glassformer.data.running.token_file import tokens_of;"
        "from glassformer.data.tokenizer import ByteTokenizer;"
        "print(len(tokens_of(measure(sys.argv[1]).part(), ByteTokenizer(), documents=False)))"
    )
    command = [sys.executable, "-c", program, path]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate()[0].strip() for each in started] == [str(path.stat().st_size)] * 3
    assert [each.returncode for each in started] == [0, 0, 0]
    assert len(list((cache_folder() / "tokens").iterdir())) == 1


def test_nothing_half_made_is_left_and_what_others_left_goes(tmp_path, monkeypatch):
    here = part(tmp_path, [*TEXTS, "last"])
    Path(str(here.corpus.path)).write_text("changed")
    with pytest.raises(DataError, match="changed while it was read"):
        tokens_of(here, ByteTokenizer(), documents=True)
    kept = cache_folder() / "tokens"
    assert list(kept.iterdir()) == []
    old, new = kept / ".building-old", kept / ".building-new"
    for each in (old, new):
        each.mkdir()
    os.utime(old, (0, new.stat().st_mtime - ABANDONED - 60))
    tokens_of(part(tmp_path, TEXTS), ByteTokenizer(), documents=True)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot be written.*Check who may.*set GLASSFORMER_CACHE"):
        tokens_of(part(tmp_path, TEXTS), ByteTokenizer(), documents=True)


def test_a_full_disk_is_told_from_a_folder_that_may_not_be_written(tmp_path):
    full, closed = OSError(errno.ENOSPC, "No space left"), PermissionError(errno.EACCES, "Permission denied")
    assert isinstance(unwritable(tmp_path, full), ResourceError)
    assert isinstance(unwritable(tmp_path, closed), ConfigError)


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("GLASSFORMER_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("GLASSFORMER_CACHE")
    assert cache_folder() == Path("/shared/glassformer")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "glassformer"


def test_the_data_side_of_text_loads_no_torch():
    program = (
        "import sys; import glassformer.data.running.token_file, glassformer.data.running.token_file;"
        "import glassformer.data.running.text;"
        "print('torch' in sys.modules)"
    )
    assert printed("-c", program).strip() == "False"
