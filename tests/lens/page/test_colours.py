"""Colours in both themes: what is coloured follows a change of theme, and what stands on it can be read."""

import re

import numpy as np
import pytest

from glassformer.cli.explore import between
from lens.explored import page_of, planted, toy
from lens.page.test_access import luminance, ratio

pytestmark = pytest.mark.slow

COLOURED = """name => [...document.querySelectorAll(name)].map(each => {
  const { backgroundColor, color } = getComputedStyle(each);
  return [backgroundColor, color];
})"""
PLACES = {
    "attention?other=1&block=cross&q=1": ".patches .lens td",
    "attention?block=cross&q=1": ".strips .token, .legend .ramp i, .inspector .bar i",
    "generate": ".lens td",
}
WRITTEN = """() => {
  window.written = [];
  const before = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.canvas.className === "map-cells") {
      const [r, g, b] = this.getImageData(x - 12, y - 12, 1, 1).data;
      window.written.push([text, `rgb(${r}, ${g}, ${b})`, this.fillStyle]);
    }
    before.call(this, text, x, y);
  };
}"""


def parts(colour):
    """Red, green and blue of a colour as the browser computes it, of "#rrggbb", too."""
    if colour.startswith("#"):
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return [float(each) for each in re.findall(r"[\d.]+", colour)[:3]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two traces with what carries the difference between them, as one file."""
    traces, patches = between(toy(), ("abc", "abd"))
    known = [{"traces": ["0", "1"], **patches}]
    return page_of(tmp_path_factory.mktemp("colours"), *traces, live=False, patches=known)


def test_what_is_coloured_follows_the_theme(watched, pair):
    """Tokens, cells and bars after a change of theme are those of a page that began with it."""
    view, dark = watched(color_scheme="light"), watched(color_scheme="dark")
    view.open(pair)
    dark.open(pair)
    for place, names in PLACES.items():
        before = view.go(place).evaluate(COLOURED, names)
        view.page.locator("button.theme").click()
        view.settle()
        after = view.page.evaluate(COLOURED, names)
        assert len(after) >= 8, place
        assert after != before, place
        assert after == dark.go(place).evaluate(COLOURED, names), place
        view.page.locator("button.theme").click()
        view.settle()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_of_a_difference_can_be_read(watched, tmp_path, scheme):
    """A − B from -0.9 to 0.9: 4.5 to 1 (WCAG 2.2)."""
    one, other = planted(), planted()
    for (made, _), mirrored in ((one, False), (other, True)):
        rows = np.array([[0.05, 0.8, 0.05, 0.05, 0.05], [0.9, 0.025, 0.025, 0.025, 0.025], [0.3, 0.1, 0.3, 0.15, 0.15]])
        made.buffers["a.cross"][1][:] = rows[:, ::-1] if mirrored else rows
    view = watched(color_scheme=scheme)
    page = view.open(page_of(tmp_path, one[0], other[0]))
    page.evaluate(WRITTEN)
    view.go("attention?block=cross&other=1")
    found = page.evaluate("() => window.written")
    assert [each for each in found if each[0].startswith("-")]
    for text, ground, ink in found:
        assert ratio(luminance(parts(ground)), luminance(parts(ink))) >= 4.5, (text, ground, ink)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_of_the_loss_stand_out(watched, pair, scheme):
    """3 to 1 against their card, as graphics have to (WCAG 2.2, 1.4.11)."""
    page = watched(color_scheme=scheme).open(f"{pair}#generate")
    bar, opacity, card = page.evaluate(
        """() => {
          const { backgroundColor, opacity } = getComputedStyle(document.querySelector(".step:not(.wrong) .loss"));
          return [backgroundColor, opacity, getComputedStyle(document.querySelector("main .card")).backgroundColor];
        }"""
    )
    share = float(opacity)
    seen = [share * a + (1 - share) * b for a, b in zip(parts(bar), parts(card), strict=True)]
    assert ratio(luminance(seen), luminance(parts(card))) >= 3
