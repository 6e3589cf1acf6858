"""Where screens are chosen: a rail at the left of a wide window, a bar on top of a narrow one, both in one order."""

import pytest

from glassformer.lens.ablate import silence
from lens.explored import SCREENS, page_of, planted, small, toy
from lens.page.conftest import METRICS
from lens.page.test_live import PAST

pytestmark = pytest.mark.slow

BOXES = """selector => [...document.querySelectorAll(selector)].map(each => {
  const { x, y, height } = each.getBoundingClientRect();
  return [Math.round(y + height / 2), x];
})"""
SIDES = """() => {
  const [bar, main] = ["#bar", "main"].map(name => document.querySelector(name).getBoundingClientRect());
  const over = document.documentElement.scrollWidth - innerWidth;
  return { right: bar.right, bottom: bar.bottom, tall: bar.height, left: main.left, top: main.top, over };
}"""
FIGURE = "a => getComputedStyle(a, '::after').content"
PRINTED = """() => {
  const look = getComputedStyle(document.querySelector("#bar"));
  return [look.position, parseFloat(look.height) < 150];
}"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A file of two inputs, between which one can choose."""
    return page_of(tmp_path_factory.mktemp("rail"), *[planted()[0]] * 2)


@pytest.fixture
def sized(watched, two):
    """`sized(width, height)`: the page in a window that has this size from the beginning."""

    def make(width, height=800):
        view = watched(viewport={"width": width, "height": height})
        view.open(two)
        return view

    return make


@pytest.mark.parametrize("width", [1100, 1280, 1920])
def test_a_rail_at_the_left_of_a_wide_window(sized, width):
    page = sized(width).go("heads")
    sides = page.evaluate(SIDES)
    assert 180 <= sides["right"] <= 200
    assert sides["left"] >= sides["right"]
    assert (sides["tall"], sides["over"]) == (800, 0)
    page.evaluate("() => scrollTo(0, 1e6)")
    assert page.evaluate("() => scrollY") > 0
    assert abs(page.evaluate("() => document.querySelector('#bar').getBoundingClientRect().top")) < 1


def test_a_bar_on_top_of_a_narrow_one(sized):
    sides = sized(1024).page.evaluate(SIDES)
    assert sides["right"] == 1024
    assert sides["tall"] < 118
    assert sides["top"] >= sides["bottom"]


@pytest.mark.parametrize("width", [1280, 1024, 375])
def test_focus_goes_as_the_eye_does(sized, width):
    """From top to bottom, and from left to right within a line: the input, the screens, help, light or dark."""
    page = sized(width).page
    for selector, many in (("#bar label, #bar nav, .tools", 3), ("#bar nav a", 7), (".tools button", 2)):
        boxes = page.evaluate(BOXES, selector)
        assert len(boxes) == many
        assert boxes == sorted(boxes)


def test_each_screen_has_its_key_beside_it(sized):
    """To be seen, not heard: a link's name is its screen, and its key is told as a key. Not where keys are off."""
    view = sized(1280)
    page = view.page
    links = page.locator("#bar nav a").all()
    assert [each.evaluate(FIGURE)[:3] for each in links] == ['"1"', '"2"', '"3"', '"4"', '"5"', '"6"', '"7"']
    assert page.get_by_role("link", name="Curves", exact=True).count() == 1
    page.keyboard.press("?")
    page.uncheck("#single-keys")
    page.keyboard.press("Escape")
    view.settle()
    assert {each.evaluate(FIGURE)[:2] for each in page.locator("#bar nav a").all()} == {'""'}
    assert page.locator("[aria-keyshortcuts]").count() == 0


def test_a_short_window_scrolls_its_rail(sized):
    page = sized(1280, 300).page
    page.focus("#bar .theme")
    box = page.locator("#bar .theme").bounding_box()
    assert 0 <= box["y"] <= 300 - box["height"]
    assert page.evaluate("() => scrollY") == 0


@pytest.mark.parametrize("width", [1280, 1024, 375])
def test_what_sticks_stands_clear_of_the_bar(sized, width):
    page = sized(width, 500).go("attention")
    page.evaluate("() => scrollTo(0, 300)")
    top = page.evaluate("() => document.querySelector('.side').getBoundingClientRect().top")
    sides = page.evaluate(SIDES)
    scrolled = page.evaluate("() => parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop)")
    if width < 1100:
        assert min(top, scrolled) >= sides["bottom"]
    else:
        assert max(top, scrolled) <= 40


def test_the_open_screen_is_among_those_seen(sized):
    page = sized(375).go("curves")
    box, nav = (page.locator(name).bounding_box() for name in ("#bar nav a[aria-current]", "#bar nav"))
    assert nav["x"] <= box["x"] <= nav["x"] + nav["width"] - box["width"] + 1


def test_no_rail_on_paper(sized):
    page = sized(1280).page
    page.emulate_media(media="print")
    assert page.evaluate(PRINTED) == ["static", True]


# --- No screen scrolls sideways, however long titles are and many heads: in a window of 320 pixels, and in wide ones


WINDOW = {"width": 320, "height": 640}
LONG = [(6 * "abcdefghij")[:size] for size in (60, 59, 60)]
PLACES = (*SCREENS, "attention?view=arcs", "attention?view=table", "attention?other=1", "heads?other=1",
          "generate?other=1", "curves?curves=table")  # fmt: skip
WIDE = """() => {
  const width = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll("body *")].filter(each => each.getBoundingClientRect().right > width + 1
    && !each.closest(".scroll, .unseen, #bar nav, .heads-grid, .steps, option"));
  return document.documentElement.scrollWidth <= width ? [] : out.map(each => each.outerHTML.slice(0, 90));
}"""


def fits(view, places):
    """Each of these screens is as wide as the window."""
    for place in places:
        page = view.go(place)
        page.wait_for_function("screen => location.hash.includes(screen)", arg=place)
        wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (place, page.evaluate(WIDE))


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A file of inputs with long titles, of a model with a long name."""
    traces = [planted(sources=[*(len(text) * "W"), "<eos>"], heads=8)[0] for text in LONG]
    for made in traces:
        made.header["model"] |= {"kind": "encoder-decoder", "params": 123_456_789, "pos": "rotary-with-a-long-name"}
    figures = {"perplexity": 12.5, "bits_per_byte": 1.2, "bits_per_character": 1.25}
    metrics = [*METRICS[:-1], METRICS[-1] | figures]
    facts = {"name": "a-run-with-quite-a-long-name-2026", "metrics": metrics, "history": PAST, "checkpoints": True}
    return page_of(tmp_path_factory.mktemp("narrow"), *traces, **facts)


@pytest.mark.parametrize("width", [320, 1024, 1280])
def test_a_file(watched, copied, width):
    view = watched(viewport=WINDOW | {"width": width})
    view.open(copied)
    fits(view, PLACES)


def test_live(watched, serving):
    with serving(toy(*LONG, model=small(n_heads=8, n_layers=1), silence=silence)) as address:
        view = watched(viewport=WINDOW)
        page = view.open(address)
        fits(view, PLACES)
        view.go("ablations")
        page.check("[data-head='cross 0 1']")
        page.locator("#ablate").click()
        page.locator(".moved-heads").wait_for(timeout=30_000)
        fits(view, ["ablations?out=cross-0-1"])
