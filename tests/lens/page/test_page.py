"""The page in a browser: what it shows is what the trace says, and it can be used by hand, by key and by ear."""

import re
import struct

import numpy as np
import pytest

from lens.explored import HOSTILE, SCREENS, planted
from lens.page.conftest import saved, table

PRESS = """keys => {
  for (const key of keys) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
}"""
MAP = "attention?block=cross&layer=1&head=2"

TIPS = """places => {
  const cells = document.querySelector(".map-cells").getBoundingClientRect();
  const body = document.querySelector(".map-body");
  const [rows, columns] = [%d, %d];
  return places.map(([q, k]) => {
    const x = cells.x + (k + 0.5) * cells.width / columns, y = cells.y + (q + 0.5) * cells.height / rows;
    body.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: y, bubbles: true}));
    return body.dataset.tip;
  });
}"""


def centre(page, q, k, rows, columns):
    """Where a cell is on the screen."""
    box = page.locator(".map-cells").bounding_box()
    return box["x"] + (k + 0.5) * box["width"] / columns, box["y"] + (q + 0.5) * box["height"] / rows


def test_no_screen_asks_for_anything_or_complains(opened, shown):
    for screen in SCREENS:
        page = opened.go(screen)
        assert page.locator("main .card").count() > 0, screen
        assert page.locator(f"nav a[data-screen={screen}]").get_attribute("aria-current") == "page"
    assert not [url for url in opened.requested if not url.startswith((shown[0], "data:", "blob:"))]


@pytest.mark.parametrize("block", ["encoder", "decoder", "cross"])
def test_what_a_cell_shows_is_the_weight(opened, shown, block):
    """200 cells over all heads: within what sqrt255 loses; a masked one says so."""
    weights, draw = shown[2][block], np.random.default_rng(5)
    layers, heads, rows, columns = weights.shape
    for layer, head in [(0, 0), (layers - 1, heads - 1)]:
        page = opened.go(f"attention?block={block}&layer={layer}&head={head}")
        places = [[int(draw.integers(rows)), int(draw.integers(columns))] for _ in range(34)]
        for (q, k), tip in zip(places, page.evaluate(TIPS % (rows, columns), places), strict=True):
            if block == "decoder" and k > q:
                assert tip.endswith("masked: may not be read")
            else:
                assert float(tip.rpartition(": ")[2]) == pytest.approx(weights[layer, head, q, k], abs=1 / 255)
            assert f" at {q}" in tip
            assert f" at {k}:" in tip


def test_the_pointer_previews_a_click_locks_and_escape_frees(opened, shown):
    page, weights = opened.go(MAP), shown[2]["cross"][1, 2]
    rows, columns = weights.shape
    page.mouse.move(*centre(page, 1, 3, rows, columns))
    page.wait_for_selector("#weight[data-q='1'][data-k='3']")
    assert float(page.text_content("#weight")) == pytest.approx(weights[1, 3], abs=1 / 255)
    page.mouse.click(*centre(page, 2, 0, rows, columns))
    page.mouse.move(*centre(page, 0, 0, rows, columns))
    opened.settle()
    assert page.get_attribute("#weight", "data-q") == "2", "locked"
    assert "q=2" in page.url
    page.keyboard.press("Escape")
    opened.settle()
    assert "q=" not in page.url
    page.mouse.move(*centre(page, 0, 1, rows, columns))
    page.wait_for_selector("#weight[data-q='0'][data-k='1']")
    page.mouse.click(*centre(page, 0, 1, rows, columns))
    page.mouse.click(*centre(page, 0, 1, rows, columns))
    opened.settle()
    assert "q=" not in page.url, "a second click unlocks"


