"""A page in one file has no model: it shows what was put into it, and says what to type for the rest."""

from functools import partial

import pytest

from glassformer.cli.explore import between
from lens.explored import toy
from lens.page.test_live import PAST

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair():
    """Two traces of one length, and what carries the difference of their answers."""
    return between(toy(), ("abc", "abd"))


@pytest.fixture
def copied(opened_with, pair):
    """`copied(facts)`: a page of the two traces that knows these facts, open."""
    return partial(opened_with, *pair[0], live=False, checkpoints=True)


def test_what_was_put_into_a_copy_is_shown(copied, pair):
    view = copied(history=PAST, patches=[{"traces": ["0", "1"], **pair[1]}])
    page = view.go("heads")
    assert page.locator(".by-role h3").all_text_contents() == ["reversal", "previous"]
    assert page.locator("#history").count() == 0
    view.go("attention?trace=0&other=1")
    page.locator(".patches .terms").wait_for()
    shown = [float(each) for each in page.locator(".patches .terms .figure").all_text_contents()]
    assert shown == pytest.approx([each["effect"] for each in pair[1]["heads"][:10]], abs=1e-3)


def test_heads_that_read_alike(copied):
    """Most alike first, as they come; a click leads to the first of the two."""
    pairs = [[["cross", 0, 1], ["cross", 0, 3], 0.0012], [["decoder", 0, 0], ["decoder", 0, 2], 0.04]]
    view = copied(similar=pairs)
    page = view.go("heads")
    rows = page.locator(".similar tbody tr")
    assert [each.locator("code").all_text_contents() for each in rows.all()] == [
        ["cross 0.1", "cross 0.3"],
        ["decoder 0.0", "decoder 0.2"],
    ]
    assert rows.locator(".figure").all_text_contents() == ["0.0012", "0.04"]
    rows.nth(0).locator(".row-button").click()
    view.settle()
    assert "block=cross&head=1" in page.url
    assert page.get_attribute(".thumb[aria-selected=true]", "data-at") == "0 1"
    copied(similar=[]).go("heads").wait_for_selector("text=No two heads of the same kind have similar attention.")
    assert copied().go("heads").locator(".similar").count() == 0, "nobody has looked"


def test_checkpoints_are_marked_below_the_loss(copied):
    """Each where its step is, and it leads to what the heads did; none beyond what was measured."""
    metrics = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 101)]
    view = copied(metrics=metrics, kept=[1, 50, 100, 150], history=PAST)
    page = view.go("curves")
    marks = page.locator(".chart .kept")
    assert [each.get_attribute("aria-label") for each in marks.all()] == [
        f"Checkpoint at step {step}: what the heads did" for step in (1, 50, 100)
    ]
    left, middle, right = (each.bounding_box()["x"] for each in marks.all())
    assert (middle - left) / (right - left) == pytest.approx(49 / 99, abs=1e-3)
    marks.nth(1).click()
    view.settle()
    assert page.locator(".by-role").count() == 2


def test_the_other_way_round_is_another_question(copied, pair):
    page = copied(patches=[{"traces": ["0", "1"], **pair[1]}]).go("attention?trace=1&other=0")
    page.locator(".patches code").first.wait_for()
    assert page.locator(".patches .terms").count() == 0


@pytest.mark.parametrize(
    ("place", "options"),
    [("heads", "--checkpoints"), ("attention?trace=0&other=1", "--patch TEXT --into TEXT")],
    ids=["checkpoints", "patch"],
)
def test_a_copy_says_what_to_type(copied, place, options):
    """In one sentence, and no button that could not do anything."""
    page = copied().go(place)
    page.locator(".outcome code").first.wait_for()
    shown = page.locator(".outcome code").all_text_contents()
    assert shown == ["glassformer explore RUN", f"glassformer explore RUN --export page.html {options}"]
    assert page.locator("#history, #patch").count() == 0
