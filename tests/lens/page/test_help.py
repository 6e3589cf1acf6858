"""Help and keys: every screen says how it is read, and a number opens a screen, unless one types or has them off."""

import pytest

from lens.explored import SCREENS

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
    assert not opened.complaints


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
def test_the_help_fits_a_narrow_window(chromium, shown, scheme):
    context = chromium.new_context(viewport={"width": 320, "height": 480}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{shown[0]}#attention")
    page.wait_for_selector("body[data-ready=yes]")
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
    context.close()
