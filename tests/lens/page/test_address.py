"""What stands in the address is what is shown; what is no setting there does nothing."""

from __future__ import annotations

import pytest

from glassformer.data.dataset import Tokenizers
from glassformer.lens.ablate import silence
from glassformer.lens.server.subject import Subject
from lens.explored import LETTERS, small


@pytest.mark.parametrize("query", ["screen=nosuch", "toString=1", "constructor=1&__proto__=x", "nosuch=1&layer=-1"])
def test_what_is_no_setting_does_nothing(opened, query):
    page = opened.go(f"heads?{query}")
    assert page.locator("h2", has_text="18 heads").count() == 1
    assert page.locator("nav a[aria-current]").text_content() == "Heads"
    page.locator("nav a[data-screen=curves]").click()
    opened.settle()
    assert page.url.partition("#")[2] == "curves"
    assert not opened.complaints


@pytest.fixture(scope="module")
def served(serving):
    subject = Subject("toy", small(n_layers=1), Tokenizers(LETTERS, LETTERS), examples=[("abc", None)], silence=silence)
    with serving(subject) as address:
        yield address


def test_back_from_a_moved_head_finds_the_boxes_checked(watched, served):
    view = watched()
    page = view.open(served)
    view.go("ablations")
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
    assert not view.complaints


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
