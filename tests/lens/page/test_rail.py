"""Where screens are chosen: a rail at the left of a wide window, a bar on top of a narrow one, both in one order."""

import pytest

from lens.explored import page_of, planted

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
    return page_of(tmp_path_factory.mktemp("rail"), [planted()[0].to_bytes()] * 2, {"name": "two inputs"})


@pytest.fixture
def sized(watched, two):
    """`sized(width, height)`: the page in a window that has this size from the beginning."""

    def make(width, height=800):
        view = watched()
        view.page.set_viewport_size({"width": width, "height": height})
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
