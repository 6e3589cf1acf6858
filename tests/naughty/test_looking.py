"""Naughty strings in what looks at a model: the explorer shows each as text, on a page that runs nothing of theirs."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from glassformer import trace
from glassformer.cli.heads import traced
from glassformer.data.tokenizer import ByteTokenizer
from glassformer.lens.page.bundle import standalone
from glassformer.lens.server.app import make_app
from glassformer.lens.server.subject import Subject, layout_of
from glassformer.lens.trace.make import from_bytes
from glassformer.store.checkpoint import load
from glassformer.train.recipe import load_recipe
from lens.server.requests_of import TOKEN, ask

RUNS = ("writer_run", "answering_run", "labelling_run")
SOME = pytest.mark.parametrize("step", [60, pytest.param(1, marks=pytest.mark.slow)])
"""A trace holds all that a model computed, so that a push makes some."""
BYTES = ByteTokenizer()
PART = re.compile(r'<script type="text/plain" data-part="[^"<>]*">[A-Za-z0-9+/=]*</script>')
PACKED = re.compile(r"[A-Za-z0-9+/=]{60,}")
SCRIPT = "</script><script>alert(123)</script>"


@pytest.fixture(params=RUNS)
def folder(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def subject(folder: Path, examples: Sequence[str] = ()) -> Subject:
    """What the explorer shows of a run whose heads nobody has examined."""
    loaded = load(folder)
    layout = layout_of(load_recipe(folder / "recipe.toml"), loaded.tokenizers)
    return Subject(folder.name, loaded.model, loaded.tokenizers, layout, [(each, None) for each in examples])


def test_no_other_field_takes_a_string_for_what_it_is_not(writer_run, strings):
    app = make_app(subject(writer_run), TOKEN)
    for each in strings[::3]:
        for path, body in (
            ("/api/trace", {"trace": each}),
            ("/api/trace", {"ids": each}),
            ("/api/trace", {"text": "a", each: 1}),
            ("/api/trace", {"text": "a", "decode": {"beam": each}}),
            ("/api/patch", {"trace": each, "other": each}),
            ("/api/ablate", {"trace": each, "heads": [{"block": each, "layer": 0, "head": 0}]}),
        ):
            heard = ask(app, "POST", path, json.dumps(body).encode())
            assert heard.status == 400, (path, body)
            assert heard.json["error"]


@SOME
def test_the_explorer_shows_a_string_as_the_model_reads_it(step, folder, texts):
    app = make_app(subject(folder), TOKEN)
    for each in texts[::step]:
        heard = ask(app, "POST", "/api/trace", json.dumps({"text": each}).encode())
        assert heard.status == 200, heard.json
        sequences = from_bytes(ask(app, "GET", f"/api/trace/{heard.json['id']}").body).header["sequences"]
        side = sequences.get("source") or sequences["target"]
        ids = BYTES.encode(each)
        read = [id for id, special in zip(side["ids"], side["special"], strict=True) if not special]
        assert read[: len(ids)] == ids
        shown = [text for text, special in zip(side["text"], side["special"], strict=True) if not special]
        assert shown[: len(ids)] == BYTES.tokens(ids)


def bare(page: str) -> str:
    """A page without its packed data."""
    return PACKED.sub("", PART.sub("", page))


def test_a_page_in_a_file_holds_nothing_of_a_string_but_packed(texts, answering_run):
    """Neither from a text, nor from an answer, nor from the name of the run or of a metric."""
    shown = subject(answering_run)
    short = [each for each in texts if len(each) < 60][::25]

    def page(texts: Sequence[str], names: Sequence[str]) -> str:
        made = [trace(shown.model, shown.tokenizers, text, gold=text) for text in texts]
        facts = shown.facts() | {"name": " ".join(names), "samples": list(names), "metrics": [{"kind": names[0]}]}
        return standalone([each.to_bytes() for each in made], facts)

    assert bare(page(short, texts)) == bare(page(["a"] * len(short), ["a"]))


@pytest.mark.slow
def test_a_page_of_two_strings_holds_neither(answering_run, run):
    """The analysis of the heads, which the first page of a run needs, takes a while."""
    texts = [f"--patch={SCRIPT}", f"--into={SCRIPT.replace('1', '4')}"]  # as many tokens
    answer = run("explore", str(answering_run), "--export", "page.html", *texts)
    assert answer.code == 0, answer.err
    page = Path("page.html").read_text("utf-8")
    assert PART.search(page)
    assert "alert" not in bare(page)


@pytest.mark.parametrize("name", RUNS[:2])
def test_heads_are_examined_for_a_string(name, texts, run, request):
    folder = request.getfixturevalue(name)
    short = [each for each in texts if len(each) < 40]
    _, made = traced(folder, *short[::30])
    for each, one in zip(short[::30], made, strict=True):
        sequences = one.header["sequences"]
        side = sequences.get("source") or sequences["target"]
        assert BYTES.encode(each) == [id for id in side["ids"] if id in BYTES.encode(each)][: len(BYTES.encode(each))]
    for each in short[::60]:
        answer = run("heads", str(folder), f"--attribute={each}", "--json")
        assert answer.code == 0, answer.err
        assert json.loads(answer.out)["terms"]
        answer = run("heads", str(folder), f"--patch={each}", f"--into={short[1]}", "--json")
        assert answer.code in (0, 2), answer.err
        assert answer.code == 0 or re.match(r"glassformer: .*\n\Z", answer.err)


def test_the_doctor_finds_strings_whole(folder, run):
    answer = run("doctor", str(folder), "--json")
    assert answer.code in (0, 3), answer.err  # 3: the same strings are train and dev
    found = {each["probe"]: each["state"] for each in json.loads(answer.out)["findings"]}
    assert (found["round-trip"], found["data"]) == ("ok", "ok")
