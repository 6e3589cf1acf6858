"""Which files a folder of texts holds where links lead about in it: each once, and no way without end."""

from pathlib import Path

import pytest

from glassformer.base.errors import DataError
from glassformer.data.running.text import stamps, text_files


def shelves(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / f"of {name[-1]}.txt").write_text(name)


def names(root: Path) -> list[str]:
    return [str(each.relative_to(root)) for each in text_files(root)]


def test_a_folder_that_is_linked_to_is_read_once(tmp_path):
    shelves(tmp_path, "b", "b/c")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "d").symlink_to(tmp_path / "b" / "c")
    assert names(tmp_path) == ["a/c/of c.txt", "a/of b.txt"]


def test_a_file_that_is_linked_to_is_read_once(tmp_path):
    """Wherever the link stands, and however often it leads there; files of one content are two."""
    shelves(tmp_path, "in/b", "in/c", "out")
    (tmp_path / "in" / "c" / "of d.txt").write_text("in/c")
    for name in ("b/again", "c/of a.txt", "z"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "in" / "b" / "of b.txt")
    for name in ("d", "e"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "out" / "of t.txt")
    assert names(tmp_path / "in") == ["b/again", "c/of c.txt", "c/of d.txt", "d"]
    (tmp_path / "way").symlink_to(tmp_path / "in")
    assert names(tmp_path / "way") == names(tmp_path / "in")


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    shelves(tmp_path, "a")
    for name, to in (("gone", "nothing"), ("round", "round")):
        (link := tmp_path / "a" / name).symlink_to(to)
        with pytest.raises(DataError, match=rf"a/{name}.*(no such file|cannot be read)"):
            stamps(tmp_path)
        link.unlink()


def test_a_link_out_of_the_folder_is_followed(tmp_path):
    shelves(tmp_path / "in", "a")
    shelves(tmp_path / "out", "b")
    (tmp_path / "in" / "z").symlink_to(tmp_path / "out" / "b")
    assert names(tmp_path / "in") == ["a/of a.txt", "z/of b.txt"]


def test_folders_that_link_to_each_other_are_without_end(tmp_path):
    shelves(tmp_path, "a", "b")
    (tmp_path / "a" / "to b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to a").symlink_to(tmp_path / "a")
    with pytest.raises(DataError, match=r"a/to b/to a leads back to a folder that contains it.*Remove this link"):
        text_files(tmp_path)


@pytest.mark.parametrize("to", [".", "..", "../.."])
def test_a_link_to_a_folder_that_it_lies_in_is_without_end(to, tmp_path):
    shelves(tmp_path, "root/a")
    (tmp_path / "root" / "a" / "back").symlink_to(to)
    with pytest.raises(DataError, match=r"a/back leads back"):
        text_files(tmp_path / "root")
