"""Large traces: no more is fetched and drawn than is looked at, and of a long text a part is shown."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from glassformer.data.dataset import Tokenizers
from glassformer.lens.page.bundle import standalone
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.make import Trace
from lens.explored import LETTERS, planted, small


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
def served(serving):
    """The address of a server with a trace of 70 source tokens, three layers of two heads; its token."""
    made, _ = planted(words(70), ("<bos>", *words(4)), layers=3, heads=2, encoding="sqrt255")
    subject = Given("given", small(n_layers=1), Tokenizers(LETTERS, LETTERS), examples=[("a", None)], made=made)
    with serving(subject) as address:
        yield address


def test_a_layer_is_fetched_when_it_is_looked_at(watched, served):
    view = watched()
    page = view.open(served)

    def asked():
        return sorted({url.rpartition("/buffer/")[2] for url in view.asked if "/buffer/" in url})

    assert all("layer" in each or each.startswith("t.") for each in asked()), "overview: pictures alone"
    view.asked.clear()
    view.go("attention?block=encoder&layer=1")
    assert asked() == ["a.encoder?layer=1", "t.encoder"] or asked() == ["a.encoder?layer=1"]
    page.locator(".thumb[data-at='2 1']").click()
    view.settle()
    assert "a.encoder?layer=2" in asked()
    assert "a.encoder?layer=0" not in asked()
    view.asked.clear()
    page.locator(".thumb[data-at='1 1']").click()
    view.settle()
    assert not asked(), "what is known is not asked for again"


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


def test_of_a_long_text_a_part_is_shown(watched, tmp_path):
    """700 tokens: 256 a side, where sliders or a click into the picture put them; values are those of the places."""
    made, weights = planted(("a", "<eos>"), ("<bos>", *words(700)), layers=1, heads=1, encoding="u16")
    path = tmp_path / "long.html"
    path.write_text(standalone([made.to_bytes()], {"name": "long"}), "utf-8")
    view = watched()
    page = view.open(f"{path.as_uri()}#attention?block=decoder&q0=300&k0=100")
    box = page.locator(".map-body").bounding_box()
    told = tip(page, box["x"] + 2, box["y"] + 2)
    assert " at 300" in told
    assert " at 100:" in told
    assert float(told.rpartition(": ")[2]) == pytest.approx(weights["decoder"][0, 0, 300, 100], abs=1e-4)
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
    assert not view.complaints


HELD = "() => { window.held = []; window.requestIdleCallback = work => window.held.push(work); }"


def test_what_is_drawn_when_there_is_time_moves_nothing(watched, tmp_path):
    """The sums beside a large map come later than the map: it stays where it is, under a pointer that is there."""
    made, _ = planted(("a", "<eos>"), ("<bos>", *words(100)), layers=1, heads=1, encoding="u16")
    path = tmp_path / "late.html"
    path.write_text(standalone([made.to_bytes()], {"name": "late"}), "utf-8")
    view = watched()
    view.page.add_init_script(f"({HELD})()")
    page = view.open(f"{path.as_uri()}#attention?block=decoder")
    page.wait_for_selector("body[data-ready]")
    view.settle()
    before = page.locator(".map-body").bounding_box()
    sums = "() => document.querySelector('.map-entropy').toDataURL()"
    empty = page.evaluate(sums)
    while page.evaluate("() => window.held.splice(0).map(work => work()).length"):
        view.settle()
    assert page.evaluate(sums) != empty
    assert page.locator(".map-body").bounding_box() == before


@pytest.mark.slow
def test_four_thousand_tokens(watched, tmp_path):
    made, weights = planted(("a", "<eos>"), ("<bos>", *words(4000)), layers=1, heads=1, encoding="sqrt255")
    path = tmp_path / "longest.html"
    path.write_text(standalone([made.to_bytes()], {"name": "longest"}), "utf-8")
    view = watched()
    view.page.set_default_timeout(60_000)
    page = view.open(f"{path.as_uri()}#attention?block=decoder&q0=3744&k0=3744")
    page.locator(".whole-map").wait_for()
    box = page.locator(".map-body").bounding_box()
    told = tip(page, box["x"] + 2, box["y"] + 2)
    assert " at 3744" in told
    assert float(told.rpartition(": ")[2]) == pytest.approx(weights["decoder"][0, 0, 3744, 3744], abs=1 / 255)
    assert not view.complaints
