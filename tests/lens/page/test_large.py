"""Large traces: no more is fetched and drawn than is looked at, and of a long text a part is shown."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.make import Trace
from lens.explored import LETTERS, page_of, planted, toy
from lens.page.conftest import lacks


def words(n):
    """So many tokens of a text."""
    return tuple(f"w{i % 40}" for i in range(n))


@dataclass(frozen=True)
class Given(Subject):
    """A subject that answers every text with one trace."""

    made: Trace | None = None

    def trace(self, *_, **__):
        return self.made


@pytest.fixture(scope="module")
def subject():
    """A trace of 70 source tokens, three layers of two heads."""
    made, _ = planted(words(70), ("<bos>", *words(4)), layers=3, heads=2, encoding="sqrt255")
    return toy("a", kind=Given, made=made)


def test_a_layer_is_fetched_when_it_is_looked_at(watched, served):
    view = watched()
    page = view.open(served)

    def requested():
        return sorted({url.rpartition("/buffer/")[2] for url in view.requested if "/buffer/" in url})

    assert all("layer" in each or each.startswith("t.") for each in requested()), "overview: pictures alone"
    view.requested.clear()
    view.go("attention?block=encoder&layer=1")
    assert requested() == ["a.encoder?layer=1", "t.encoder"] or requested() == ["a.encoder?layer=1"]
    page.locator(".thumb[data-at='2 1']").click()
    view.settle()
    assert "a.encoder?layer=2" in requested()
    assert "a.encoder?layer=0" not in requested()
    view.requested.clear()
    page.locator(".thumb[data-at='1 1']").click()
    view.settle()
    assert not requested(), "what is known is not asked for again"


def test_nothing_is_made_anew_where_the_pointer_goes(opened):
    """Neither the heads nor the map, nor the lines of tokens: frames are moved, and colours set."""
    page = opened.go("attention?block=cross&layer=1&head=2")
    page.evaluate(
        """() => {
          window.made = 0;
          const seen = new MutationObserver(all => { window.made += all.length; });
          for (const name of [".heads-grid", ".map", ".strips", ".controls", "#bar"])
            seen.observe(document.querySelector(name), {childList: true, subtree: true, attributeFilter: ["width"]});
        }"""
    )
    box = page.locator(".map-cells").bounding_box()
    cells = page.evaluate("() => document.querySelector('.map-cells').toDataURL()")
    for i in range(6):
        page.mouse.move(box["x"] + 10 + 31 * i, box["y"] + 8 + 13 * i)
        opened.settle()
    assert page.evaluate("() => window.made") <= 12, "but for the labels of a small map"
    assert page.evaluate("() => document.querySelector('.map-cells').toDataURL()") == cells


PAINTED = """([i, j, cells]) => {
  const canvas = document.querySelector(".map-cells");
  const cell = canvas.width / cells;
  const [r, g, b] = canvas.getContext("2d").getImageData((j + 0.5) * cell, (i + 0.5) * cell, 1, 1).data;
  return `rgb(${r} ${g} ${b})`;
}"""
COLOUR = "level => modules['colour.js'].rgb(modules['colour.js'].ofLevel(level))"


def tip(page, x, y):
    """What is told of the place on the map."""
    page.mouse.move(x, y)
    return page.get_attribute(".map-body", "data-tip")


def test_of_a_long_text_a_part_is_shown(opened_with):
    """700 tokens: 256 a side, where sliders or a click into the picture put them; values are those of the places."""
    made, weights = planted(("a", "<eos>"), ("<bos>", *words(700)), layers=1, heads=1, encoding="u16")
    view = opened_with(made, place="attention?block=decoder&q0=300&k0=100")
    page = view.page
    box = page.locator(".map-body").bounding_box()
    text = tip(page, box["x"] + 2, box["y"] + 2)
    assert " at 300" in text
    assert " at 100:" in text
    assert float(text.rpartition(": ")[2]) == pytest.approx(weights["decoder"][0, 0, 300, 100], abs=1e-4)
    shown = page.evaluate(PAINTED, [3, 5, 256])
    wanted = round(255 * float(weights["decoder"][0, 0, 303, 105]) ** 0.5)
    assert shown in [page.evaluate(COLOUR, wanted + off) for off in (-1, 0, 1)]
    for name, value, key in (("Queries", "444", "q0"), ("Keys", "192", "k0")):
        page.locator(f"[data-range={name}]").evaluate(
            "(each, value) => { each.value = value; each.dispatchEvent(new Event('change')); }", value
        )
        view.settle()
        assert f"{key}={value}" in page.url
    assert page.locator(".ranges output").all_text_contents() == ["444 to 699 of 700", "192 to 447 of 700"]
    small_map = page.locator(".whole-map").bounding_box()
    page.mouse.click(small_map["x"] + 1, small_map["y"] + 1)
    view.settle()
    assert "q0=" not in page.url, "the beginning"
    page.locator(".strip .token").nth(511).wait_for()  # they are written when there is time
    assert page.locator(".strip .token").count() == 512
    for screen in ("overview", "generate", "heads"):
        view.go(screen)


HELD = "() => { window.held = []; window.requestIdleCallback = work => window.held.push(work); }"


def test_what_is_drawn_when_there_is_time_moves_nothing(watched, tmp_path):
    """The sums beside a large map come later than the map: it stays where it is, under a pointer that is there."""
    made, _ = planted(("a", "<eos>"), ("<bos>", *words(100)), layers=1, heads=1, encoding="u16")
    address = page_of(tmp_path, made)
    view = watched()
    view.page.add_init_script(f"({HELD})()")
    page = view.open(f"{address}#attention?block=decoder")
    page.wait_for_selector("body[data-ready]")
    view.settle()
    before = page.locator(".map-body").bounding_box()
    sums = "() => document.querySelector('.map-entropy').toDataURL()"
    empty = page.evaluate(sums)
    while page.evaluate("() => window.held.splice(0).map(work => work()).length"):
        view.settle()
    assert page.evaluate(sums) != empty
    assert page.locator(".map-body").bounding_box() == before


# --- At the limits: beams of very many beginnings, pictures that no browser makes, traces beyond what a page keeps


def test_rows_of_what_is_not_drawn_are_not_kept(opened_with):
    """700 beginnings that came to nothing lie between two answers: two rows are drawn, one below the other."""
    made, _ = planted()
    nodes = [{"token": 0, "parent": -1, "p": 0.5, "log_p": -1.0}]
    nodes += [{"token": 1, "parent": 0, "p": 0.1, "log_p": -2.0 - i} for i in range(700)]
    nodes += [{"token": 2, "parent": 0, "p": 0.1, "log_p": -2.0, "score": -1.0, "rank": 0}]
    nodes += [{"token": 3, "parent": -1, "p": 0.1, "log_p": -2.0, "score": -2.0, "rank": 1}]
    made.header["beams"] = {"width": 2, "nodes": nodes}
    page = opened_with(made, place="generate").page
    boxes = page.locator(".beam-node")
    assert [each.get_attribute("data-place") for each in boxes.all()] == ["0", "701", "702"]
    assert float(page.get_attribute(".beam-tree", "height")) == 2 * 28 + 2 * 6
    assert "3 of 703" in page.text_content(".beams")


def test_a_picture_that_cannot_be_made_is_told_of(opened):
    page = opened.go("curves")
    page.evaluate("() => { HTMLCanvasElement.prototype.toBlob = done => done(null); }")
    page.locator("main .exports button", has_text="PNG").first.click()
    page.wait_for_selector(".exports .message:has-text('Save it as SVG')")


def test_a_page_keeps_eight_traces_and_no_failure(watched, serving):
    with serving(toy(*(LETTERS.decode([5 + i]) for i in range(10)))) as address:
        view = watched()
        page = view.open(address)
        page.wait_for_load_state("networkidle")  # Overview asks for a trace
        view.go("parameters")
        requests = []
        page.on("request", lambda request: requests.append(request.url) if request.url.endswith("/header") else None)
        page.route("**/api/trace/9/header", lambda route: route.abort(), times=1)
        page.evaluate("() => { location.hash = 'parameters?trace=9'; }")
        page.wait_for_selector(".problem")
        view.complaints.clear()
        for trace in (0, 9, *range(1, 9), 1, 9):
            view.go(f"parameters?trace={trace}")
            page.wait_for_selector("h2:has-text('tensors')")
        again = [url.split("/")[-2] for url in requests]
        assert again.count("9") == 3, "it failed, came, and was forgotten"
        assert again.count("1") == 0, "Overview had asked for it"


@pytest.mark.parametrize(("where", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_where_every_push_is_tested(monkeypatch, where, outcome):
    monkeypatch.setenv("CI", where)
    with pytest.raises(outcome, match="no browser"):
        lacks("no browser")


def test_checkpoints_lead_on_and_keep_what_is_chosen(opened_with):
    """From Curves to Heads and Attention, of the same input."""
    metrics = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 101)]
    traces = [planted(sources=(letter, "b", "c", "d", "<eos>"))[0] for letter in "ab"]
    view = opened_with(*traces, metrics=metrics, checkpoints=True, kept=[50])
    page = view.page
    for at, screen in ((".chart .kept", "heads"), (".leads a >> nth=0", "attention"), (".leads a >> nth=1", "heads")):
        view.go("curves?trace=1&other=0&smooth=0")
        page.locator(at).click()
        page.wait_for_function("name => location.hash.startsWith('#' + name)", arg=screen)
        view.settle()
        assert page.url.partition("?")[2] == "trace=1&other=0&smooth=0"
