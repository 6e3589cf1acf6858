"""The axes of a chart: three to six round numbers, each told in full, whatever the range; none is cut or covered."""

import itertools
import math
import random

import pytest

from glassformer.lens.page.bundle import standalone
from lens.explored import planted

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
    (4.6, 1.6),
    (4.7, 2.004),
    (11.2, 0.02),
    (1.9, 1.1),
    (2.0007, 2.0004),
    (2.0000005, 2),
    (1.3e6, 8e5),
    (3e-5, 2e-9),
]


def ranges():
    """Known ranges and others by chance: from a few parts in a million to twelve decades."""
    chance = random.Random(0)
    lows = [10 ** chance.uniform(-8, 5) for _ in range(400)]
    known = [(1.6, 4.6), (2.004, 4.7), (1.01, 9.9), (2.01, 19.9), (5.01, 49.9), (0.1, 1), (1, 1e6), (1e-12, 100)]
    narrow = [(low, low * (1 + 10 ** chance.uniform(-5, 0))) for low in lows]
    wide = [(low, low * 10 ** chance.uniform(0.01, 12)) for low in lows]
    return known + narrow + wide


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
    folder, trace = tmp_path_factory.mktemp("axis"), planted()[0].to_bytes()
    found = []
    for name, (first, last) in enumerate(FALLS):
        losses = [first * (last / first) ** (step / 39) for step in range(40)]
        metrics = [
            {"kind": "train", "step": 100 * step, "loss": loss, "grad_norm": loss}
            for step, loss in enumerate(losses, 1)
        ]
        found.append(folder / f"{name}.html")
        found[-1].write_text(standalone([trace], {"name": "run", "metrics": metrics}), "utf-8")
    return [each.as_uri() for each in found]


def test_charts_of_a_loss_have_labels_that_can_be_read(watched, falling):
    """On the overview and among the curves; what lies outside of the drawing is missing from a saved one."""
    view = watched()
    for address in falling:
        view.open(address)
        for place, charts in (("overview .learned", 1), ("curves", 2), ("curves?axis=linear", 2)):
            page = view.go(place.split()[0])
            drawn = page.evaluate(LABELS, f".{place.split('?')[0]}")
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
