"""Lines of files and streams: what has no end is refused with a bound, what comes through a pipe is read."""

import gzip
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassformer.base.errors import DataError
from glassformer.data import lines
from glassformer.data.lines import OF_A_LINE, bounded_lines, read_lines


class Endless:
    """A stream of one piece over and over; it may not be asked for more than there is room for."""

    def __init__(self, piece: bytes) -> None:
        self.piece, self.given = piece, 0

    def readline(self, size: int = -1, /) -> bytes:
        assert 0 < size <= 2**25
        assert self.given < 2**26, "it is read without end"
        line = self.piece if self.piece.endswith(b"\n") else self.piece * (size // len(self.piece) + 1)
        self.given += len(line[:size])
        return line[:size]


def test_a_line_without_end_is_refused():
    with pytest.raises(DataError, match=r"^x:1: a line may have at most 16,777,216 bytes, but this one is longer"):
        list(bounded_lines(Endless(b"ab"), "x:"))
    with pytest.raises(DataError, match=r"^x:1: byte 1 of the line is NUL"):
        list(bounded_lines(Endless(b"\0"), "x:"))


def test_a_line_may_be_as_long_as_the_bound(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 4)
    for end in (b"", b"\n", b"\r\n"):
        assert list(bounded_lines(io.BytesIO(b"abcd" + end), "x:")) == [b"abcd"]
        with pytest.raises(DataError, match="x:2: a line may have at most 4 bytes"):
            list(bounded_lines(io.BytesIO(b"abcd\nabcde" + end), "x:"))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
def test_a_device_is_not_read_without_end():
    with pytest.raises(DataError, match=r"/dev/zero:1: byte 1 of the line is NUL"):
        read_lines("/dev/zero")
    with pytest.raises(DataError, match="/dev/null: the file is empty"):
        read_lines("/dev/null")


@contextmanager
def fed(*pieces: bytes) -> Iterator[str]:
    """The name of a pipe into which these are written, as a shell's `<(...)` has one."""
    out, into = os.pipe()

    def write() -> None:
        try:
            for piece in pieces:
                os.write(into, piece)
        except BrokenPipeError:
            pass
        finally:
            os.close(into)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield f"/dev/fd/{out}"
    finally:
        os.close(out)
        writer.join()


PIPES = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="there is no /dev/fd here")


@PIPES
def test_a_pipe_is_read_to_its_end():
    for pieces in ((b"a\tb\n", b"c\td\n"), (b"a\tb\nc\td",), (b"\xef", b"\xbb", b"\xbfa\tb\r\nc\td\r\n")):
        with fed(*pieces) as path:
            assert read_lines(path) == ["a\tb", "c\td"]
    packed = gzip.compress(b"a\tb\n", mtime=0) + gzip.compress(b"c\td\n", mtime=0)
    with fed(packed[:1], packed[1:7], packed[7:]) as path:
        assert read_lines(path) == ["a\tb", "c\td"]
    with fed() as path, pytest.raises(DataError, match="the file is empty"):
        read_lines(path)


@PIPES
def test_a_pipe_has_a_bound(monkeypatch, tmp_path):
    monkeypatch.setattr(lines, "MOST_UNSEEN", 3 * (2 + OF_A_LINE))
    with fed(b"ab\nab\nab\n") as path:
        assert read_lines(path) == ["ab"] * 3
    with fed(b"ab\nab\nab\n\n") as path, pytest.raises(DataError, match=r"at most 198 bytes .* after line 3\. .*plain"):
        read_lines(path)
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(b"ab\n" * 9)
    packed.write_bytes(gzip.compress(b"ab\n" * 9))
    assert read_lines(plain) == ["ab"] * 9
    with pytest.raises(DataError, match=r"packed\.gz: a pipe, a device or a gzip file may have at most 198 bytes"):
        read_lines(packed)


def test_a_named_pipe_is_read(tmp_path, named_pipe):
    named_pipe(tmp_path / "fifo", b"a\nb\n")
    assert read_lines(tmp_path / "fifo") == ["a", "b"]


@pytest.fixture
def named_pipe() -> Iterator[Callable[[Path, bytes], None]]:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no named pipes here")
    writers: list[threading.Thread] = []

    def make(path: Path, content: bytes) -> None:
        os.mkfifo(path)
        writers.append(threading.Thread(target=path.write_bytes, args=(content,), daemon=True))
        writers[-1].start()

    yield make
    for each in writers:
        each.join()


@pytest.mark.parametrize(
    "path", ["https://example.org/a/book.txt", str(Path("https://example.org/a/book.txt").absolute())]
)
def test_an_address_is_no_file(path):
    message = r"https://example\.org/a/book\.txt is an address\. Download it first: curl -LO https://example\.org/a/book\.txt$"
    with pytest.raises(DataError, match=message):
        read_lines(path)
