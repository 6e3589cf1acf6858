"""What is told of a cell is what is shown: a weight, or a value-weighted share; and nothing of what is masked."""

import csv
import io

import numpy as np
import pytest

from lens.explored import page_of, planted
from lens.page.conftest import saved

HEAD = "attention?block=decoder&layer=1&head=2"


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """A trace that knows how much each key gives, as one file; the weights, and the shares of what is moved."""
    made, weights = planted()
    sizes = np.random.default_rng(1).uniform(0.2, 3, size=(2, 3, 3)).astype(np.float32)
    made.buffers["v.decoder"] = ("f32", sizes)
    made.header["attention"][1]["value_sizes"] = "v.decoder"
    shares = weights["decoder"] * sizes[:, :, None]
    address = page_of(tmp_path_factory.mktemp("told"), [made.to_bytes()], {"name": "sized"})
    return address, weights["decoder"][1, 2], (shares / shares.sum(-1, keepdims=True))[1, 2]


@pytest.fixture
def view(watched, sized):
    made = watched()
    made.open(sized[0])
    return made


def test_a_share_of_what_is_moved_is_called_no_attention(view, sized):
    """In the inspector, beside the pointer, in arcs, table and file; the weight stands beside the share."""
    _, weights, shares = sized
    page = view.go(f"{HEAD}&q=2&k=1")
    assert "of its attention on" in page.text_content(".inspector .weight")
    assert float(page.text_content("[data-fact=moved]")) == pytest.approx(shares[2, 1], abs=6e-5)
    view.go(f"{HEAD}&q=2&k=1&of=moved")
    assert float(page.text_content("#weight")) == pytest.approx(shares[2, 1], abs=6e-5)
    assert float(page.text_content("[data-fact=weight]").split()[0]) == pytest.approx(weights[2, 1], abs=6e-5)
    assert page.locator(".inspector .weight small").count() == 0, "how exact the weight is says nothing of the share"
    shown = page.text_content(".inspector")
    assert "of what is moved to it" in shown
    assert not [word for word in ("its attention", "reads most", "receives") if word in shown]
    box = page.locator(".map-cells").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] - 5)
    assert " takes from " in page.get_attribute(".map-body", "data-tip")
    _, data = saved(page, page.locator(".exports button", has_text="CSV"))
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert [float(row["moved_share"]) for row in rows] == pytest.approx(list(shares[np.tril_indices(3)]), abs=1e-6)
    view.go(f"{HEAD}&of=moved&view=arcs")
    assert "value-weighted share" in page.text_content(".arcs figcaption")
    assert all(" takes from " in each for each in page.locator(".arc title").all_text_contents())
    view.go(f"{HEAD}&of=moved&view=table")
    assert "takes most from" in page.text_content(".detail thead")
    assert not view.complaints


def test_what_is_masked_is_not_listed(view):
    """Neither among what a query reads most, nor among those that read a key most, nor as a weight of the step."""
    page = view.go(f"{HEAD}&q=1&k=0")
    assert set(page.locator(".inspector .bars .at").all_text_contents()) == {"0", "1"}
    box = page.locator(".map-received").bounding_box()
    page.keyboard.press("Escape")
    view.settle()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 5)
    view.settle()
    assert page.locator(".inspector .bars .at").all_text_contents() == ["2"]


def test_a_step_reads_nothing_that_is_masked(watched, tmp_path):
    made, _ = planted()
    made.header["attention"] = [made.header["attention"][1]]
    address = page_of(tmp_path, [made.to_bytes()], {"name": "alone"})
    view = watched()
    page = view.open(f"{address}#generate?step=1")
    row = page.locator(".by-head tbody tr").first.locator("td")
    assert [each.get_attribute("title").endswith(": masked") for each in row.all()] == [False, False, True]
    assert "gradient" in row.nth(2).evaluate("each => getComputedStyle(each).backgroundImage")
    assert not view.complaints
