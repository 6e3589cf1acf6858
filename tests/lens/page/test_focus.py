"""Whoever goes by keys stays where they are: a control that is made anew keeps the focus."""

import json

import pytest

from lens.explored import page_of, planted, toy
from lens.page.conftest import METRICS
from lens.page.test_live import PAST

pytestmark = pytest.mark.slow

AT = """() => {
  const each = document.activeElement;
  const label = each.closest("label")?.querySelector("span");
  return each.id || each.getAttribute("aria-label") || (label ?? each).textContent.trim();
}"""


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Three inputs, as one file."""
    traces = [planted(sources=(letter, "b", "c", "d", "<eos>"))[0] for letter in "abc"]
    return page_of(tmp_path_factory.mktemp("focus"), *traces, metrics=METRICS)


@pytest.fixture
def view(watched, several):
    made = watched()
    made.open(several)
    return made


def test_arrow_keys_go_on_behind_the_buttons_of_the_steps(view):
    page = view.go("generate")
    page.focus("[aria-label='Next step']")
    page.keyboard.press("Enter")
    view.settle()
    assert page.evaluate(AT) == "Next step"
    assert page.text_content("#step") == "2"
    page.keyboard.press("ArrowRight")
    view.settle()
    assert page.text_content("#step") == "3"
    page.focus("[aria-label='Play']")
    page.keyboard.press("Enter")
    assert page.evaluate(AT) == "Pause"


@pytest.mark.parametrize("screen", ["heads", "generate", "attention"])
@pytest.mark.parametrize("name", ["Compare with", "Input"])
def test_pickers_keep_the_focus(view, screen, name):
    page = view.go(screen)
    picker = page.locator(".picker", has_text=name).locator("select")
    picker.focus()
    picker.select_option("1")
    page.wait_for_function("() => /other=1|trace=1/.test(location.hash)")
    view.settle()
    assert page.evaluate(AT) == name


@pytest.mark.parametrize(("place", "at", "name"), [
    ("heads", ".sortable thead button >> nth=2", "score"),
    ("curves", "button[data-value=table]", "Table"),
    ("curves", "button[data-value=linear]", "Linear"),
    ("parameters", ".icicle .part >> nth=1", "encoder: encoder: 4, 57.1 %"),
    ("heads", "nav a[data-screen=curves]", "Curves"),
])  # fmt: skip
def test_what_is_pressed_keeps_the_focus(view, place, at, name):
    page = view.go(place)
    page.focus(at)
    page.keyboard.press("Enter")
    view.settle()
    assert page.evaluate(AT) == name


def test_what_is_gone_leaves_the_focus_to_the_picture(view):
    page = view.go("overview")
    page.focus(".answer button.chip")
    page.keyboard.press("Enter")
    view.settle()
    assert page.url.partition("#")[2].startswith("generate")
    assert page.evaluate("() => document.activeElement !== document.body")


def test_what_comes_while_one_looks_leaves_the_focus_alone(watched, serving, tmp_path):
    """Figures that come are drawn at once; so are roles of checkpoints, and their table stays open."""
    figures = tmp_path / "metrics.jsonl"
    figures.write_text("".join(f"{json.dumps(each)}\n" for each in METRICS))
    kept, past = [10], {"steps": [10], "heads": [each | {"scores": each["scores"][:1]} for each in PAST["heads"]]}
    with serving(toy("ab", run=tmp_path, history=lambda: past, kept=lambda: list(kept))) as address:
        view = watched()
        page = view.open(address, "curves")
        page.focus("button[data-value=linear]")
        kept.append(30)
        page.locator(".chart .kept").nth(1).wait_for()
        assert page.evaluate(AT) == "Linear"
        page.clock.install()
        view.go("heads")
        page.locator("#history").click()
        page.locator(".outcome summary").click()
        past.update(PAST)
        page.clock.fast_forward(20_000)
        page.wait_for_selector("text=step 30")
        assert page.evaluate(AT) == "As a table"
        assert page.locator(".outcome details[open]").count() == 1
        assert page.locator("[aria-live] table, [role=status] table").count() == 0
        page.goto("about:blank")
