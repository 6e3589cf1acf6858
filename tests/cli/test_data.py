"""`glassformer data`: what is listed, shown and fetched, and what a mistake is told."""

import hashlib
import json
from pathlib import Path

import pytest

from data.server import CONTENT, serving
from glassformer.data import catalogue as names
from glassformer.data.catalogue import DataFile, DataSet, Measured, catalogue

SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def one(monkeypatch):
    """A catalogue of one set, whose files a server on this machine has."""
    with serving("well") as server:
        files = tuple(DataFile(name, server.address, len(CONTENT), SHA256) for name in ("a.txt", "b.txt"))
        recipes = (
            Measured("short", "1.9 (1.8–2.0) nats", ("glassformer train lm --data.text {folder}/a.txt",)),
            Measured("long", "1.5 nats", ("for n in 1 2; do\n    echo $n\ndone", "cat {folder}/a.txt | wc")),
        )
        found = DataSet("plays", "Some plays", "free", "Anon, 1600", recipes, files)
        # The verb first: where this imports it, it must find the real catalogue, which it would keep.
        for module in ("glassformer.cli.data", "glassformer.data.catalogue"):
            monkeypatch.setattr(f"{module}.catalogue", lambda: {"plays": found})
        yield server


def test_list(run, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", "sets")
    answer = run("data", "list")
    first, *lines = answer.out.splitlines()
    assert (answer.code, first.split()[1]) == (0, "sets")
    assert [line.split()[0] for line in lines] == list(catalogue())
    assert "0/9 files here" in lines[2]
    report = json.loads(run("data", "list", "--json").out)
    assert [each["name"] for each in report["sets"]] == list(catalogue())


def test_show(run, one):
    out = run("data", "show", "plays", "--data-dir", "my sets").out
    for fact in ("Licence: free", "Anon, 1600", "missing", SHA256, one.address, "--data.text 'my sets/plays'/a.txt"):
        assert fact in out
    report = json.loads(run("data", "show", "plays", "--json").out)
    assert [file["state"] for file in report["files"]] == ["missing", "missing"]
    assert one.ranges == []


@pytest.mark.parametrize("verb", ["show", "fetch"])
def test_each_recipe_is_told_with_what_to_expect_and_its_commands(run, one, verb):
    out = run("data", verb, "plays", "--data-dir", "sets").out.partition("commands for it:\n\n")[2]
    assert out == (
        "short\nExpected: 1.9 (1.8–2.0) nats\n  glassformer train lm --data.text sets/plays/a.txt\n\n"
        "long\nExpected: 1.5 nats\n  for n in 1 2; do\n      echo $n\n  done\n  cat sets/plays/a.txt | wc\n"
    )
    report = json.loads(run("data", "show", "plays", "--data-dir", "sets", "--json").out)["recipes"]
    assert [each["name"] for each in report] == ["short", "long"]
    assert report[1]["expected"] == "1.5 nats"
    assert report[1]["steps"] == ["for n in 1 2; do\n    echo $n\ndone", "cat sets/plays/a.txt | wc"]


def test_fetch_gets_what_is_not_there(run, one):
    Path("sets/plays").mkdir(parents=True)
    Path("sets/plays/a.txt").write_bytes(CONTENT)
    report = json.loads(run("data", "fetch", "plays", "--data-dir", "sets", "--json").out)
    assert report["fetched"] == ["b.txt"]
    assert [file["state"] for file in report["files"]] == ["here", "here"]
    assert len(one.ranges) == 1
    again = run("data", "fetch", "plays", "--data-dir", "sets")
    assert "all 2 files are in sets/plays, 0 of them new" in again.out
    assert len(one.ranges) == 1


def test_a_packed_file_is_named_as_it_lies(run, one):
    Path("plays").mkdir()
    Path("plays/a.txt.gz").touch()
    out = run("data", "show", "plays", "--data-dir", ".").out
    assert "--data.text plays/a.txt.gz\n" in out
    assert "cat plays/a.txt.gz | wc\n" in out


@pytest.mark.parametrize("name", ["b.txt", "b.txt.gz"])
def test_a_file_of_the_users_stays(refused, one, name):
    path = Path("sets/plays", name)
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    assert f"{path} exists, but its content differs" in refused("data", "fetch", "plays", "--data-dir", "sets")
    assert path.read_text() == "mine"
    assert one.ranges == []


def test_a_folder_of_a_files_name_stays(refused, one):
    Path("sets/plays/b.txt").mkdir(parents=True)
    assert "sets/plays/b.txt exists, but it is not a file. Move it away" in refused(
        "data", "fetch", "plays", "--data-dir", "sets"
    )
    assert one.ranges == []


@pytest.mark.parametrize("folder", ["notes.txt", "notes.txt/sets"])
def test_a_file_is_no_folder_for_data(refused, one, folder):
    Path("notes.txt").write_text("mine")
    message = refused("data", "fetch", "plays", "--data-dir", folder)
    assert "notes.txt is a file. Choose another folder with --data-dir." in message
    assert one.ranges == []


def test_too_small_a_disk_is_said_before(refused, one, monkeypatch):
    monkeypatch.setattr("glassformer.cli.data.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1_000}))
    assert "The files need 512,000 bytes" in refused("data", "fetch", "plays", "--data-dir", "sets", code=5)
    assert one.ranges == []


@pytest.mark.parametrize(("words", "message"), [
    ((), "needs list, show NAME or fetch NAME"),
    (("lst",), "Did you mean 'list'?"),
    (("list", "scan"), "takes no name; got 'scan'"),
    (("show",), "`glassformer data show` needs the name of a data set: tinyshakespeare"),
    (("fetch", "scann"), "Did you mean 'scan'?"),
    (("fetch", "scan", "trec"), "takes no further argument; got 'trec'"),
    (("list", "--data-dir", ""), "--data-dir must be the folder"),
])  # fmt: skip
def test_mistakes(refused, words, message):
    assert message in refused("data", *words)


def test_the_real_catalogue_is_the_default():
    assert names.catalogue() is catalogue()
