"""What is drawn anew is found as it was left: scrolled to where it was, and under the same keys."""

import pytest

from lens.explored import page_of, planted

SCROLLED = "() => [...document.querySelectorAll('.detail .scroll')].map(each => each.scrollLeft)"


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Two inputs of 200 tokens, whose maps and arcs are wider than their room."""
    source = [f"a long word {i}" for i in range(199)]
    traces = [
        planted((first, *source), ("<bos>", "a", "b"), layers=1, heads=1, encoding="sqrt255")[0] for first in "ab"
    ]
    return page_of(tmp_path_factory.mktemp("redrawn"), [each.to_bytes() for each in traces], {"name": "long"})


@pytest.mark.parametrize("place", ["view=arcs", "", "other=1"])
def test_what_is_scrolled_stays_where_it_is(watched, long, place):
    """While the pointer moves over it, and when a token or a cell is locked."""
    view = watched()
    view.page.set_viewport_size({"width": 500, "height": 860})
    page = view.open(f"{long}#attention?block=encoder&{place}")
    page.locator(".detail .scroll").first.wait_for()
    view.settle()
    page.evaluate("() => document.querySelector('.detail .scroll').scrollBy(90, 0)")
    before = page.evaluate(SCROLLED)
    assert before[0] == 90
    at = page.locator(".detail .scroll").first.bounding_box()
    x, y = at["x"] + at["width"] / 2, at["y"] + (14 if place == "view=arcs" else 120)
    for shift in (0, 30):
        page.mouse.move(x + shift, y)
        view.settle()
        assert page.evaluate(SCROLLED) == before, "the pointer moves"
    page.mouse.click(x + 30, y)
    page.wait_for_function("() => /[?&][qk]=/.test(location.hash)")
    view.settle()
    assert page.evaluate(SCROLLED) == before, "a place is locked"
    assert not view.complaints


def test_the_pointer_leaves_the_focus_on_arcs_alone(opened):
    page = opened.go("attention?block=cross&layer=1&head=2&view=arcs")
    page.locator(".arc-token").nth(2).focus()
    page.locator(".arc-token").nth(6).hover()
    opened.settle()
    assert page.locator(".arc-token.marked").count() == 1
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "key 2: c"


@pytest.mark.parametrize(
    ("place", "button", "leads"),
    [("attention?view=arcs", ".arc-token >> nth=2", "k=2"), ("parameters", ".icicle .part >> nth=1", "part=encoder")],
)
def test_space_presses_what_is_a_button(opened, place, button, leads):
    """And scrolls nothing."""
    page = opened.go(place)
    page.locator(button).evaluate("each => each.setAttribute('data-before', '')")
    page.set_viewport_size({"width": 1280, "height": 240})
    page.wait_for_selector("[data-before]", state="detached")  # another window is drawn anew, a moment later
    opened.settle()
    page.evaluate("() => window.scrollTo(0, 0)")
    page.locator(button).evaluate("each => each.focus({preventScroll: true})")
    page.keyboard.press("Space")
    opened.settle()
    assert leads in page.url
    assert page.evaluate("() => window.scrollY") == 0
