"""What stands in the address is what is shown; what is no setting there does nothing."""

import pytest

from glassformer.lens.ablate import silence
from lens.explored import toy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("query", ["screen=nosuch", "toString=1", "constructor=1&__proto__=x", "nosuch=1&layer=-1"])
def test_what_is_no_setting_does_nothing(opened, query):
    page = opened.go(f"heads?{query}")
    assert page.locator("h2", has_text="18 heads").count() == 1
    assert page.locator("nav a[aria-current]").text_content() == "Heads"
    page.locator("nav a[data-screen=curves]").click()
    opened.settle()
    assert page.url.partition("#")[2] == "curves"


@pytest.fixture(scope="module")
def subject():
    return toy("abc", silence=silence)


def test_back_from_a_moved_head_finds_the_boxes_checked(watched, served):
    view = watched()
    page = view.open(served, "ablations")
    for head in (1, 3):
        page.check(f"[data-head='cross 0 {head}']")
    page.locator("#ablate").click()
    page.locator(".moved-heads tbody button").first.click()
    view.settle()
    assert page.url.partition("#")[2].startswith("attention")
    page.go_back()
    page.wait_for_selector("#ablate")
    view.settle()
    boxes = page.locator("input:checked")
    assert [each.get_attribute("data-head") for each in boxes.all()] == ["cross 0 1", "cross 0 3"]
    page.locator("#ablate").click()
    page.locator(".moved-heads").wait_for()


def test_dials_are_found_again(opened):
    """As a link has them, as they are left, and by Back; what no dial can show is as at first."""
    page = opened.go("generate?temperature=0.5&topK=2&topP=7")
    values = "() => [...document.querySelectorAll('[data-dial]')].map(each => each.value)"
    assert page.evaluate(values) == ["0.5", "2", "1"]
    assert page.locator(".chances .out").count() > 0, "of all tokens two are left"
    page.focus("[data-dial=temperature]")
    page.keyboard.press("ArrowRight")
    opened.settle()
    assert "temperature=0.55" in page.url
    assert page.evaluate("() => document.activeElement.dataset.dial") == "temperature"
    opened.go("generate?temperature=2")
    assert page.evaluate(values) == ["2", "0", "1"]


def test_curves_and_parameters_are_found_again(opened):
    page = opened.go("curves?axis=linear&smooth=0")
    assert page.get_attribute("button[data-value=linear]", "aria-pressed") == "true"
    assert page.locator("main select").input_value() == "0"
    assert page.locator(".line.raw").count() == 0
    page.locator("main select").select_option("0.98")
    page.locator("button[data-value=log]").click()
    opened.settle()
    assert page.url.partition("#")[2] == "curves?smooth=0.98"
    opened.go("parameters?part=encoder")
    assert page.locator("h2", has_text="1 tensors").count() == 1
    page.locator(".icicle .part[aria-label^='decoder:']").click()
    page.wait_for_function("() => location.hash.includes('part=decoder')")
    page.go_back()
    page.wait_for_selector("text=encoder ×")
    opened.settle()
    assert page.locator("main tbody code").all_text_contents() == ["encoder.embedding.weight"]
    assert opened.go("parameters?part=nosuch").locator("h2", has_text="2 tensors").count() == 1


def order(page, table=0):
    """What a table is sorted by, and its rows from top to bottom."""
    shown = page.locator("table.sortable").nth(table)
    by = shown.locator("[aria-sort]")
    return (
        by.text_content() if by.count() else None,
        by.get_attribute("aria-sort") if by.count() else None,
        shown.locator("tbody td:first-child").all_text_contents(),
    )


def test_the_sorting_of_a_table_is_found_again(opened):
    page = opened.go("heads")
    usual = order(page)
    assert usual[:2] == ("lost without it", "descending")
    button = page.locator("table.sortable thead button")
    button.filter(has_text="entropy").click()
    assert page.url.partition("#")[2] == "heads?by=-entropy"
    button.filter(has_text="entropy").click()
    assert page.url.partition("#")[2] == "heads?by=entropy"
    upwards = order(page)
    assert upwards[:2] == ("entropy", "ascending")
    assert page.evaluate("() => document.activeElement.textContent") == "entropy"
    here = page.locator("nav a[data-screen=heads]")
    here.hover()
    assert here.get_attribute("href") == "#heads?by=entropy", "who copies the link of this screen copies what is shown"
    page.locator("nav a[data-screen=parameters]").click()
    opened.settle()
    assert page.url.partition("#")[2] == "parameters", "how another screen is sorted is of no use here"
    page.go_back()
    page.wait_for_selector("nav a[data-screen=heads][aria-current]")
    opened.settle()
    assert order(page) == upwards
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert order(page) == upwards
    button.filter(has_text="lost without it").click()
    assert page.url.partition("#")[2] == "heads", "as it is at first is not told"
    assert order(page) == usual


@pytest.mark.parametrize("by", ["nosuch", "-", "_", "steps:entropy", "--entropy", "entropy:"])
def test_what_is_no_column_sorts_nothing(opened, by):
    usual = order(opened.go("heads"))
    assert order(opened.go(f"heads?by={by}")) == usual


def test_each_table_of_a_screen_has_a_sorting_of_its_own(watched, served):
    page = watched().open(served, "ablations?by=-nosuch_moved:head")
    page.check("[data-head='cross 0 1']")
    page.locator("#ablate").click()
    page.locator(".moved-heads").wait_for(timeout=30_000)
    moved = page.locator("table.sortable").count() - 1
    assert order(page, moved)[:2] == ("head", "ascending")
    page.locator(".moved-heads thead button").first.click()
    assert order(page, moved)[:2] == ("head", "descending")
    assert "by=-nosuch_moved%3A-head" in page.url
    page.locator(".moved-heads thead button").last.click()
    assert "by=-nosuch&" in page.url + "&"
