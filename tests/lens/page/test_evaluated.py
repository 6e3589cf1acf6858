"""The figures of the last evaluation, on the overview: all of them stand in their card, whatever the window's width."""

import itertools

import pytest

from glassformer.lens.page.bundle import standalone
from lens.explored import planted
from lens.page.conftest import METRICS

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
    folder, trace = tmp_path_factory.mktemp("evaluated"), planted()[0].to_bytes()
    for name, figures in KINDS.items():
        metrics = [*METRICS[:-1], {"kind": "dev", "step": 30, "n": 50302, **figures}]
        (folder / f"{name}.html").write_text(standalone([trace], {"name": name, "metrics": metrics}), "utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in KINDS}


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
