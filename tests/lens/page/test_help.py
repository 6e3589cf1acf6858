"""Help and keys: every screen says how it is read, and a number opens a screen, unless one types or has them off."""

import pytest

from lens.explored import SCREENS, page_of, planted

ACTIVE = "() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName"


def test_every_screen_has_its_help(opened):
    """Opened by its button; Esc closes it, and the focus is where it was."""
    seen = []
    for screen in SCREENS:
        page = opened.go(screen)
        page.locator("#help").click()
        dialog = page.locator("dialog[open]")
        assert dialog.locator("h2").text_content() == f"How to read {screen.capitalize()}"
        assert dialog.locator("li").count() >= 2
        seen.append(dialog.locator("p").text_content())
        assert page.evaluate("() => document.querySelector('dialog').contains(document.activeElement)")
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert page.evaluate(ACTIVE) == "help"
    assert len(set(seen)) == len(SCREENS)


def test_help_by_its_key_gives_the_focus_back(opened):
    """Also a lock behind it stays, as Esc is heard by the help alone; inside, Tab does not leave it."""
    page = opened.go("attention?block=cross&layer=1&head=2&q=1&k=2")
    page.locator(".map-body").focus()
    page.keyboard.press("?")
    dialog = page.locator("dialog[open]")
    dialog.wait_for()
    for _ in range(6):
        page.keyboard.press("Tab")
        at = "() => document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        assert page.evaluate(at)
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate(ACTIVE) == "map-body"
    assert "q=1&k=2" in page.url
    page.keyboard.press("Escape")
    opened.settle()
    assert "q=1" not in page.url


def test_help_from_a_link_gives_the_focus_back_where_keys_were_turned_off_meanwhile(opened):
    """All links are made anew then."""
    page = opened.go("heads")
    page.focus("nav a[data-screen=curves]")
    page.keyboard.press("?")
    page.locator("#single-keys").uncheck()
    opened.settle()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert page.evaluate("() => document.activeElement.dataset.screen") == "curves"


def test_numbers_open_the_screens(opened):
    page = opened.go("overview")
    for i, screen in enumerate(SCREENS, 1):
        page.keyboard.press(str(i))
        page.wait_for_selector(f"nav a[data-screen={screen}][aria-current]")
    for key in ("8", "0", "Control+1", "Alt+1"):
        page.keyboard.press(key)
    opened.settle()
    assert "#curves" in page.url
    page.go_back()
    page.wait_for_selector("nav a[data-screen=parameters][aria-current]")


def test_where_one_types_a_number_is_a_number(opened):
    page = opened.go("curves")
    page.locator(".picker select").first.focus()
    page.keyboard.press("1")
    page.keyboard.press("?")
    opened.settle()
    assert "#curves" in page.url
    assert page.locator("dialog").count() == 0


def test_single_keys_can_be_turned_off(opened):
    """WCAG 2.2, 2.1.4: a reader's software may send letters. The setting is kept."""
    page = opened.go("heads")
    page.locator("#help").click()
    page.locator("#single-keys").uncheck()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    for _ in range(2):
        for key in ("2", "?"):
            page.keyboard.press(key)
        opened.settle()
        assert "#heads" in page.url
        assert page.locator("dialog").count() == 0
        page.reload()
        page.wait_for_selector("body[data-ready=yes]")
    page.locator("#help").click()
    assert not page.locator("#single-keys").is_checked()
    page.locator("#single-keys").check()
    page.locator("dialog button", has_text="Close").click()
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("2")
    page.wait_for_selector("nav a[data-screen=attention][aria-current]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_help_fits_a_narrow_window(watched, shown, scheme):
    page = watched(viewport={"width": 320, "height": 480}, color_scheme=scheme).open(shown[0], "attention")
    page.locator("#help").click()
    box = page.locator("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["x"] + box["width"] <= 320
    assert box["y"] + box["height"] <= 480
    inside = page.evaluate(
        "() => { const d = document.querySelector('dialog'); return d.scrollWidth - d.clientWidth; }"
    )
    assert inside <= 0


# --- What is drawn anew is found as it was left: scrolled to where it was, and under the same keys


SCROLLED = "() => [...document.querySelectorAll('.detail .scroll')].map(each => each.scrollLeft)"


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Two inputs of 200 tokens, whose maps and arcs are wider than their room."""
    source = [f"a long word {i}" for i in range(199)]
    traces = [
        planted((first, *source), ("<bos>", "a", "b"), layers=1, heads=1, encoding="sqrt255")[0] for first in "ab"
    ]
    return page_of(tmp_path_factory.mktemp("redrawn"), *traces)


@pytest.mark.parametrize("place", ["view=arcs", "", "other=1"])
def test_what_is_scrolled_stays_where_it_is(watched, long, place):
    """While the pointer moves over it, and when a token or a cell is locked."""
    view = watched(viewport={"width": 500, "height": 860})
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
