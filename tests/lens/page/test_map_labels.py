"""Labels of a map: none lies over another, whatever the tokens are and however many; cells get what room is left."""

import itertools
import math

import pytest

from glassformer.lens.page.bundle import standalone
from lens.explored import planted

LAID = "cases => cases.map(each => modules['heatmap.js'].layout(...each, 560))"
DRAWN = """() => {
  window.drawn = [];
  const before = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const [name, { a, b, c, d, e, f }] = [this.canvas.className, this.getTransform()];
    const [turn, size] = [Math.atan2(-b, a), this.measureText(text).width * Math.hypot(a, b)];
    if (name.startsWith("map-")) window.drawn.push([name, text, a * x + c * y + e, b * x + d * y + f, turn, size]);
    before.call(this, text, x, y);
  };
}"""
LINE, SMALLEST, LARGEST = 10, 4, 44
SHAPES = ((1, 1), (4, 8), (24, 24), (40, 24), (6, 40), (200, 200))
NAMES = [f"{letter}-considerably-long" for letter in "abcdefghijklmnopqrstuvwxyz"]


def side(room, taken, rows, columns):
    """The largest cell that fits."""
    return min(LARGEST, (room - taken) // columns, 560 // rows)


def test_labels_are_a_line_apart_and_all_of_it_fits(opened):
    """For any widths, rows and columns: the laws of a layout, and no labels only where none would fit."""
    grid = itertools.product((8, 70, 90), (0, 60, 110), (7, 24, 90), SHAPES, (300, 440, 900))
    cases = [
        [{"read": read, "predicted": labels, "keys": keys}, *shape, room] for read, labels, keys, shape, room in grid
    ]
    kinds = set()
    for (widths, rows, columns, room), made in zip(cases, opened.page.evaluate(LAID, cases), strict=True):
        cell, turn = made["cell"], made["turn"]
        read, labels = widths["read"], widths["predicted"]
        kinds.add((made["labelled"], round(math.degrees(turn)), made["predicted"] > 0))
        assert cell == SMALLEST or made["margin"] + columns * cell + made["overhang"] <= room
        assert cell == SMALLEST or rows * cell <= 560
        if not made["labelled"]:
            assert cell == max(SMALLEST, side(room, 8, rows, columns))
            assert side(room, read + 14, rows, columns) < LINE
            continue
        assert cell >= LINE
        assert made["margin"] == read + made["predicted"] + 14
        assert made["predicted"] == labels or side(room, read + labels + 14, rows, columns) < LINE
        assert widths["keys"] <= cell - 2 if turn == 0 else cell * math.sin(turn) >= LINE - 0.11
        assert made["head"] >= (14 if turn == 0 else widths["keys"] * math.sin(turn))
        assert turn == 0 or made["overhang"] >= widths["keys"] * math.cos(turn) - 1
    assert kinds == {(True, turn, labels) for turn in (0, 45, 90) for labels in (True, False)} | {(False, 0, False)}


@pytest.mark.parametrize(("n", "turn", "message"), [(4, 45, True), (14, 90, True), (26, 90, False)])
def test_a_map_draws_its_labels_so(watched, tmp_path, n, turn, message):
    """Long tokens: the labels above are turned, those of neighbours a line apart, and end within the picture."""
    path, view = tmp_path / "long.html", watched()
    made, _ = planted(targets=("<bos>", *NAMES[:n]), layers=1, heads=1)
    path.write_text(standalone([made.to_bytes()], {"name": "long"}), "utf-8")
    view.open(path.as_uri())
    view.page.evaluate(DRAWN)
    view.go("#attention?block=decoder")
    drawn = view.page.evaluate("window.drawn")
    above = [each for each in drawn if each[0] == "map-top"][-n:]
    assert {round(math.degrees(each[4])) for each in above} == {turn}
    steps = [there[2] - here[2] for here, there in itertools.pairwise(above)]
    assert min(steps) * math.sin(math.radians(turn)) >= LINE - 0.11
    assert all(each[3] - each[5] * math.sin(each[4]) >= 0 for each in above)
    assert any(each[:2] == ["map-left", "→"] for each in drawn) == message
    assert not view.complaints


@pytest.mark.parametrize("n", [6, 24, 63])
def test_a_map_and_the_sums_beside_it_fit_in_their_card(watched, tmp_path, n):
    """Some sixty tokens are seen whole, with the names of the sums: no part of the map is behind a scroll bar."""
    path, view = tmp_path / "many.html", watched()
    made, _ = planted(targets=("<bos>", *(f"{NAMES[0][0]}{i}" for i in range(n))), layers=1, heads=1)
    path.write_text(standalone([made.to_bytes()], {"name": "many"}), "utf-8")
    for width in (1440, 1280, 1180, 1024):
        view.page.set_viewport_size({"width": width, "height": 1000})
        page = view.open(f"{path.as_uri()}#attention?block=decoder")
        page.reload()
        page.wait_for_selector(".map-right-name")
        view.settle()
        wide = page.evaluate("""() => {
          const place = document.querySelector(".map").closest(".scroll");
          return place.scrollWidth - place.clientWidth;
        }""")
        assert wide <= 0, width
