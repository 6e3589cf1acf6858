"""The catalogue is whole, its addresses cannot change, and what is there is known by its bytes."""

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.catalogue import DIFFERENT, HERE, MISSING, DataFile, catalogue, data_folder, data_set

TEXT = b"to be, or not to be\n" * 5_000
FILE = DataFile("a.txt", "https://example.org/a.txt", len(TEXT), hashlib.sha256(TEXT).hexdigest())


@pytest.mark.parametrize("name", list(catalogue()))
def test_an_entry_is_whole(name):
    found = data_set(name)
    assert all(len(text) > 3 for text in (found.title, found.licence, found.citation))
    assert found.recipes
    assert found.size == sum(file.size for file in found.files)
    assert len({file.name for file in found.files}) == len(found.files)
    for file in found.files:
        assert re.fullmatch(r"https://raw\.githubusercontent\.com/[\w.-]+/[\w.-]+/[0-9a-f]{40}/[\w./-]+", file.address)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'multi30k'"):
        data_set("multi3k")


def test_what_is_there_is_known_by_its_bytes(tmp_path):
    assert FILE.state(tmp_path) == MISSING
    for other in (TEXT[:-1], TEXT + b"x", TEXT[:-1] + b"x", b""):
        (tmp_path / "a.txt").write_bytes(other)
        assert FILE.state(tmp_path) == DIFFERENT
    (tmp_path / "a.txt").write_bytes(TEXT)
    assert FILE.state(tmp_path) == HERE
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").mkdir()
    assert FILE.state(tmp_path) == DIFFERENT, "the file could not be put there"


def test_a_packed_file_is_there_if_it_holds_the_bytes(tmp_path):
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(TEXT))
    assert FILE.state(tmp_path) == HERE
    for other in (
        gzip.compress(TEXT + b"x"),
        gzip.compress(bytes(10**7)),
        gzip.compress(TEXT)[:-9],
        b"\x1f\x8bxx",
        b"no",
    ):
        packed.write_bytes(other)
        assert FILE.state(tmp_path) == DIFFERENT


def test_the_folder_is_asked_for_or_set_or_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GLASSFORMER_DATA", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert data_folder(None) == tmp_path / ".local" / "share" / "glassformer" / "data"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # which the standard says to leave out of account
    assert data_folder(None) == tmp_path / ".local" / "share" / "glassformer" / "data"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert data_folder(None) == Path("/data/glassformer/data")
    monkeypatch.setenv("GLASSFORMER_DATA", "~/sets")
    assert data_folder(None) == tmp_path / "sets"
    assert data_folder("mine") == Path("mine")
    with pytest.raises(ConfigError, match="--data-dir"):
        data_folder("")


def test_real_files_are_those_of_the_catalogue(shared):
    folder = shared("tinyshakespeare").parent
    for name, found in catalogue().items():
        expected = [DIFFERENT if file.name == "TREC.train.txt" else HERE for file in found.files]
        assert found.states(folder) == expected, name  # TREC.train.txt lies there in UTF-8
