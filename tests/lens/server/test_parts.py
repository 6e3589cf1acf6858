"""A trace in parts, and two traces against each other, as the server gives them."""

import json
import re

import pytest

from glassformer.lens.page.bundle import FIRST, IMPORT, resources, script, served, static
from glassformer.lens.trace.make import from_bytes, patch_traces, patching_as_json
from lens.server.requests_of import MODEL, ask


def test_a_trace_in_parts_is_the_whole_one(app):
    """Header, and buffers, whole or a layer at a time: what the container has."""
    whole = from_bytes(ask(app, "GET", "/api/trace/0").body)
    told = ask(app, "GET", "/api/trace/0/header").json
    assert told == whole.header
    for name, (_, stored) in whole.buffers.items():
        assert ask(app, "GET", f"/api/trace/0/buffer/{name}").body == stored.tobytes()
    for group in told["attention"]:
        parts = [
            ask(app, "GET", f"/api/trace/0/buffer/{group['buffer']}?layer={i}").body for i in range(group["layers"])
        ]
        assert b"".join(parts) == whole.buffers[group["buffer"]][1].tobytes()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("9/header", 404),
        ("9/buffer/a.cross", 404),
        ("0/buffer/a.nothing", 404),
        ("0/buffer/..%2fa.cross", 404),
        ("0/buffer/a.cross?layer=9", 400),
        ("0/buffer/a.cross?layer=-1", 400),
        ("0/buffer/a.cross?layer=x", 400),
        ("0/buffer/a.cross?layer=", 400),
    ],
)
def test_a_part_that_is_not_there(app, path, status):
    assert ask(app, "GET", f"/api/trace/{path}").status == status


def test_all_modules_come_in_one_answer():
    """The page asks for one script and one style; the script has every module, before those that import it."""
    page, joined = served(), script()
    assert sorted(re.findall(r'(?:src|href)="(/[^"]+)"', page)) == [f"/static/{name}" for name in sorted(static())]
    places = {name: joined.find(f'modules["{name}"] = ') for name in resources() if name.endswith(".js")}
    assert [name for name, place in places.items() if place < 0] == []
    assert max(places, key=lambda name: places[name]) == FIRST
    for name, place in places.items():
        for _, imported in IMPORT.findall(resources()[name].decode()):
            assert places[imported] < place, f"{name} imports {imported}"


def test_nothing_is_left_of_imports_and_exports():
    """All are in the one form that is taken apart; a module's own names stay its own."""
    assert not re.findall(r"^\s*(?:import|export)\b.*", script(), re.MULTILINE)
    assert "</" not in script(), "it would end the script of a page in one file"
    assert script().count("\nconst ") - script().count("\nconst {") > 20
    assert re.search(r"^return \{.*\bhatching\b.*\};$", script(), re.MULTILINE)


def test_a_patch_is_that_of_python(app):
    ids = [ask(app, "POST", "/api/trace", json.dumps({"text": text}).encode()).json["id"] for text in ("abc", "abd")]
    told = ask(app, "POST", "/api/patch", json.dumps(dict(zip(("trace", "other"), ids, strict=True))).encode()).json
    made = [from_bytes(ask(app, "GET", f"/api/trace/{name}").body) for name in ids]
    expected = patching_as_json(patch_traces(MODEL, *made))
    assert told["streams"][0]["effects"][0] == pytest.approx([0, 0, 1, 0], abs=1e-4)
    assert told["one"] == pytest.approx(expected["one"], abs=1e-5)
    assert {each["id"]: each["effect"] for each in told["heads"]} == pytest.approx(
        {each["id"]: each["effect"] for each in expected["heads"]}, abs=1e-4
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"trace": "0"}, "other must be the id"),
        ({"trace": "0", "other": 1}, "other must be the id"),
        ({"trace": "0", "other": "99"}, "no such trace"),
        ({"trace": "0", "other": "1"}, "same number of tokens"),
        ({"trace": "0", "other": "1", "heads": []}, "heads is not a field"),
    ],
)
def test_patches_that_cannot_be(app, body, words):
    answer = ask(app, "POST", "/api/patch", json.dumps(body).encode())
    assert answer.status == 400
    assert words in answer.json["error"]
