"""What the screens save: named after run and screen, readable by itself, and what is shown."""

import re
import struct
import xml.etree.ElementTree as ET

import pytest

from lens.explored import HOSTILE, SCREENS, page_of, planted
from lens.page.conftest import METRICS, saved, table
from lens.page.test_live import PAST

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"
FACTS = {
    "name": "a run/of mine",
    "metrics": METRICS,
    "checkpoints": True,
    "history": PAST,
    "similar": [[["cross", 0, 1], ["cross", 1, 2], 0.0012]],
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return page_of(tmp_path_factory.mktemp("saved"), planted()[0], **FACTS)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_screen_saves_what_it_shows(watched, address, scheme):
    """Each button gives a file of its kind whose name begins with run and screen; drawings are dark on white."""
    names = []
    for screen in SCREENS:
        view = watched(color_scheme=scheme)  # each its own, as Chromium lets a page save ten files and then waits
        page = view.open(address, screen)
        for button in page.locator("main .exports[aria-label^=Save] button:visible").all():
            kind = button.text_content().lower()
            name, data = saved(page, button)
            assert re.fullmatch(rf"a-run-of-mine-{screen}[\w.-]*\.{kind}", name), name
            names.append(name)
            if kind == "svg":
                picture = ET.fromstring(data)
                ground = picture.find(f"{SVG}rect")
                assert ground.get("fill") == "#ffffff"
                assert float(ground.get("width")) == pytest.approx(float(picture.get("width")))
                assert not list(picture.iter(f"{SVG}foreignObject"))
                assert b"var(--" not in data
                inks = {each.get("fill") for each in picture.iter(f"{SVG}text")}
                assert not any(light(each) for each in inks if each), "ink of the dark theme on white"
            elif kind == "png":
                assert data.startswith(b"\x89PNG")
                assert min(struct.unpack(">II", data[16:24])) > 60
            else:
                rows = table(data)
                assert rows
                assert None not in rows[0]
    assert len(names) == len(set(names))


def light(colour):
    """Whether a colour could not be read on white."""
    parts = re.findall(r"\d+", colour) if colour.startswith("rgb") else []
    return bool(parts) and sum(map(int, parts[:3])) > 550


@pytest.mark.parametrize("screen", [each for each in SCREENS if each != "ablations"])
def test_every_screen_has_a_table(watched, address, screen):
    page = watched().open(address, f"{screen}?view=table&curves=table")
    for summary in page.locator("main summary").all():
        summary.click()
    assert page.locator("main table.plain tbody tr:visible, main table.lens tbody tr:visible").count() > 0


def test_a_saved_chart_says_what_its_lines_are(watched, address):
    """Run and figure above it, and a mark and a name for each line or shape, in its colour."""
    view = watched()
    page = view.open(address, "curves")
    _, data = saved(page, page.locator("main .card .exports button", has_text="SVG").first)
    picture = ET.fromstring(data)
    assert "a run/of mine: loss" in [each.text for each in picture.iter(f"{SVG}text")]
    marks = {
        each.find(f"{SVG}text").text: each.find(f"{SVG}path").get("stroke")
        for each in picture.findall(f"{SVG}g")
        if each.find(f"{SVG}text") is not None and each.find(f"{SVG}path") is not None
    }
    lines = [each.get("stroke") for each in picture.findall(f"{SVG}path")]
    assert [*marks] == ["train", "dev"]
    assert {*marks.values()} == {*lines}
    page = view.go("heads")
    _, data = saved(page, page.locator("main .card .exports button", has_text="SVG").first)
    assert "cross" in [each.text for each in ET.fromstring(data).iter(f"{SVG}text")]


def test_curves_as_a_table(watched, address):
    """Every dev line, training to its last step; the file has all lines."""
    view = watched()
    page = view.open(address, "curves")
    page.locator("button[data-value=table]").click()
    view.settle()
    assert page.locator("main tbody th").all_text_contents() == [str(line["step"]) for line in METRICS]
    assert page.locator("main tbody tr", has_text="dev").locator("td").all_text_contents()[-1] == "0.9"
    _, data = saved(page, page.locator("main .exports button", has_text="CSV"))
    rows = table(data)
    assert [float(row["loss"]) for row in rows] == [line["loss"] for line in METRICS]


def test_roles_over_training_as_a_table(watched, address):
    page = watched().open(address, "heads")
    page.locator("summary", has_text="As a table").click()
    row = page.locator("details tbody tr", has_text="cross 0.2")
    assert row.locator("td").all_text_contents() == ["reversal", "10.0 %", "–", "20.0 %"]
    _, data = saved(page, page.locator("details .exports button"))
    assert table(data)[1] == {"head": "x.0.2", "role": "reversal", "step_10": "0.1", "step_20": "", "step_30": "0.2"}


def test_the_stack_is_saved_as_it_stands(watched, address):
    """A box for each branch: two in an encoder's block, three in a decoder's, and one around each block."""
    page = watched().open(address)
    _, data = saved(page, page.locator(".facts-card .exports button", has_text="SVG"))
    picture = ET.fromstring(data)
    texts = [each.text for each in picture.findall(f"{SVG}text")]
    assert texts.count("cross-attention") == 2
    assert texts.count("feed-forward") == 4
    assert len(picture.findall(f"{SVG}rect")) == 1 + 4 + 2 * 2 + 2 * 3
    _, data = saved(page, page.locator(".facts-card .exports button", has_text="CSV"))
    assert {"fact": "shape", "value": "encoder-decoder"} in table(data)


def test_a_spreadsheet_takes_no_token_for_a_formula(opened_with):
    """Nor does any token break a line or a name of a file."""
    made, _ = planted(sources=("=1+1", 'a"b', "c,d", "<eos>"), targets=("<bos>", "=1+1", "x"))
    page = opened_with(made, name=f"../{HOSTILE[0]}", place="attention?block=cross").page
    name, data = saved(page, page.locator(".exports button", has_text="CSV"))
    assert re.fullmatch(r"[\w.-]+", name)
    assert not name.startswith(".")
    rows = table(data)
    assert {row["key_token"] for row in rows} == {"'=1+1", 'a"b', "c,d", "<eos>"}
    assert len(rows) == 2 * 4
