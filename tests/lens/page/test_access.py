"""The page for everyone: contrast, names, narrow windows, forced colours, notebooks; and what it weighs."""

from __future__ import annotations

import gzip

import pytest

from glassformer.lens.page.bundle import framed, resources, standalone
from lens.explored import SCREENS, planted


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(watched, shown, scheme):
    """WCAG 2.2: text 4.5 to 1, marks 3 to 1, against the colours that they stand on."""
    page = watched(color_scheme=scheme).open(shown[0])
    names = ("ink", "quiet", "accent", "mark", "bad", "page", "card", "soft", "accent-soft", "mark-soft")
    read = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim())"
    colours = dict(zip(names, page.evaluate(read, names), strict=True))

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one, two):
        high, low = sorted((light(colours[one]), light(colours[two])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text, ground in [(text, ground) for text in ("ink", "quiet") for ground in ("page", "card", "soft")]:
        assert contrast(text, ground) >= 4.5, (text, ground)
    for text, ground in [
        ("accent", "card"),
        ("accent", "page"),
        ("bad", "card"),
        ("ink", "accent-soft"),
        ("ink", "mark-soft"),
    ]:
        assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast("card", "accent") >= 4.5, "text on a pressed button"
    assert contrast("mark", "card") >= 3


NAMELESS = """() => {
  const kinds = "button, a, select, input, textarea, [role=button], [role=img], svg[role]";
  const named = each => each.textContent.trim() || each.getAttribute("aria-label") || each.closest("label");
  return [...document.querySelectorAll(kinds)].filter(each => !named(each)).map(each => each.outerHTML.slice(0, 90));
}"""


def test_everything_has_a_name(opened):
    for screen in SCREENS:
        page = opened.go(screen)
        assert page.evaluate(NAMELESS) == [], screen
        assert page.locator("main h2").count() > 0


WAYS = {
    "narrow": {"viewport": {"width": 320, "height": 640}},
    "forced": {"forced_colors": "active"},
    "still": {"reduced_motion": "reduce"},
}


@pytest.mark.parametrize("way", WAYS)
def test_other_ways_of_seeing(chromium, shown, way):
    context = chromium.new_context(**WAYS[way])
    page = context.new_page()
    page.goto(shown[0])
    page.wait_for_selector("body[data-ready=yes]")
    for screen in SCREENS:
        page.evaluate("place => { location.hash = place; }", screen)
        page.wait_for_selector(f"nav a[data-screen={screen}][aria-current]")
        wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{screen} is wider than the window"
    context.close()


def test_two_in_frames_of_a_notebook(watched, shown, tmp_path):
    view, made = watched(), shown[1]
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html><body>" + framed(made.to_html()) + made._repr_html_(), "utf-8")
    view.page.goto(path.as_uri())
    frames = view.page.frames[1:]
    assert len(frames) == 2
    for frame in frames:
        frame.wait_for_selector("body[data-ready=yes]")
        frame.locator("nav a[data-screen=attention]").click()
        frame.locator("canvas.map-cells").wait_for()
        assert frame.evaluate("() => origin") == "null", "it reaches nothing of the page around it"
    assert not view.complaints


def test_a_damaged_trace_is_told_of(watched, shown, tmp_path):
    made, _ = planted()
    data = made.to_bytes().replace(b'"rank":0', b'"rang":0', 1)
    path = tmp_path / "damaged.html"
    path.write_text(standalone([data], {"name": "damaged"}), "utf-8")
    page = watched().open(path.as_uri())
    assert page.get_attribute("body", "data-ready") == "failed"
    assert "header.steps[0].rank" in page.text_content("main")


def test_sizes():
    """The page's own weight: 120 kB compressed; an export is no more than the trace and a little."""
    assert len(gzip.compress(b"".join(resources().values()))) <= 120_000
    made, _ = planted()
    assert len(made.to_html()) <= 1.4 * len(gzip.compress(made.to_bytes())) + 200_000
