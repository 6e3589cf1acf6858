"""No screen scrolls sideways, however long titles are and many heads: in a window of 320 pixels, and in wide ones."""

import pytest

from glassformer.data.dataset import Tokenizers
from glassformer.lens.ablate import silence
from glassformer.lens.page.bundle import standalone
from glassformer.lens.server.subject import Subject
from lens.explored import LETTERS, SCREENS, planted, small
from lens.page.conftest import METRICS
from lens.page.test_live import PAST

pytestmark = pytest.mark.slow

WINDOW = {"width": 320, "height": 640}
LONG = [(6 * "abcdefghij")[:size] for size in (60, 59, 60)]
PLACES = (*SCREENS, "attention?view=arcs", "attention?view=table", "attention?other=1", "heads?other=1",
          "generate?other=1", "curves?curves=table")  # fmt: skip
WIDE = """() => {
  const width = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll("body *")].filter(each => each.getBoundingClientRect().right > width + 1
    && !each.closest(".scroll, .unseen, #bar nav, .heads-grid, .steps, option"));
  return document.documentElement.scrollWidth <= width ? [] : out.map(each => each.outerHTML.slice(0, 90));
}"""


def fits(view, places):
    """Each of these screens is as wide as the window."""
    for place in places:
        page = view.go(place)
        page.wait_for_function("screen => location.hash.includes(screen)", arg=place)
        wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (place, page.evaluate(WIDE))


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A file of inputs with long titles, of a model with a long name."""
    path = tmp_path_factory.mktemp("narrow") / "long.html"
    traces = [planted(sources=[*(len(text) * "W"), "<eos>"], heads=8)[0] for text in LONG]
    for made in traces:
        made.header["model"] |= {"kind": "encoder-decoder", "params": 123_456_789, "pos": "rotary-with-a-long-name"}
    figures = {"perplexity": 12.5, "bits_per_byte": 1.2, "bits_per_character": 1.25}
    metrics = [*METRICS[:-1], METRICS[-1] | figures]
    facts = {"name": "a-run-with-quite-a-long-name-2026", "metrics": metrics, "history": PAST, "checkpoints": True}
    path.write_text(standalone([each.to_bytes() for each in traces], facts), "utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [320, 1024, 1280])
def test_a_file(watched, copied, width):
    view = watched()
    view.page.set_viewport_size(WINDOW | {"width": width})
    view.open(copied)
    fits(view, PLACES)


def test_live(watched, serving):
    subject = Subject(
        "toy", small(n_heads=8, n_layers=1), Tokenizers(LETTERS, LETTERS), silence=silence,
        examples=[(text, None) for text in LONG],
    )  # fmt: skip
    with serving(subject) as address:
        view = watched()
        view.page.set_viewport_size(WINDOW)
        page = view.open(address)
        fits(view, PLACES)
        view.go("ablations")
        page.check("[data-head='cross 0 1']")
        page.locator("#ablate").click()
        page.locator(".moved-heads").wait_for(timeout=30_000)
        fits(view, ["ablations?out=cross-0-1"])
