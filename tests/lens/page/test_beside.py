"""Two inputs beside each other: what the screen of heads says of both, and what is saved of two maps."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest

from glassformer.lens.trace.sight import decided
from lens.explored import planted
from lens.page.conftest import saved, table

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def inputs():
    """A trace, one of the same length with other weights, and a shorter one; the weights of the first two."""
    one, first = planted()
    other, second = planted(sources=("d", "c", "b", "a", "<eos>"), targets=("<bos>", "a", "b", "c"))
    for i, group in enumerate(other.header["attention"]):
        block = group["block"]
        if block != "decoder":
            sharper = np.roll(second[block], i + 1, axis=-1) ** 2
            second[block] = sharper / sharper.sum(-1, keepdims=True)
        other.buffers[group["buffer"]][1][:] = second[block]
        group.update(decided(second[block]))
    shorter, _ = planted(sources=("d", "c", "<eos>"))
    return [one, other, shorter], (first, second)


@pytest.fixture
def view(opened_with, inputs):
    """The three, open."""
    return opened_with(*inputs[0], name="three inputs")


def test_heads_of_two_inputs(view, inputs):
    """A, B and A − B of each head's figures; the maps' distance is the mean total variation of their rows."""
    page = view.go("heads")
    assert "maps apart" not in page.text_content("main")
    page.locator(".picker", has_text="Compare with").locator("select").select_option("1")
    page.wait_for_selector("text=maps apart")
    assert "other=1" in page.url
    names = [each.strip() for each in page.locator("thead th").all_text_contents()]
    shown = {}
    for row in page.locator("table.sortable tbody tr").all():
        cells = row.locator("td").all_text_contents()
        shown[cells[0]] = dict(zip(names, cells, strict=True))
    assert len(shown) == 18
    for block in ("encoder", "decoder", "cross"):
        a, b = (weights[block] for weights in inputs[1])
        far = np.abs(a - b).sum(-1).mean(-1) / 2
        sure = [decided(each)["confidence"] for each in (a, b)]
        for layer, head in np.ndindex(far.shape):
            text = shown[f"{block} {layer}.{head}"]
            assert float(text["maps apart"]) == pytest.approx(far[layer, head], abs=6e-4)
            assert float(text["confidence A"]) == pytest.approx(sure[0][layer][head], abs=6e-4)
            assert float(text["confidence B"]) == pytest.approx(sure[1][layer][head], abs=6e-4)
            gap = float(text["confidence A − B"].replace("−", "-"))
            assert gap == pytest.approx(sure[0][layer][head] - sure[1][layer][head], abs=6e-4)
    figures = [float(each) for each in page.locator("tbody tr td:nth-child(2)").all_text_contents()]
    assert figures == sorted(figures, reverse=True), "the most different first"
    page.locator("thead button", has_text="entropy A − B").click()
    gaps = page.locator(f"tbody tr td:nth-child({1 + names.index('entropy A − B')})").all_text_contents()
    assert [float(each.replace("−", "-")) for each in gaps] == sorted(
        (float(each.replace("−", "-")) for each in gaps), reverse=True
    )


def test_the_table_of_two_inputs_is_saved(view, inputs):
    page = view.go("heads?other=1")
    name, data = saved(page, page.locator(".exports[aria-label='Save this table'] button", has_text="CSV"))
    assert name == "three-inputs-heads-compared.csv"
    rows = table(data)
    row = next(each for each in rows if (each["block"], each["layer"], each["head"]) == ("cross", "1", "2"))
    a, b = (weights["cross"][1, 2] for weights in inputs[1])
    assert float(row["maps_apart"]) == pytest.approx(float(np.abs(a - b).sum(-1).mean() / 2), abs=1e-6)
    assert float(row["confidence_a_minus_b"]) == pytest.approx(
        float(row["confidence"]) - float(row["confidence_b"]), abs=1e-6
    )


def test_what_is_compared_is_saved_as_it_is_shown(view, inputs):
    """Three maps in one picture, of one height; a line for each cell of each, told apart by the first column."""
    page = view.go("attention?block=cross&layer=1&head=2&other=1&q=1&k=2")
    page.locator(".maps canvas.map-cells").nth(2).wait_for()
    name, data = saved(page, page.locator(".exports button", has_text="SVG"))
    assert name == "three-inputs-attention-cross-1-2-compared.svg"
    picture = ET.fromstring(data)
    maps = picture.findall(f"{SVG}svg")
    assert [each.find(f"{SVG}text").text or each.find(f"{SVG}text/{SVG}title").tail for each in maps] == [
        "A: abcd",
        "B: dcba",
        "A − B",
    ]
    for one, other in pairwise(maps):
        assert float(one.get("x")) + float(one.get("width")) <= float(other.get("x"))
    assert float(maps[-1].get("x")) + float(maps[-1].get("width")) <= float(picture.get("width"))
    fills = [[rect.get("fill") for rect in each.findall(f"{SVG}g")[0]] for each in maps]
    assert all(len(each) == 15 for each in fills)
    assert len({tuple(each) for each in fills}) == 3, "each its own map"
    name, data = saved(page, page.locator(".exports button", has_text="CSV"))
    rows = table(data)
    a, b = (weights["cross"][1, 2] for weights in inputs[1])
    for row in rows:
        expected = {"A": a, "B": b, "A-B": a - b}[row["input"]][int(row["query"]), int(row["key"])]
        assert float(row["weight"]) == pytest.approx(float(expected), abs=1e-6)
    assert len(rows) == 3 * a.size


def test_the_sums_beside_a_map_are_saved(view, inputs):
    """The entropy of each query and what each key receives: bars in the picture, columns in the table."""
    page = view.go("attention?block=cross&layer=1&head=2")
    weights = inputs[1][0]["cross"][1, 2].astype(np.float64)
    entropy, received = -(weights * np.log(weights)).sum(-1), weights.sum(0)
    _, data = saved(page, page.locator(".exports button", has_text="SVG"))
    bars = {
        kind: [each for each in ET.fromstring(data).iter(f"{SVG}rect") if each.get("class") == kind]
        for kind in ("entropy", "received")
    }
    long = [float(each.get("width")) for each in bars["entropy"]]
    assert long == pytest.approx(list(40 * entropy / np.log(5)), abs=0.01)
    tall = [float(each.get("height")) for each in bars["received"]]
    assert tall == pytest.approx(list(40 * received / received.max()), abs=0.01)
    shown = [float(each.find(f"{SVG}title").text.split()[0]) for each in bars["entropy"]]
    assert shown == pytest.approx(list(entropy), rel=6e-3)
    _, data = saved(page, page.locator(".exports button", has_text="CSV"))
    for row in table(data):
        assert float(row["query_entropy"]) == pytest.approx(entropy[int(row["query"])], abs=2e-6)
        assert float(row["key_received"]) == pytest.approx(received[int(row["key"])], abs=2e-6)


def test_a_head_of_the_table_opens_both_maps(view):
    page = view.go("heads?other=1&view=table")
    page.locator("tbody .row-button", has_text="cross 1.2").click()
    page.locator(".maps canvas.map-cells").nth(2).wait_for()
    assert "block=cross&layer=1&head=2" in page.url


def test_texts_of_other_lengths_have_no_distance(view):
    page = view.go("heads?other=2")
    assert page.locator("tbody tr", has_text="cross 1.2").locator("td").nth(1).text_content() == "–"
    decoder = page.locator("tbody tr", has_text="decoder 1.2")
    assert float(decoder.locator("td").nth(1).text_content()) > 0, "their targets are as long as each other"
    assert "differ in length" in page.text_content(".comparing-note")
    view.go("heads?other=0")
    assert "maps apart" not in page.text_content("main"), "an input is not compared with itself"
