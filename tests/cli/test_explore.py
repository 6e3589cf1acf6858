"""`glassformer explore`: runs of every kind become a page; what cannot be is refused."""

import base64
import json
import re
import shutil
import struct
import zlib
from itertools import count, takewhile
from pathlib import Path

import pytest

from cli.conftest import TASK, TINY
from glassformer.cli import explore
from glassformer.cli.main import main
from glassformer.lens.roles.roles import Pair
from glassformer.lens.server.subject import HEADS, subject_of
from glassformer.lens.trace.make import from_bytes, weights_sha256
from glassformer.store.checkpoint import load
from glassformer.study.result import Result, write_results

BRIEF = (*TINY, "--training.steps", "2", "--training.evaluate-every", "2", "--checkpoint.every", "2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("explored") / "reverse"
    assert main(["train", "reverse", *BRIEF, *TASK, "--out", str(out)]) == 0
    subject_of(out, lambda line: None)  # what its heads do is found once, and told in whichever test comes first
    return out


PART = r'data-part="([^"]*)">(.*?)</script>'


def traces_of(page: Path):
    """What a page holds: its traces, and what it knows of the run."""
    text = page.read_text("utf-8")
    bundle = json.loads(re.search(r'id="bundle">(.*?)</script>', text)[1])
    run, *headers = (zlib.decompress(base64.b64decode(each)) for each in [bundle["run"], *bundle["traces"]])
    parts = {name: zlib.decompress(base64.b64decode(data)) for name, data in re.findall(PART, text)}
    return [from_bytes(whole(i, header, parts)) for i, header in enumerate(headers)], json.loads(run)


def whole(trace: int, header: bytes, parts: dict[str, bytes]) -> bytes:
    """The file that the pieces of a trace were cut from."""
    data = bytearray(b"GFT1" + struct.pack("<I", len(header)) + header)
    begin = len(data)
    for name, entry in json.loads(header)["buffers"].items():
        layers = (parts.get(f"{trace} {name} {layer}") for layer in count())
        piece = b"".join(takewhile(lambda each: each is not None, layers))
        assert len(piece) == entry["nbytes"]
        data.extend(bytes(begin + entry["offset"] - len(data)) + piece)
    return bytes(data)


def test_a_run_becomes_one_file(trained, run, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.lens.server.subject.EXAMPLES", 1)
    answer = run("explore", str(trained), "--export", "page.html")
    assert answer.code == 0
    assert "page.html" in answer.out
    traces, known = traces_of(tmp_path / "page.html")
    assert len(traces) == 1
    assert known["name"] == "reverse"
    assert [line["step"] for line in known["metrics"] if line["kind"] == "train"] == [1, 2]
    for made in traces:
        gold = made.header["sequences"]["target"]["gold"]
        source = made.header["sequences"]["source"]["ids"][:-1]
        assert [id for id in gold if id is not None][: len(source)] == source[::-1][: len(gold)]
        assert made.header["model"]["step"] == 2
    addresses = set(re.findall(r"https?://[^\s\"'<]+", (tmp_path / "page.html").read_text()))
    assert {each.split("/")[2] for each in addresses} <= {"www.w3.org", "json-schema.org"}, "names of formats alone"


def test_a_file_holds_what_was_asked_for(trained, run, tmp_path, monkeypatch):
    """Two texts and what carries their difference; the roles at each checkpoint; and how much that adds."""
    monkeypatch.setattr("glassformer.lens.server.subject.EXAMPLES", 1)
    words = ("--checkpoints", "--patch", "a b c", "--into", "a b d")
    plain = run("explore", str(trained), "--export", "plain.html")
    answer = run("explore", str(trained), "--export", "page.html", *words)
    assert (plain.code, answer.code) == (0, 0)
    traces, known = traces_of(tmp_path / "page.html")
    assert [made.sources for made in traces[1:]] == [[*"abc", "<eos>"], [*"abd", "<eos>"]]
    assert known["history"]["steps"] == known["kept"] == [2]
    [patching] = known["patches"]
    assert patching["traces"] == ["1", "2"]
    report = json.loads(run("heads", str(trained), "--patch", "a b c", "--into", "a b d", "--json").out)
    assert {each["id"]: each["effect"] for each in patching["heads"]} == pytest.approx(
        {each["id"]: each["effect"] for each in report["heads"]}, abs=1e-5
    )
    added = (tmp_path / "page.html").stat().st_size - (tmp_path / "plain.html").stat().st_size
    assert f"{added / 1e3:.1f} kB of it" in answer.out
    assert "of it" not in plain.out


def test_the_demo_ends_with_a_page(trained, monkeypatch):
    from glassformer.cli.demo import explorer

    monkeypatch.setattr("glassformer.lens.server.subject.EXAMPLES", 1)
    assert f"open {trained}/explorer.html in a browser" in explorer(trained)
    assert len(traces_of(trained / "explorer.html")[0]) == 1


def test_other_runs_and_a_study_stand_beside(trained, tmp_path, capsys):
    """A run in STUDY/runs is one of its arms; what another run measured comes along; none is named twice."""
    arm, page = tmp_path / "depth" / "runs" / "one", tmp_path / "page.html"
    shutil.copytree(trained, arm)
    result = Result(
        {"model.n_layers": 1}, 7, "exact_match", "dev", {"exact_match": 0.5, "n": 9}, {}, None, [], 3, 2, 1.5, "0a"
    )
    write_results([result], arm.parent.parent / "results.jsonl")
    assert main(["explore", str(arm), str(trained), "--export", str(page)]) == 0
    _, run = traces_of(page)
    arms = [{"values": {"model.n_layers": 1}, "seed": 7, "figure": 0.5, "seconds": 1.5, "data": "0a"}]
    assert run["study"] == {
        "name": "depth",
        "metric": "exact_match",
        "share": True,
        "split": "dev",
        "n": 9,
        "arms": arms,
    }
    assert [each["name"] for each in run["beside"]] == run["others"] == ["reverse"]
    assert run["beside"][0]["metrics"] == run["metrics"]
    assert "tokens_per_second" in run["metrics"][0]
    assert explore.study_of(trained) is None
    before = {name: each for name, each in json.loads(result.as_json()).items() if name != "split"}
    (arm.parent.parent / "results.jsonl").write_text(json.dumps(before), "utf-8")
    assert explore.study_of(arm)["split"] == "test"
    assert main(["explore", str(arm), str(arm), "--export", str(page)]) == 2
    assert "named twice" in capsys.readouterr().err


def test_the_heads_are_found_out_once(trained, monkeypatch):
    class Diagnosis:
        sentences = ("It reverses.",)
        pairs = (Pair(("cross", 0, 0), ("cross", 0, 1), 0.0123456),)

        def to_json(self):
            return [{"id": "x.0.1", "block": "cross", "layer": 0, "head": 1}]

    requests = []
    monkeypatch.setattr("glassformer.lens.server.subject.diagnose_run", lambda run: requests.append(run) or Diagnosis())
    (trained / HEADS).unlink(missing_ok=True)
    subject = subject_of(trained)
    assert subject.sentences == ["It reverses."]
    assert subject.trace("a b").header["heads"] == subject.heads
    assert subject_of(trained).heads == subject.heads
    assert subject_of(trained).facts()["similar"] == [[["cross", 0, 0], ["cross", 0, 1], 0.01235]]
    assert len(requests) == 1
    kept = json.loads((trained / HEADS).read_text())
    assert kept["weights_sha256"] == weights_sha256(load(trained).model)
    (trained / HEADS).write_text(json.dumps(kept | {"weights_sha256": "of other weights"}))
    assert subject_of(trained).sentences == ["It reverses."]
    assert len(requests) == 2
    del kept["similar"]
    (trained / HEADS).write_text(json.dumps(kept))
    assert subject_of(trained).similar, "what an older version did not look for is looked for"
    assert len(requests) == 3

    def full(*_):
        raise OSError("the disk is full")

    seen = []
    (trained / HEADS).unlink()
    monkeypatch.setattr("glassformer.lens.server.subject.write_text_atomically", full)
    assert subject_of(trained, seen.append).sentences == ["It reverses."]
    assert seen[-1] == "The analysis of the heads could not be saved: the disk is full"


def test_data_that_are_gone_cost_the_examples(trained, monkeypatch):
    from glassformer.base.errors import DataError

    def removed(*_):
        raise DataError("dev.tsv is not there.")

    seen = []
    monkeypatch.setattr("glassformer.lens.server.subject.dev_split", removed)
    subject = subject_of(trained, seen.append)
    assert "dev.tsv is not there" in seen[0]
    assert subject.trace(*subject.examples[0]).header["attention"]


def test_the_page_is_served(trained, run, monkeypatch):
    class Server:
        def run(self, sockets):
            served.append(sockets[0].getsockname())
            raise KeyboardInterrupt

    served, opened = [], []
    monkeypatch.setattr("glassformer.lens.server.app.make_server", lambda app, end: Server())
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("glassformer.lens.server.app.make_app", lambda subject, token: None)
    answer = run("explore", str(trained), "--port", "0")
    assert answer.code == 0
    [(host, port)] = served
    assert host == "127.0.0.1"
    [address] = opened
    assert re.fullmatch(rf"http://127\.0\.0\.1:{port}/#token=[\w-]{{22}}", address)
    assert address in answer.out
    run("explore", str(trained), "--port", "0", "--no-open")
    assert len(opened) == 1


@pytest.mark.parametrize(("words", "parts"), [
    (["--port", "70000"], ["--port", "65535"]),
    (["--port", "-1"], ["--port"]),
    (["--export", "."], ["--export", "is a folder"]),
    (["--export", "none/page.html"], ["none", "not a folder"]),
    (["--export", "corpus.txt"], ["corpus.txt", "Try --export corpus.html"]),
    (["--checkpoints"], ["--checkpoints", "--export"]),
    (["--patch", "a b", "--into", "a c"], ["--patch", "--export"]),
    (["--export", "page.html", "--patch", "a b"], ["--into", "both"]),
    (["--export", "page.html", "--patch", "a b", "--into", "a"], ["same number of tokens"]),
    (["--export", "page.html", "--no-open"], ["--export", "--no-open"]),
    (["--export", "page.html", "--port", "1"], ["--export", "--port"]),
], ids=" ".join)  # fmt: skip
def test_wrong_words_are_refused(trained, refused, words, parts):
    message = refused("explore", str(trained), *words)
    assert all(part in message for part in parts)


def test_a_file_that_is_no_page_of_ours_stays(trained, refused, run, monkeypatch):
    monkeypatch.setattr("glassformer.lens.server.subject.EXAMPLES", 1)
    Path("page.html").write_text("<!doctype html>\n<title>My thesis</title>")
    assert "page.html is another file" in refused("explore", str(trained), "--export", "page.html")
    assert Path("page.html").read_text().endswith("My thesis</title>")
    Path("page.html").unlink()
    for _ in range(2):
        assert run("explore", str(trained), "--export", "page.html").code == 0


def test_without_the_packages(trained, refused, monkeypatch):
    monkeypatch.setattr(explore, "find_spec", lambda name: None)
    message = refused("explore", str(trained))
    assert "starlette" in message
    assert "pip install 'starlette" in message


KINDS = {
    "encoder": ("reverse", *TASK, "--data.layout", "encoder"),
    "decoder": ("lm", "--data.text", "text.txt", "--data.window", "16"),
    "masked": ("mlm", "--data.text", "text.txt", "--data.window", "16"),
    "denoise": ("denoise", "--data.text", "text.txt", "--data.window", "16"),
    "labels": ("classify", "--data.train", "train.tsv", "--data.dev", "train.tsv"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_runs_of_every_kind(kind, run):
    Path("text.txt").write_text("the cat sat on the mat and the dog sat on the log\n" * 60)
    Path("train.tsv").write_text("".join(f"a good day {i}\tgood\na bad day {i}\tbad\n" for i in range(30)))
    name, *words = KINDS[kind]
    assert run("train", name, *BRIEF, *words, "--out", "run").code == 0
    answer = run("explore", "run", "--export", "page.html")
    assert answer.code == 0, answer.err
    traces, _ = traces_of(Path("page.html"))
    assert traces
    for made in traces:
        assert made.header["attention"]
        assert made.header.get("labels") if kind == "labels" else made.header["steps"]
