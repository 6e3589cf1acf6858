"""Names come from users: whatever is in them, every picture is drawn, and shows them as text."""

import io
import re
import warnings
import xml.etree.ElementTree as Tree
from pathlib import Path

import pytest
import torch

import glassformer
from glassformer.base.figures import as_label
from glassformer.lens.plot import plot_attention, plot_parameters, plot_positions
from glassformer.nn.count import Row
from glassformer.store.pictures import save_figure
from glassformer.study import plot
from glassformer.study.plot import Curves, draw_curves, draw_rates
from glassformer.train.run.trial import Found, Tried
from study.examples import result

pytest.importorskip("matplotlib")

NAMES = {
    "dollars": "price $1_{ to $2",
    "escaped dollars": r"a\$b\$ $\frac{",
    "underscore first": "_a_b_",
    "backslash": r"C:\new\table\x00",
    "control": "one\ntwo\ttab\x01\x7f\u2028end",
    "surrogate": "undecodable \udcff",
    "long": "very-" * 60 + "long",
    "right to left": "שלום עולם مرحبا",
    "glyphs": "模型 \U0001f916 \U00013000",
    "spaces": "   ",
    "percent": "100% & <b>bold</b> #1",
}


def curves(name: str) -> Curves:
    line = [(1, 1.0), (2, 0.1), (3, 0.001)]
    return Curves(name, {"loss": line}, {"loss": line}, 2)


def combinations(name: str) -> list:
    return [
        result({"data.text": value, "model.norm": other}, 1)
        for value in (name, "plain")
        for other in ("layer", f"{name}!")
    ]


DRAWINGS = {
    "curves of one run": lambda name: draw_curves([curves(name)], ["loss"]),
    "curves of two runs": lambda name: draw_curves([curves(name), curves("plain")], ["loss"], log=True),
    "a study's scores": lambda name: plot.figure_of(
        plot.summary(combinations(name)), "points", plot.names(combinations(name)), "text"
    ),
    "a study's curves": lambda name: plot.figure_of(
        plot.faceted(combinations(name), plot.curve, None), "lines", None, "step", "loss", "text"
    ),
    "attention": lambda name: plot_attention(torch.eye(2), [name, "b"], title=name),
    "positions": lambda name: plot_positions(length=4, d_model=4, title=name),
    "parameters": lambda name: plot_parameters([Row("head.weight", (2, 3), 6, 1.0, None)], title=name),
    "rates": lambda name: draw_rates(Found([Tried(0.001, 2.0, 2.0), Tried(0.1, 1.0, 1.0)], 0.1, 0.01)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)
def test_any_name_is_shown_as_it_is(drawing, name, tmp_path):
    figure = drawing(name)
    if drawing is not DRAWINGS["rates"]:
        shown = texts_of(save_figure(figure, tmp_path / "a.svg"))
        wanted = as_label(name, 16 if drawing is DRAWINGS["attention"] else 60).strip()
        assert any(wanted in each for each in shown), f"{wanted!r} is not in {shown}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(io.BytesIO(), format="svg")  # as a notebook shows it, with the user's own settings


@pytest.mark.parametrize("kind", ["png", "pdf"])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_files_of_pixels_and_pages_too(name, kind, tmp_path, caplog):
    assert save_figure(draw_curves([curves(name), curves("b")], ["loss"]), tmp_path / f"a.{kind}").stat().st_size > 1000
    lacking = [each.getMessage() for each in caplog.records]
    assert len(lacking) <= 1
    assert any("模型" in each and "as .svg" in each for each in lacking) == (name == NAMES["glyphs"])


def texts_of(file: Path) -> list[str]:
    return ["".join(each.itertext()) for each in Tree.parse(file).iter("{http://www.w3.org/2000/svg}text")]


def test_powers_of_ten_are_still_drawn_as_such(tmp_path):
    text = " ".join(texts_of(save_figure(draw_curves([curves("$a$")], ["loss"], log=True), tmp_path / "a.svg")))
    assert "$a$" in text
    assert "mathdefault" not in text


def test_labels_are_one_short_line_and_lose_nothing_in_silence():
    assert as_label("plain $name$ שלום") == "plain $name$ שלום"
    assert as_label("a\nb\x00\udcff") == r"a\nb\x00\udcff"
    assert as_label("a" * 61) == "a" * 29 + "…" + "a" * 30
    assert len(as_label("a" * 60)) == 60


def test_every_figure_is_finished():
    """A picture that forgets it would break on `$`."""
    for path in Path(glassformer.__file__).parent.rglob("*.py"):
        made = len(re.findall(r'matplotlib\("figure"\)', path.read_text("utf-8")))
        assert made <= len(re.findall(r"return finished\(figure", path.read_text("utf-8"))), path
