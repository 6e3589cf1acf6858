"""What is told of a cell is what is shown: a weight, or a value-weighted share; and nothing of what is masked."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from lens.explored import page_of, planted
from lens.page.conftest import saved, table
from lens.page.test_large import words

HEAD = "attention?block=decoder&layer=1&head=2"


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """A trace that knows how much each key gives, as one file; the weights, and the shares of what is moved."""
    made, weights = planted()
    sizes = np.random.default_rng(1).uniform(0.2, 3, size=(2, 3, 3)).astype(np.float32)
    made.buffers["v.decoder"] = ("f32", sizes)
    made.header["attention"][1]["value_sizes"] = "v.decoder"
    shares = weights["decoder"] * sizes[:, :, None]
    address = page_of(tmp_path_factory.mktemp("told"), made)
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
    rows = table(data)
    assert [float(row["moved_share"]) for row in rows] == pytest.approx(list(shares[np.tril_indices(3)]), abs=1e-6)
    view.go(f"{HEAD}&of=moved&view=arcs")
    assert "value-weighted share" in page.text_content(".arcs figcaption")
    assert all(" takes from " in each for each in page.locator(".arc title").all_text_contents())
    view.go(f"{HEAD}&of=moved&view=table")
    assert "takes most from" in page.text_content(".detail thead")


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


def test_a_step_reads_nothing_that_is_masked(opened_with):
    made, _ = planted()
    made.header["attention"] = [made.header["attention"][1]]
    row = opened_with(made, place="generate?step=1").page.locator(".by-head tbody tr").first.locator("td")
    assert [each.get_attribute("title").endswith(": masked") for each in row.all()] == [False, False, True]
    assert "gradient" in row.nth(2).evaluate("each => getComputedStyle(each).backgroundImage")


# --- Maps of very many cells are saved as one picture: in a moment, in a file that other programs open


SVG = "{http://www.w3.org/2000/svg}"
POINTS = """async href => {
  const image = new Image();
  image.src = href;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  return [image.width, image.height, [...pen.getImageData(0, 0, image.width, image.height).data]];
}"""
LIGHT = """() => {
  const { ofLevel } = modules["colour.js"];
  return Array.from({length: 256}, (_, level) => [...ofLevel(level, "light"), 255]);
}"""


def dense(watched, tmp_path, n, **settings):
    """A page with a causal map of n tokens, open, and the weights."""
    made, weights = planted(("a", "<eos>"), ("<bos>", *words(n)), layers=1, heads=1, encoding="sqrt255")
    view = watched(**settings)
    view.open(page_of(tmp_path, made), "attention?block=decoder&q=40&k=20")
    return view, weights["decoder"][0, 0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_large_map_is_saved_as_one_picture(watched, tmp_path, scheme):
    """Each weight a point of it, in the light colours; what may not be read is hatched, and the mark stays a shape."""
    view, weights = dense(watched, tmp_path, 65, color_scheme=scheme)
    picture = ET.fromstring(saved(view.page, view.page.locator(".exports button", has_text="SVG"))[1])
    (image,) = picture.iter(f"{SVG}image")
    wide, tall, points = view.page.evaluate(POINTS, image.get("href"))
    assert (wide, tall) == weights.shape
    colours = np.array(view.page.evaluate(LIGHT))
    assert (np.array(points).reshape(65, 65, 4) == colours[np.rint(255 * np.sqrt(weights)).astype(int)]).all()
    (hatched,) = (each for each in picture.iter(f"{SVG}path") if each.get("fill") == "url(#hatch)" and each.get("d"))
    left, top, cell = float(image.get("x")), float(image.get("y")), float(image.get("width")) / 65
    assert hatched.get("d").startswith(f"M{left + cell:g} {top:g}h{64 * cell:g}v{cell:g}H")
    assert hatched.get("d").count("M") == 64
    (mark,) = (each for each in picture.iter(f"{SVG}rect") if each.get("class") == "marked")
    assert float(mark.get("y")) == pytest.approx(top + 40 * cell)


@pytest.mark.slow
def test_the_largest_map_is_saved(watched, tmp_path):
    """512 tokens, 262,144 cells: as many shapes are more than a browser puts into a drawing at once."""
    view, _ = dense(watched, tmp_path, 512)
    assert len(saved(view.page, view.page.locator(".exports button", has_text="SVG"))[1]) < 2_000_000
    assert saved(view.page, view.page.locator(".exports button", has_text="PNG"))[1].startswith(b"\x89PNG")
