"""The axes of a chart: three to six round numbers, each told in full, whatever the range; none is cut or covered."""

import itertools
import math
import random

import pytest

from lens.explored import page_of, planted
from lens.page.conftest import METRICS

PLACES = """ranges => ranges.map(each => {
  const { places, written } = modules["chart.js"];
  return places(...each).map(at => [at, written(at)]);
})"""
LABELS = """place => [...document.querySelectorAll(`${place} svg.chart`)].map(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].map(each => {
    const { left, right, top, bottom } = each.getBoundingClientRect();
    const inside = left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom;
    const [y, tall] = [(top + bottom) / 2, bottom - top];
    return { text: each.textContent, up: each.getAttribute("text-anchor") === "end", inside, left, right, y, tall };
  });
})"""
FALLS = [
    (4.6, 1.6), (4.7, 2.004), (11.2, 0.02), (1.9, 1.1), (2.0007, 2.0004), (2.0000005, 2), (1.3e6, 8e5), (3e-5, 2e-9),
]  # fmt: skip


def ranges():
    """Known ranges and others by chance: from a few parts in a million to twelve decades."""
    chance = random.Random(0)
    lows = [10 ** chance.uniform(-8, 5) for _ in range(400)]
    known = [(1.6, 4.6), (2.004, 4.7), (1.01, 9.9), (2.01, 19.9), (5.01, 49.9), (0.1, 1), (1, 1e6), (1e-12, 100)]
    narrow = [(low, low * (1 + 10 ** chance.uniform(-5, 0))) for low in lows]
    return known + narrow + [(low, low * 10 ** chance.uniform(0.01, 12)) for low in lows]


def digits(number):
    """How many of its decimal digits are significant."""
    return len(f"{number:.11e}".split("e")[0].replace(".", "").rstrip("0"))


@pytest.mark.parametrize("log", [True, False], ids=["log", "linear"])
def test_any_range_has_three_to_six_round_places(opened, log):
    wanted = ranges()
    for (low, high), found in zip(wanted, opened.page.evaluate(PLACES, [[*each, log] for each in wanted]), strict=True):
        at = [place for place, _ in found]
        assert 3 <= len(at) <= 6, (low, high, at)
        assert at == sorted(set(at))
        slack = 1e-8 * (high - low)
        assert low - slack <= at[0]
        assert at[-1] <= high + slack
        assert [float(text) for _, text in found] == at, "a label is its place, not another one nearby"
        rough = max(0, math.ceil(math.log10(high / (high - low))))
        assert max(map(digits, at)) <= 3 + rough, (low, high, at)


def test_a_log_scale_of_decades_is_even_to_the_eye(opened):
    """From 1, 2, 5, 10, ... none is left out between two others."""
    requested = [each for each in ranges() if each[1] >= 10 * each[0]]
    for found in opened.page.evaluate(PLACES, [[*each, True] for each in requested]):
        steps = [b / a for (a, _), (b, _) in itertools.pairwise(found)]
        assert max(steps) <= 1.26 * min(steps), found


@pytest.fixture(scope="module")
def falling(tmp_path_factory):
    """Pages of runs whose loss fell from one number to another."""
    folder, trace = tmp_path_factory.mktemp("axis"), planted()[0]
    found = []
    for name, (first, last) in enumerate(FALLS):
        losses = [first * (last / first) ** (step / 39) for step in range(40)]
        metrics = [
            {"kind": "train", "step": 100 * step, "loss": loss, "grad_norm": loss}
            for step, loss in enumerate(losses, 1)
        ]
        found.append(page_of(folder, trace, name=str(name), metrics=metrics))
    return found


def test_charts_of_a_loss_have_labels_that_can_be_read(watched, falling):
    """On the overview and among the curves; what lies outside of the drawing is missing from a saved one."""
    view = watched()
    for address in falling:
        view.open(address)
        for place, charts in (("overview .learned", 1), ("curves", 2), ("curves?axis=linear", 2)):
            drawn = view.go(place.split()[0]).evaluate(LABELS, f".{place.split('?')[0]}")
            assert len(drawn) == charts
            for labels in drawn:
                up = [each for each in labels if each["up"]]
                across = [each for each in labels if not each["up"]]
                assert 3 <= len(up) <= 6, up
                assert 3 <= len(across) <= 6, across
                assert all(each["inside"] for each in labels), labels
                assert len({each["text"] for each in up}) == len(up)
                assert all(above["y"] <= below["y"] - 0.7 * below["tall"] for below, above in itertools.pairwise(up))
                assert all(a["right"] < b["left"] for a, b in itertools.pairwise(across))


