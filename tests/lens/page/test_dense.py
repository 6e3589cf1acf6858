"""Maps of very many cells are saved as one picture: in a moment, in a file that other programs open."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from lens.explored import page_of, planted
from lens.page.conftest import saved
from lens.page.test_large import words

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


def opened_with(watched, tmp_path, n, **settings):
    """A page with a causal map of n tokens, open, and the weights."""
    made, weights = planted(("a", "<eos>"), ("<bos>", *words(n)), layers=1, heads=1, encoding="sqrt255")
    address = page_of(tmp_path, [made.to_bytes()], {"name": "dense"})
    view = watched(**settings)
    view.open(f"{address}#attention?block=decoder&q=40&k=20")
    return view, weights["decoder"][0, 0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_large_map_is_saved_as_one_picture(watched, tmp_path, scheme):
    """Each weight a point of it, in the light colours; what may not be read is hatched, and the mark stays a shape."""
    view, weights = opened_with(watched, tmp_path, 65, color_scheme=scheme)
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
    assert not view.complaints


@pytest.mark.slow
def test_the_largest_map_is_saved(watched, tmp_path):
    """512 tokens, 262,144 cells: as many shapes are more than a browser puts into a drawing at once."""
    view, _ = opened_with(watched, tmp_path, 512)
    assert len(saved(view.page, view.page.locator(".exports button", has_text="SVG"))[1]) < 2_000_000
    assert saved(view.page, view.page.locator(".exports button", has_text="PNG"))[1].startswith(b"\x89PNG")
    assert not view.complaints
