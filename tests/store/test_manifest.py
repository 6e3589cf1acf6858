"""The manifest: every change to a listed file is seen, and it can name nothing outside its folder."""

import hashlib
import json
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.base.errors import CheckpointError
from glassformer.store.folders import (
    CONFIG,
    MANIFEST,
    MODEL,
    PLAIN,
    STATE,
    Entry,
    check,
    manifest_text,
    read_manifest,
    verify,
)
from store.examples import contents, rewrite_manifest, tiny_step


@pytest.fixture
def folder(tmp_path):
    return tiny_step(tmp_path, 1)


def test_says_size_and_hash(folder):
    values = json.loads((folder / MANIFEST).read_text())
    data = (folder / CONFIG).read_bytes()
    assert values[CONFIG] == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert values.keys() == contents(folder).keys() - {MANIFEST}
    assert {name: each._asdict() for name, each in verify(folder).items()} == values


def change(data: bytes, random: random.Random) -> bytes:
    """One byte flipped, or some cut off, or some added."""
    at = random.randrange(len(data))
    flipped = bytes([data[at] ^ random.randrange(1, 256)])
    return random.choice([data[:at] + flipped + data[at + 1 :], data[:at], data + random.randbytes(1 + at)])


def test_every_change_is_seen(folder):
    chance, whole = random.Random(1), contents(folder)
    for _ in range(250):
        name = chance.choice(sorted(whole))
        (folder / name).write_bytes(change(whole[name], chance))
        with pytest.raises(CheckpointError) as caught:
            check(folder)
        assert str(folder) in str(caught.value)
        (folder / name).write_bytes(whole[name])
    check(folder)


def test_space_in_the_manifest_counts(folder):
    """Between the values, JSON itself does not care; the manifest has no byte that nothing guards."""
    whole = (folder / MANIFEST).read_bytes()
    places = [at for at in range(len(whole)) if whole[at : at + 1].isspace()]
    assert len(places) > 20
    for at in places:
        (folder / MANIFEST).write_bytes(whole[:at] + (b" " if whole[at] == 10 else b"\n") + whole[at + 1 :])
        with pytest.raises(CheckpointError, match="is damaged"):
            read_manifest(folder)


@pytest.mark.parametrize("name", [MODEL, CONFIG, STATE, MANIFEST])
def test_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        check(folder)


def test_file_that_is_not_listed_is_no_part(folder):
    """Whatever else lies there (a note, .DS_Store) is not read, so it does no harm."""
    (folder / "note.txt").write_text("x")
    (folder / "optimizer.safetensors").write_text("x")
    assert check(folder).keys() == contents(folder).keys() - {MANIFEST, "note.txt", "optimizer.safetensors"}


def test_manifest_that_lists_too_little(folder):
    (folder / STATE).rename(folder.parent / "elsewhere")
    rewrite_manifest(folder)
    (folder.parent / "elsewhere").rename(folder / STATE)
    with pytest.raises(CheckpointError, match=r"does not list state\.json, so the checkpoint is incomplete"):
        check(folder)


HASH = "0" * 64
NO_ENTRIES = [None, 1, [], {}, {"size": 1}, {"size": -1, "sha256": HASH}, {"size": "1", "sha256": HASH}]
NO_ENTRIES += [{"size": 1.0, "sha256": HASH}]
NO_ENTRIES += [{"size": 1, "sha256": digest} for digest in (HASH[1:], "g" * 64, "A" * 64, HASH + "\n", None)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((each, "must be a JSON object") for each in ([], 3, "x", None)),
        *(({"config.json": each}, r"'config\.json' needs a size in bytes and a sha256") for each in NO_ENTRIES),
    ],
)
def test_manifest_of_another_form(folder, value, message):
    (folder / MANIFEST).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=message):
        read_manifest(folder)


OUTSIDE = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/b", "a\\b", "C:x", "C:\\x", "\\\\server\\x"]
OUTSIDE += ["x\0", "a" * 101, "a" * 4000, "a\n", " a", ".hidden", "~", "~root", "..\uff0fx", "\u2024\u2024", "-rf"]
OUTSIDE += [MANIFEST, "%2e%2e/x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_are_not_plain(folder, name):
    refused(folder, name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.text(alphabet="./\\:~%ab\0\u2024\uff0f", min_size=1, max_size=12) | st.text(max_size=20))
def test_generated_names(folder, name):
    if not PLAIN.fullmatch(name):
        refused(folder, name)
    else:
        assert os.path.basename(name) == name  # noqa: PTH119 (the name itself is asked about)
        assert (folder / name).parent == folder


def refused(folder, name):
    """Before anything of that name is looked at: the message is that of the name, not of a missing file."""
    (folder / MANIFEST).write_text(manifest_text({name: Entry(4, HASH)}))
    with pytest.raises(CheckpointError, match="which is not a plain file name"):
        verify(folder)


def test_links_in_the_place_of_files(folder, tmp_path):
    """The manifest is right about what the link points to; the link is refused all the same."""
    (tmp_path / "secret").write_bytes((folder / CONFIG).read_bytes())
    (folder / CONFIG).unlink()
    (folder / CONFIG).symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match=r"config\.json must be a regular file"):
        check(folder)


def test_only_what_will_be_read_is_checked(folder):
    path = folder / MODEL
    path.write_bytes(bytes(path.stat().st_size))
    check(folder, read=(CONFIG, STATE))
    check(folder, hashed=False)
    with pytest.raises(CheckpointError, match="SHA-256"):
        check(folder, read=(MODEL,))
    with pytest.raises(CheckpointError, match="SHA-256"):
        check(folder)
    path.unlink()
    check(folder, read=(CONFIG, STATE))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        check(folder, hashed=False)
