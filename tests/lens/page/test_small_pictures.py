"""The small pictures of all heads: their colours, the bar below them, and another theme."""

import numpy as np
import pytest

from lens.explored import planted

AT = """([layer, head, rows, columns]) => {
  const row = document.querySelectorAll(".heads-grid .row")[layer];
  const [canvas, thumb] = [row.querySelector("canvas"), row.querySelectorAll(".thumb")[head]];
  const [wide, tall] = [thumb.offsetWidth - 4, canvas.height - 10];
  const pen = canvas.getContext("2d");
  return Array.from({length: rows * columns}, (_, i) => {
    const x = thumb.offsetLeft + 2 + ((i % columns) + 0.5) * wide / columns;
    const y = 2 + (Math.floor(i / columns) + 0.5) * tall / rows;
    const [r, g, b] = pen.getImageData(x, y, 1, 1).data;
    return `rgb(${r} ${g} ${b})`;
  });
}"""
COLOURS = """() => {
  const { rgb, ofLevel } = modules["colour.js"];
  return Array.from({length: 256}, (_, level) => rgb(ofLevel(level)));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_head_has_its_own_picture(watched, shown, scheme):
    """Every cell of every head, in its colour; also after the theme has been changed and changed back."""
    weights = shown[2]["cross"]
    layers, heads, rows, columns = weights.shape
    view = watched(color_scheme=scheme)
    page = view.open(f"{shown[0]}#attention?block=cross")
    themes = []
    for _ in range(2):
        colours = page.evaluate(COLOURS)
        themes.append(colours)
        levels = np.rint(255 * np.sqrt(weights)).astype(int)
        for layer in range(layers):
            for head in range(heads):
                wanted = [colours[level] for level in levels[layer, head].flat]
                assert page.evaluate(AT, [layer, head, rows, columns]) == wanted, (layer, head)
        page.locator("button.theme").click()
        view.settle()
    assert themes[0][0] != themes[1][0]


def test_lines_follow_the_theme(watched, shown):
    """What is hatched after a change of theme is hatched as in a page that began with it."""
    cells = "() => document.querySelector('.map-cells').toDataURL()"
    view, dark = watched(color_scheme="light"), watched(color_scheme="dark")
    view.open(f"{shown[0]}#attention?block=decoder").locator("button.theme").click()
    view.settle()
    began = dark.open(f"{shown[0]}#attention?block=decoder").evaluate(cells)
    assert view.page.evaluate(cells) == began


def test_a_bar_says_what_is_lost_without_the_head(opened):
    """As long, of the picture's width, as the share that is lost; none where nothing is known or lost."""
    page = opened.go("attention?block=cross")
    made, _ = planted()
    result = {(head["layer"], head["head"]): head for head in made.header["heads"] if head["block"] == "cross"}
    lost = {at: head["ablation"]["base"] - head["ablation"]["value"] for at, head in result.items() if head["ablation"]}
    assert lost
    for thumb in page.locator(".thumb").all():
        at = tuple(map(int, thumb.get_attribute("data-at").split()))
        bar = thumb.locator(".lost")
        if lost.get(at, 0) <= 0:
            assert bar.count() == 0
            continue
        wide = thumb.evaluate("each => each.offsetWidth") - 4
        assert bar.evaluate("each => each.getBoundingClientRect().width") == pytest.approx(wide * lost[at], abs=0.1)
        assert "lost without it" in thumb.get_attribute("aria-label")
