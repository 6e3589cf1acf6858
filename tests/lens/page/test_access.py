"""The page for everyone: contrast, names, narrow windows, forced colours, notebooks; and what it weighs."""

import gzip
import struct

import pytest

from glassformer.lens.page.bundle import framed, script, style
from lens.explored import SCREENS, planted

pytestmark = pytest.mark.slow


def hexadecimal(colour):
    """Red, green and blue of "#rrggbb", 0 to 255."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def luminance(parts):
    """WCAG 2.2, relative luminance."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in parts)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ratio(one, two):
    """Of two luminances."""
    return (max(one, two) + 0.05) / (min(one, two) + 0.05)


ON_COLOURS = """async () => {
  const { difference, inkFor, ofLevel, rgb } = modules["colour.js"];
  const levels = Array.from({length: 256}, (_, level) => ofLevel(level));
  const shares = Array.from({length: 201}, (_, i) => difference(i / 100 - 1));
  return [...levels, ...shares].map(colour => [rgb(colour), inkFor(colour)]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_what_is_written_on_maps(watched, shown, scheme):
    """Figures on any level of a map, and on any difference: 4.5 to 1. Lines of charts: 3 to 1 on their card."""
    page = watched(color_scheme=scheme).open(shown[0])
    for ground, ink in page.evaluate(ON_COLOURS):
        parts = [int(each) for each in ground[4:-1].split()]
        assert ratio(luminance(parts), luminance(hexadecimal(ink))) >= 4.5, (ground, ink)
    read = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    card, *lines = page.evaluate(read, ["--card", "--c0", "--c1", "--c2", "--c3", "--accent"])
    for line in lines:
        assert ratio(luminance(hexadecimal(line)), luminance(hexadecimal(card))) >= 3


FOCUS = """() => {
  const each = document.activeElement;
  const style = getComputedStyle(each), box = each.getBoundingClientRect(), bar = document.getElementById("bar");
  const path = [];
  const number = at => [...at.parentElement.children].indexOf(at);
  for (let at = each; at.parentElement; at = at.parentElement) path.unshift(number(at));
  const { right, bottom } = bar.getBoundingClientRect();
  const behind = box.bottom <= bottom && box.left < right;
  return {path, name: each.outerHTML.slice(0, 80),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    hidden: behind && !bar.contains(each) && !each.classList.contains("skip")};
}"""


@pytest.mark.parametrize("width", [1280, 1000])
@pytest.mark.parametrize("screen", ["overview", "attention", "generate", "heads", "parameters"])
def test_focus_is_seen_and_goes_in_order(watched, shown, screen, width):
    """Tab by Tab: a frame of 2 pixels at least, in the order of the document, and never behind the rail or the bar."""
    view = watched()
    view.page.set_viewport_size({"width": width, "height": 860})
    page = view.open(shown[0], screen)
    page.evaluate("() => document.activeElement.blur()")
    assert page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count() == 0
    before = []
    for _ in range(24):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUS)
        if at["path"] == [] or at["path"] < before:
            break  # behind the last one
        assert at["seen"], at["name"]
        assert not at["hidden"], at["name"]
        before = at["path"]
    assert before


SMALL = """() => {
  const kinds = "button, a[href], select, input, textarea, summary, [role=button], [tabindex='0']";
  const inText = each => each.tagName === "A" && each.closest("p, li, h3");
  const shown = [...document.querySelectorAll(kinds)].filter(each => each.checkVisibility() && !inText(each));
  const targets = shown.map(each => {
    const label = each.matches("input[type=checkbox], input[type=range]") && each.closest("label");
    const {left, top, width, height} = (label || each).getBoundingClientRect();
    return {each, left, top, width, height, x: left + width / 2, y: top + height / 2, small: width < 24 || height < 24};
  }).filter(each => each.width > 1);
  const reaches = (one, other) => {
    const dx = Math.max(other.left - one.x, one.x - other.left - other.width, 0);
    const dy = Math.max(other.top - one.y, one.y - other.top - other.height, 0);
    return Math.hypot(dx, dy) < 12 || (other.small && Math.hypot(one.x - other.x, one.y - other.y) < 24);
  };
  return targets.filter(one => one.small && targets.some(other => other !== one && reaches(one, other)))
    .map(one => `${one.width} x ${one.height}: ${one.each.outerHTML.slice(0, 90)}`);
}"""


def test_targets_are_large_enough(opened):
    """WCAG 2.2, 2.5.8: 24 by 24 pixels, or so far from others that a circle of 24 around each reaches no other."""
    for screen in (*SCREENS, "attention?view=arcs"):
        assert opened.go(screen).evaluate(SMALL) == [], screen


MOVING = """() => [...document.querySelectorAll("*")].filter(each => {
  const style = getComputedStyle(each);
  const moves = parseFloat(style.transitionDuration) > 0 || style.animationName !== "none";
  return moves || style.scrollBehavior === "smooth";
}).map(each => each.outerHTML.slice(0, 80))"""


def test_nothing_moves_where_less_motion_is_asked_for(watched, shown):
    view = watched(reduced_motion="reduce")
    page = view.open(shown[0])
    for screen in SCREENS:
        assert view.go(screen).evaluate(MOVING) == [], screen
        assert page.evaluate("() => document.getAnimations().length") == 0


WAYS = {
    "narrow": {"viewport": {"width": 320, "height": 640}},
    "zoomed": {"viewport": {"width": 640, "height": 430}, "device_scale_factor": 2},  # a window of 1280 at 200 %
    "forced": {"forced_colors": "active"},
    "still": {"reduced_motion": "reduce"},
}


CUT = """() => [...document.querySelectorAll("main button, main h2, main p, main label, main dd")].filter(each => {
  const style = getComputedStyle(each);
  const hides = style.overflowX === "hidden" || style.overflowY === "hidden";
  return hides && !each.matches(".thumb, .unseen") && each.scrollWidth > each.clientWidth + 1;
}).map(each => each.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("way", WAYS)
def test_other_ways_of_seeing(watched, shown, way):
    page = watched(**WAYS[way]).open(shown[0])
    for place in (*SCREENS, "attention?view=arcs", "attention?view=table"):
        screen = place.partition("?")[0]
        page.evaluate("place => { location.hash = place; }", place)
        page.wait_for_selector(f"nav a[data-screen={screen}][aria-current]")
        page.wait_for_selector("body:not([data-busy])")
        assert page.evaluate(CUT) == [], f"{place}: text that is cut off"
        wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{screen} is wider than the window"


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


def damaged(data, old, new):
    """A trace's file with something else in its header; the length of the header is told anew."""
    (length,) = struct.unpack("<I", data[4:8])
    header = data[8 : 8 + length].replace(old, new, 1)
    assert header != data[8 : 8 + length]
    return data[:4] + struct.pack("<I", len(header)) + header + data[8 + length :]


DAMAGE = {
    "header.steps[0].rank": (b'"rank":0', b'"rang":0'),
    "special[0]": (b'"special":[false', b'"special":[0    '),
    "top[0][1]": (b'"top":[[', b'"top":[[1,"x"],['),
}


@pytest.mark.parametrize("field", DAMAGE)
def test_a_damaged_trace_is_told_of(opened_with, field):
    made, _ = planted()
    page = opened_with(damaged(made.to_bytes(), *DAMAGE[field])).page
    assert page.get_attribute("body", "data-ready") == "failed"
    assert field in page.text_content("main")


INJECT = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.body.append(script);
  document.body.insertAdjacentHTML("beforeend", "<style>body { opacity: .5 }</style>");
  return [window.ran ?? false, getComputedStyle(document.body).opacity];
}"""


def test_a_file_runs_its_own_script_alone(opened):
    """Its policy names its script and its style by their digests: what came into it otherwise does nothing."""
    assert opened.page.evaluate(INJECT) == [False, "1"]
    assert len(opened.complaints) == 2
    opened.complaints.clear()
    assert "unsafe" not in opened.page.content()


def test_sizes():
    """The page's own weight: 120 kB compressed; an export is no more than the trace and a little."""
    assert len(gzip.compress((script() + style()).encode())) <= 120_000
    made, _ = planted()
    assert len(made.to_html()) <= 1.4 * len(gzip.compress(made.to_bytes())) + 200_000
