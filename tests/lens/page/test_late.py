"""What was asked for last is what is shown: an answer or a failure that comes late changes nothing."""

import pytest

from lens.explored import toy
from lens.page.conftest import saved

pytestmark = pytest.mark.slow


@pytest.fixture
def view(watched, serving):
    """A page of two inputs, which keeps what it asks of the second one's attention until `answer` lets it go."""
    with serving(toy("abcd", "dcba")) as address:
        made = watched()
        made.open(address)
        made.go("parameters")
        made.held = []
        made.page.route("**/api/trace/1/buffer/a.*", lambda route: made.held.append(route))
        yield made


def left(view, first, then):
    """Ask for the second input, and for something else before it is there."""
    view.page.evaluate("place => { location.hash = place; }", first)
    while not view.held:
        view.page.wait_for_timeout(20)
    return view.go(then)


def let_go(view, how):
    """What was held back comes now."""
    while view.held:
        how(view.held.pop())
    view.page.wait_for_load_state("networkidle")
    view.settle()


def test_a_late_input_is_not_put_beside(view):
    """The pointer is on the one map that is shown, and it is what is saved."""
    page = left(view, "attention?block=cross&other=1", "attention?block=cross")
    let_go(view, lambda route: route.continue_())
    box = page.locator(".map-cells").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    view.settle()
    assert page.locator(".map-cross.at").evaluate("each => each.style.visibility") == "visible"
    assert saved(page, page.locator(".exports button", has_text="SVG"))[0] == "toy-attention-cross-0-0.svg"


def test_a_late_failure_is_not_told_of(view):
    page = left(view, "attention?block=cross&other=1", "attention?block=cross")
    let_go(view, lambda route: route.abort())
    view.complaints.clear()  # the browser's own, of what it could not load
    assert page.locator(".problem").count() == 0
    assert page.locator(".map-cells").count() == 1


def test_late_figures_are_not_saved(view):
    page = left(view, "heads?other=1", "heads")
    let_go(view, lambda route: route.continue_())
    assert b"confidence_b" not in saved(page, page.locator(".exports[aria-label='Save this table'] button"))[1]


def test_play_ends_with_the_last_step(watched, shown):
    """Its button says so at once, and plays once more from what was written first."""
    view = watched()
    page = view.open(shown[0])
    page.clock.install()
    view.go("generate?step=0")
    page.locator("[aria-label=Play]").click()
    for step in ("2", "3"):
        page.clock.fast_forward(700)
        page.wait_for_selector(f"#step:has-text('{step}')")
    page.wait_for_selector("[aria-label=Play]")
    page.locator("[aria-label=Play]").click()
    page.wait_for_selector("#step:has-text('1')")
    page.wait_for_selector("[aria-label=Pause]")


def test_a_history_that_is_asked_for_twice_is_followed_once(watched, serving, tmp_path):
    """The first answer comes after the second: it is neither shown, nor does it lead to looks of its own."""
    with serving(toy("abc", run=tmp_path, history=dict)) as address:
        view = watched()
        page = view.open(address)
        page.clock.install()
        view.go("heads")
        held = []
        page.route("**/api/history", lambda route: held.append(route))
        for n in (1, 2):
            page.locator("#history").click()
            while len(held) < n:
                page.wait_for_timeout(20)
        held[1].fulfill(json={"steps": [1, 2], "heads": []})
        page.wait_for_selector("text=The roles at 2 checkpoints.")
        with page.expect_response("**/api/history"):
            held[0].fulfill(json={"steps": [1], "heads": []})
        view.settle()
        assert page.locator("text=The roles at 2 checkpoints.").count() == 1
        page.clock.fast_forward(20_000)
        while len(held) < 3:
            page.wait_for_timeout(20)
        view.settle()
        assert len(held) == 3
        page.goto("about:blank")
