"""axe-core's rules for WCAG and good practice: no screen breaks a serious or critical one, in either theme."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from glassformer.lens.ablate import silence
from lens.explored import SCREENS, page_of, planted, toy
from lens.page.conftest import METRICS, lacks
from lens.page.test_live import PAST
from lens.page.test_runs import STUDY

PLACES = (*SCREENS, "attention?view=arcs", "attention?view=table", "attention?other=1", "heads?other=1",
          "generate?other=1", "curves?curves=table")  # fmt: skip
FACTS = {"name": "three", "metrics": METRICS, "checkpoints": True, "kept": [10, 30], "history": PAST, "study": STUDY,
         "similar": [[["cross", 0, 1], ["cross", 1, 2], 0.0012]]}  # fmt: skip
RUN = "() => axe.run({resultTypes: ['violations']})"


@cache
def axe():
    """The rules, as one script, which the package brings along."""
    found = find_spec("axe_playwright_python")
    if found is None:
        lacks("the package axe-playwright-python is not installed (make setup)")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text("utf-8")


def clean(view, places):
    """No serious and no critical violation, on any of these screens."""
    view.page.evaluate(axe())
    found = {}
    for place in places:
        page = view.go(place)
        for each in page.evaluate(RUN)["violations"]:
            if each["impact"] in ("serious", "critical"):
                found[place, each["id"]] = [node["html"][:160] for node in each["nodes"]][:3]
    assert found == {}


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_file(watched, tmp_path, scheme):
    traces = [planted(sources=(letter, "b", "c", "d", "<eos>"))[0] for letter in "ab"]
    view = watched(color_scheme=scheme)
    page = view.open(page_of(tmp_path, *traces, **FACTS))
    clean(view, PLACES)
    page.set_viewport_size({"width": 320, "height": 640})
    clean(view, SCREENS)
    page.locator("#help").click()
    view.page.wait_for_selector("dialog[open]")
    assert [each["id"] for each in page.evaluate(RUN)["violations"] if each["impact"] in ("serious", "critical")] == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_live(watched, serving, tmp_path, scheme):
    with serving(toy("abc", "abd", silence=silence, history=lambda: PAST)) as address:
        view = watched(color_scheme=scheme)
        page = view.open(address)
        clean(view, PLACES)
        view.go("heads")
        page.locator("#history").click()
        page.locator(".by-role").first.wait_for()
        page.locator(".outcome summary").click()
        clean(view, ["heads"])
        view.go("ablations")
        page.check("[data-head='cross 0 1']")
        page.locator("#ablate").click()
        page.locator(".moved-heads").wait_for()
        clean(view, ["ablations?out=cross-0-1"])
        view.go("attention?other=1")
        page.locator("#patch").click()
        page.locator(".patches .terms").wait_for()
        clean(view, ["attention?other=1"])
        view.go("generate")
        page.fill("#ask-beam", "3")
        page.locator("form button[type=submit]").click()
        page.locator(".beam-tree").wait_for()
        view.settle()
        clean(view, [page.url.partition("#")[2]])
