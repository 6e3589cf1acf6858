"""Fetching from a server on this machine that cuts, lies and sends elsewhere: the file is right, or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import ssl
from http.client import HTTPResponse
from typing import BinaryIO

import pytest

from data.server import CONTENT, serving
from glassformer.base.errors import ConfigError, DataError, ResourceError
from glassformer.data import catalogue as fetching
from glassformer.data.catalogue import DataFile, check_address, fetch

SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def wanted(address: str) -> DataFile:
    return DataFile("file.txt", address, len(CONTENT), SHA256)


@pytest.mark.parametrize("way", ["well", "says no length"])
def test_a_file_comes_whole(tmp_path, way):
    with serving(way) as server:
        seen = list(fetch(wanted(server.address), tmp_path / "new" / "folder"))
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["file.txt"]
    assert (tmp_path / "new" / "folder" / "file.txt").read_bytes() == CONTENT


def test_a_connection_that_ends_is_taken_up_where_it_ended(tmp_path):
    with serving("cuts") as server:
        list(fetch(wanted(server.address), tmp_path))
        assert server.ranges == [None, "bytes=100000-", "bytes=200000-"]
    assert (tmp_path / "file.txt").read_bytes() == CONTENT


@pytest.mark.parametrize(("way", "requested"), [("well", "bytes=1000-"), ("knows no range", "bytes=1000-")])
def test_a_part_is_gone_on_with(tmp_path, way, requested):
    (tmp_path / "file.txt.part").write_bytes(CONTENT[:1_000])
    with serving(way) as server:
        list(fetch(wanted(server.address), tmp_path))
        assert server.ranges == [requested]
    assert (tmp_path / "file.txt").read_bytes() == CONTENT


@pytest.mark.parametrize("had", [len(CONTENT), len(CONTENT) + 1])
def test_a_part_that_is_whole_asks_for_nothing_and_one_that_is_longer_begins_anew(tmp_path, had):
    (tmp_path / "file.txt.part").write_bytes((CONTENT + b"x")[:had])
    with serving("well") as server:
        list(fetch(wanted(server.address), tmp_path))
        assert server.ranges == ([] if had == len(CONTENT) else [None])
    assert (tmp_path / "file.txt").read_bytes() == CONTENT


@pytest.mark.parametrize(("way", "message", "kept"), [
    ("wrong bytes", "The download is deleted", None),
    ("announces too much", "the server announces 256,001", None),
    ("never ends", "the server sent more", None),
    ("not there", "answers 404", None),
    ("packs", "must be sent uncompressed", None),
    ("http://192.0.2.1/file", "only over https", None),
    ("ftp://127.0.0.1/file", "only over https", None),
    ("begins elsewhere", "the server answers 'bytes 999-255999/256000' to", 1_000),
])  # fmt: skip
def test_a_server_that_sends_something_else(tmp_path, way, message, kept):
    if kept is not None:
        (tmp_path / "file.txt.part").write_bytes(CONTENT[:kept])
    with serving(way) as server, pytest.raises(DataError) as error:
        list(fetch(wanted(server.address), tmp_path))
    assert message in str(error.value)
    assert len(str(error.value)) < 500
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == (
        {} if kept is None else {"file.txt.part": kept}
    )


def test_wrong_bytes_in_a_part_are_deleted_so_that_the_next_try_is_well(tmp_path):
    (tmp_path / "file.txt.part").write_bytes(b"x" * 1_000)
    with serving("well") as server:
        with pytest.raises(DataError, match="The download is deleted"):
            list(fetch(wanted(server.address), tmp_path))
        list(fetch(wanted(server.address), tmp_path))
    assert (tmp_path / "file.txt").read_bytes() == CONTENT


def test_a_redirect_on_this_machine_is_followed(tmp_path):
    with serving("well") as server, serving(server.address) as first:
        list(fetch(wanted(first.address), tmp_path))
    assert (tmp_path / "file.txt").read_bytes() == CONTENT


def test_no_network_is_said_after_a_few_tries_and_leaves_nothing(tmp_path):
    with serving("well") as server:
        address = server.address
    with pytest.raises(DataError, match=r"cannot be reached.* 0 of 256,000 bytes"):
        list(fetch(wanted(address), tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_silent_server_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "SECONDS", 0.05)
    with serving("silent") as server, pytest.raises(DataError, match="timed out"):
        list(fetch(wanted(server.address), tmp_path))


def test_a_full_disk_is_said_and_what_came_is_kept(tmp_path, monkeypatch):
    with serving("well") as server:
        steps = fetch(wanted(server.address), tmp_path)
        next(steps)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(fetching.os, "fsync", full)
        with pytest.raises(ResourceError, match=r"The disk is full: file\.txt has 256,000 bytes"):
            list(steps)
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt.part"]


FAILURES = [
    ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]"),
    OSError(errno.EHOSTUNREACH, "No route to host"),
    OSError(errno.ENETDOWN, "Network is down"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=["ssl", "no route", "down"])
@pytest.mark.parametrize("step", ["begin", "read"], ids=["asked", "amid the bytes"])
def test_a_network_that_fails_is_tried_again(tmp_path, monkeypatch, step, failure):
    well, calls = getattr(HTTPResponse, step), []

    def fails_once(*given: object) -> object:
        calls.append(given)
        if len(calls) == 2 - (step == "begin"):
            raise failure
        return well(*given)

    monkeypatch.setattr(HTTPResponse, step, fails_once)
    with serving("well") as server:
        list(fetch(wanted(server.address), tmp_path))
    assert (tmp_path / "file.txt").read_bytes() == CONTENT
    monkeypatch.setattr(HTTPResponse, step, lambda *_: (_ for _ in ()).throw(failure))
    with serving("well") as server, pytest.raises(DataError, match="cannot be reached"):
        list(fetch(wanted(server.address), tmp_path / "other"))


def test_a_disk_that_is_full_while_bytes_come_is_said(tmp_path, monkeypatch):
    opened = fetching._opened

    class Full:
        """A file on a full disk."""

        def __init__(self, file: BinaryIO) -> None:
            self.file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching, "_opened", lambda part: Full(opened(part)))
    with serving("well") as server:
        with pytest.raises(ResourceError, match=r"The disk is full"):
            list(fetch(wanted(server.address), tmp_path))
        assert len(server.ranges) == 1


def test_two_may_fetch_the_same_file(tmp_path):
    with serving("well") as server:
        first, second = (fetch(wanted(server.address), tmp_path) for _ in range(2))
        next(first), next(second)
        assert (list(first)[-1], list(second)[-1]) == (len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert (tmp_path / "file.txt").read_bytes() == CONTENT


def test_a_part_that_is_taken_away_is_said(tmp_path):
    with serving("well") as server:
        steps = fetch(wanted(server.address), tmp_path)
        next(steps)
        (tmp_path / "file.txt.part").unlink()
        with pytest.raises(DataError, match=r"disappeared while file\.txt was downloaded"):
            list(steps)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_refused_at_the_start(tmp_path):
    (tmp_path / "file.txt").mkdir()
    with serving("well") as server:
        with pytest.raises(ConfigError, match=r"file\.txt must be free .*not a regular file.*Move it away"):
            list(fetch(wanted(server.address), tmp_path))
        assert server.ranges == []


def test_nothing_is_written_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file.txt.part").symlink_to(outside)
    with serving("well") as server, pytest.raises(ConfigError, match="must be a regular file"):
        list(fetch(wanted(server.address), tmp_path / "in"))
    assert outside.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "address",
    ["http://example.org/x", "file:///etc/passwd", "ftp://example.org/x", "http://127.0.0.1.example.org/x", "x", ""],
)
def test_other_ways_than_https_are_refused(address):
    with pytest.raises(DataError, match="https"):
        check_address(address)


@pytest.mark.parametrize(
    "address", ["https://example.org/x", "http://127.0.0.1:80/x", "http://[::1]/x", "http://localhost/x"]
)
def test_https_is_taken_and_this_machine(address):
    check_address(address)


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/x", "..", "."])
def test_a_file_lies_in_the_folder_of_its_set(name):
    with pytest.raises(ConfigError, match="own folder"):
        DataFile(name, "https://example.org/x", 1, SHA256)