# --- The figures of the last evaluation, on the overview: all of them stand in their card, whatever the window's width


WIDTHS = (1920, 1440, 1280, 1100, 1024, 901, 700, 390, 320)
LM = {"loss": 1.73, "perplexity": 5.62, "bits_per_byte": 2.48, "bits_per_character": 2.49, "word_perplexity": 43509.7}
PAIRS = {"exact_match": 0.41, "token_accuracy": 0.68, "loss": 0.19, "bleu": 49.6, "bleu_lowercase": 50.1, "chrf": 75.4}
KINDS = {"lm": LM, "seq2seq": PAIRS, "one": {"loss": 0.19}}
FIGURES = """() => {
  const card = document.querySelector(".learned");
  const [box, style] = [card.getBoundingClientRect(), getComputedStyle(card)];
  const [left, right] = [box.left + parseFloat(style.paddingLeft), box.right - parseFloat(style.paddingRight)];
  const range = document.createRange();
  return [...card.querySelectorAll("dl > div")].map(each => [...each.children].map(part => {
    range.selectNodeContents(part);
    const text = range.getBoundingClientRect();
    const inside = text.left >= left - 0.5 && text.right <= right + 0.5 && card.scrollWidth <= card.clientWidth;
    return { text: part.textContent, inside, left: text.left, right: text.right, top: text.top, bottom: text.bottom };
  }));
}"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The address of a page for each kind of evaluation."""
    folder, trace, found = tmp_path_factory.mktemp("evaluated"), planted()[0], {}
    for name, figures in KINDS.items():
        metrics = [*METRICS[:-1], {"kind": "dev", "step": 30, "n": 50302, **figures}]
        found[name] = page_of(folder, trace, name=name, metrics=metrics)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_figures_stand_in_their_card(watched, pages, kind):
    view = watched()
    page = view.open(pages[kind])
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        view.settle()
        found = page.evaluate(FIGURES)
        assert [name["text"] for name, _ in found] == [each.replace("_", " ") for each in KINDS[kind]]
        assert all(part["inside"] for pair in found for part in pair), (width, found)
        assert page.evaluate(WIDER) <= 0, width
        assert all(name["bottom"] <= figure["top"] + 4 for name, figure in found), "a name stands above its figure"
        for (_, one), (name, other) in itertools.pairwise(found):
            same = one["top"] == other["top"]
            assert one["right"] < name["left"] if same else one["bottom"] <= name["top"], (width, one, other)


# --- Labels of a map: none lies over another, whatever the tokens are and however many; cells get what room is left


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
def test_a_map_draws_its_labels_so(opened_with, n, turn, message):
    """Long tokens: the labels above are turned, those of neighbours a line apart, and end within the picture."""
    view = opened_with(planted(targets=("<bos>", *NAMES[:n]), layers=1, heads=1)[0])
    view.page.evaluate(DRAWN)
    view.go("#attention?block=decoder")
    drawn = view.page.evaluate("window.drawn")
    above = [each for each in drawn if each[0] == "map-top"][-n:]
    assert {round(math.degrees(each[4])) for each in above} == {turn}
    steps = [there[2] - here[2] for here, there in itertools.pairwise(above)]
    assert min(steps) * math.sin(math.radians(turn)) >= LINE - 0.11
    assert all(each[3] - each[5] * math.sin(each[4]) >= 0 for each in above)
    assert any(each[:2] == ["map-left", "→"] for each in drawn) == message


@pytest.mark.parametrize("n", [6, 24, 63])
def test_a_map_and_the_sums_beside_it_fit_in_their_card(watched, tmp_path, n):
    """Some sixty tokens are seen whole, with the names of the sums: no part of the map is behind a scroll bar."""
    view = watched()
    made, _ = planted(targets=("<bos>", *(f"{NAMES[0][0]}{i}" for i in range(n))), layers=1, heads=1)
    address = page_of(tmp_path, made)
    for width in (1440, 1280, 1180, 1024):
        view.page.set_viewport_size({"width": width, "height": 1000})
        page = view.open(f"{address}#attention?block=decoder")
        page.reload()
        page.wait_for_selector(".map-right-name")
        view.settle()
        wide = page.evaluate("""() => {
          const place = document.querySelector(".map").closest(".scroll");
          return place.scrollWidth - place.clientWidth;
        }""")
        assert wide <= 0, width