def test_all_by_keyboard(opened):
    page = opened.go("attention?block=cross")
    page.locator(".thumb[aria-selected=true]").focus()
    for key in ("ArrowDown", "End"):
        page.keyboard.press(key)
        opened.settle()
    assert "layer=1" in page.url
    assert "head=2" in page.url
    focused = page.evaluate(
        "() => document.activeElement.dataset.at + getComputedStyle(document.activeElement).outlineStyle"
    )
    assert focused == "1 2solid", "focus moves along, and is seen"
    assert "reversal" in page.text_content("#live")
    page.locator(".map-body").focus()
    keys = ["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]
    page.evaluate(PRESS, keys)  # faster than frames are drawn
    opened.settle()
    assert "q=1" in page.url
    assert "k=1" in page.url
    assert re.search(r"reads b at 1: 0\.\d{4}", page.text_content("#live"))
    assert page.locator(".inspector.locked").count() == 1
    page.keyboard.press("Escape")
    assert "q=" not in page.url


def test_the_address_holds_the_view(watched, shown):
    view = watched()
    page = view.open(f"{shown[0]}#attention?block=decoder&layer=1&head=1&q=2&k=0&view=table")
    assert page.locator("table.plain tbody tr").count() == 3
    assert page.get_attribute("#weight", "data-q") == "2"
    page.locator("nav a[data-screen=curves]").click()
    page.locator("svg.chart").first.wait_for()
    page.go_back()
    page.locator("table.plain").wait_for()
    assert "block=decoder&layer=1&head=1&q=2&k=0&view=table" in page.url
    view.go("attention?block=nothing&layer=999&head=999&q=x&k=99&step=12&view=none&%3Cscript%3E=1")
    assert page.locator("canvas.map-cells").count() == 1


def test_tokens_are_text_and_nothing_else(opened_with):
    made, _ = planted(sources=(*HOSTILE, "<eos>"), targets=("<bos>", *HOSTILE))
    made.header["model"]["name"] = HOSTILE[0]
    view = opened_with(made, name=HOSTILE[1], sentences=[HOSTILE[0]])
    for screen in SCREENS:
        view.go(screen)
    page = view.go("attention?view=table")
    assert page.evaluate("() => document.body.dataset.hit") is None
    titles = page.eval_on_selector_all("tbody .chip", "all => all.map(each => each.title + each.textContent)")
    shown = "\n".join(titles)
    for text in (HOSTILE[0], HOSTILE[1], "\\u{202e}abc", "שלום", "🙂", "x" * 200, "\\u{7}"):
        assert text in shown
    longest = page.eval_on_selector_all(
        "tbody .chip", "all => Math.max(...all.map(each => [...each.textContent].length))"
    )
    assert longest <= 18


PIXEL = """([q, k, rows, columns]) => {
  const canvas = document.querySelector(".map-cells");
  const [w, h] = [canvas.width / columns, canvas.height / rows];
  const data = canvas.getContext("2d").getImageData(k * w + w / 4, q * h + h / 4, w / 2, h / 2).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(data.slice(i, i + 3).join());
  return [...seen];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_masked_is_hatched_and_zero_is_the_background(watched, shown, scheme):
    view = watched(color_scheme=scheme)
    page = view.open(f"{shown[0]}#attention?block=decoder")
    for q, k in ((0, 1), (0, 2), (1, 2)):
        assert len(page.evaluate(PIXEL, [q, k, 3, 3])) > 1, "hatched"
    view.go("attention?block=cross")
    zero = page.evaluate(PIXEL, [0, 1, 3, 5])
    card = page.evaluate("() => getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert [f"rgb({zero[0].replace(',', ', ')})"] == [card]
    assert len(zero) == 1


def test_rows_and_columns_carry_their_tokens(opened):
    """Queries and keys differ in number; each query has the token that it reads and the one that it predicts."""
    page = opened.go("attention?block=cross&view=table")
    heads = page.eval_on_selector_all("tbody th .chip", "all => all.map(each => each.textContent)")
    tokens = page.eval_on_selector_all("tbody td:nth-child(2) .chip", "all => all.map(each => each.textContent)")
    assert heads == ["<bos>", "d", "c"]
    assert tokens == ["d", "c", "b"]
    opened.go("attention?block=cross")
    queries, keys = (page.locator(".strip").nth(i).locator(".token").all_text_contents() for i in (1, 0))
    assert queries == ["<bos>", "d", "c"]
    assert keys == ["a", "b", "c", "d", "<eos>"]


def test_one_place_is_lit_everywhere(opened, shown):
    page = opened.go(MAP)
    page.locator(".strip").nth(1).locator(".token").nth(1).hover()
    opened.settle()
    assert page.locator(".inspector h3 .chip").first.text_content() == "d"
    top = page.locator(".inspector .bars li").first
    best = int(shown[2]["cross"][1, 2, 1].argmax())
    assert top.locator(".at").text_content() == str(best)
    shade = page.locator(".strip").nth(0).locator(".token")
    assert shade.nth(best).evaluate("each => each.style.background") not in ("", "rgb(255, 255, 255)")


def test_steps_and_the_chances_under_a_temperature(opened, shown):
    logits = shown[1].buffers["logits"][1][1]
    page = opened.go("generate?step=1")
    assert page.text_content("#step") == "2"
    before = len(opened.requested)
    for temperature in (1.0, 2.0, 0.5):
        page.locator("[data-dial=temperature]").evaluate(
            "(dial, value) => { dial.value = value; dial.dispatchEvent(new Event('input')); }", temperature
        )
        p = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        figures = page.locator(".chances li:not(.rest) .figure").all_text_contents()
        result = [float(each.strip(" %<")) / 100 for each in figures]
        assert result == pytest.approx(sorted(p, reverse=True), abs=6e-4)
    assert len(opened.requested) == before, "nothing is asked for"
    page.locator("button[aria-label='Next step']").click()
    assert page.text_content("#step") == "3"


def test_parameters_add_up(opened, shown):
    page = opened.go("parameters")
    assert page.text_content("#total") == str(sum(row["count"] for row in shown[1].header["params"]))


def test_what_is_saved_holds_the_selection(opened, shown):
    page = opened.go(f"{MAP}&q=1&k=2")
    files = {}
    for kind in ("CSV", "SVG", "PNG"):
        name, files[kind] = saved(page, page.locator(".exports button", has_text=kind))
        assert name == f"planted-run-attention-cross-1-2.{kind.lower()}"
    rows = table(files["CSV"])
    weights = shown[2]["cross"][1, 2]
    assert len(rows) == weights.size
    for row in rows:
        assert float(row["weight"]) == pytest.approx(weights[int(row["query"]), int(row["key"])], abs=1 / 255)
    assert rows[7]["query_token"] == "d"
    assert rows[7]["predicted_token"] == "c"
    assert b'class="marked"' in files["SVG"]
    assert files["SVG"].count(b"<rect") >= weights.size
    width, height = struct.unpack(">II", files["PNG"][16:24])
    assert width > 200
    assert height > 100


def test_two_inputs_side_by_side(opened_with):
    """The difference of the two is shown where they are of one length; all maps are pointed at together."""
    one, weights = planted()
    other, _ = planted(sources=("d", "c", "b", "a", "<eos>"), targets=("<bos>", "a", "b", "c"))
    data = other.buffers["a.cross"][1]
    data[1, 2] = np.roll(data[1, 2], 1, axis=-1)
    longer, _ = planted(sources=("d", "c", "<eos>"))
    view = opened_with(one, other, longer)
    page = view.go(f"{MAP}&other=1")
    page.locator(".maps canvas.map-cells").nth(2).wait_for()
    boxes = [page.locator(".maps canvas.map-cells").nth(i).bounding_box() for i in range(3)]
    x, y = (boxes[0][side] + 2.5 * boxes[0][size] / n for side, size, n in (("x", "width", 5), ("y", "height", 3)))
    page.mouse.move(x, y)
    view.settle()
    page.mouse.move(x + boxes[2]["x"] - boxes[0]["x"], y + boxes[2]["y"] - boxes[0]["y"])
    view.settle()
    tip = page.locator(".maps .map-body").nth(2).get_attribute("data-tip")
    assert tip.rpartition(": ")[0].endswith("A − B"), "a difference is no weight"
    delta = weights["cross"][1, 2, 2, 2] - data[1, 2, 2, 2]
    assert float(tip.rpartition(": ")[2]) == pytest.approx(delta, abs=1e-3)
    page.locator(".picker", has_text="Compare with").locator("select").select_option("2")
    page.wait_for_selector("text=the texts differ in length")
    assert page.locator(".maps canvas.map-cells").count() == 2
    assert "other=2" in page.url


def test_a_head_of_the_table_is_opened_by_key(opened):
    page = opened.go("heads")
    page.locator("tbody .row-button", has_text="cross 1.2").focus()
    page.keyboard.press("Enter")
    opened.settle()
    assert "attention?block=cross&layer=1&head=2" in page.url
