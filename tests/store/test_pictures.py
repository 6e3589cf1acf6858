"""Pictures and pages: what lies there stays whole, whatever happens while the new one is written."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.lens.trace.make import Page
from glassformer.store.pictures import save_figure


class Figure:
    """Half of a picture, and then an error; or all of it."""

    def __init__(self, breaks: bool = False) -> None:
        self.breaks = breaks

    def savefig(self, file, *, format: str, dpi: int, metadata: object) -> None:
        file.write(f"new {format} ".encode())
        if self.breaks:
            raise OSError(5, "no more")
        file.write(b"whole")


@pytest.fixture(autouse=True)
def _drawn():
    pytest.importorskip("matplotlib")


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "PNG"])
def test_a_picture_is_replaced_whole(tmp_path, kind):
    path = tmp_path / f"curves.{kind}"
    path.write_bytes(b"old")
    assert save_figure(Figure(), path) == path
    assert path.read_bytes() == f"new {kind.lower()} whole".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "curves.png"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no more"):
        save_figure(Figure(breaks=True), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_has_a_known_kind(tmp_path):
    with pytest.raises(ConfigError, match=r"must end in \.png, \.svg or \.pdf"):
        save_figure(Figure(), tmp_path / "curves.txt")


def test_a_page_is_renamed_into_its_place(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    seen: list[str] = []
    sync = "glassformer.store.files.os.fsync"
    monkeypatch.setattr(sync, lambda handle: seen.append(path.read_text()))
    Page("new").save(path)
    assert seen[0] == "old"  # until all of the new one is written
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
