"""At the limits: beams of very many beginnings, pictures that no browser makes, traces beyond what a page keeps."""

import pytest

from glassformer.data.dataset import Tokenizers
from glassformer.lens.page.bundle import standalone
from glassformer.lens.server.subject import Subject
from lens.explored import LETTERS, planted, small
from lens.page.conftest import lacks


def test_rows_of_what_is_not_drawn_are_not_kept(watched, tmp_path):
    """700 beginnings that came to nothing lie between two answers: two rows are drawn, one below the other."""
    made, _ = planted()
    nodes = [{"token": 0, "parent": -1, "p": 0.5, "log_p": -1.0}]
    nodes += [{"token": 1, "parent": 0, "p": 0.1, "log_p": -2.0 - i} for i in range(700)]
    nodes += [{"token": 2, "parent": 0, "p": 0.1, "log_p": -2.0, "score": -1.0, "rank": 0}]
    nodes += [{"token": 3, "parent": -1, "p": 0.1, "log_p": -2.0, "score": -2.0, "rank": 1}]
    made.header["beams"] = {"width": 2, "nodes": nodes}
    path = tmp_path / "beam.html"
    path.write_text(standalone([made.to_bytes()], {"name": "wide"}), "utf-8")
    view = watched()
    page = view.open(f"{path.as_uri()}#generate")
    boxes = page.locator(".beam-node")
    assert [each.get_attribute("data-place") for each in boxes.all()] == ["0", "701", "702"]
    assert float(page.get_attribute(".beam-tree", "height")) == 2 * 28 + 2 * 6
    assert "3 of 703" in page.text_content(".beams")


def test_a_picture_that_cannot_be_made_is_told_of(opened):
    page = opened.go("curves")
    page.evaluate("() => { HTMLCanvasElement.prototype.toBlob = done => done(null); }")
    page.locator("main .exports button", has_text="PNG").first.click()
    page.wait_for_selector(".exports .told:has-text('Save it as SVG')")
    assert not opened.complaints


def test_a_page_keeps_eight_traces_and_no_failure(watched, serving):
    examples = [(LETTERS.decode([5 + i]), None) for i in range(10)]
    subject = Subject("toy", small(n_layers=1), Tokenizers(LETTERS, LETTERS), examples=examples)
    with serving(subject) as address:
        view = watched()
        page = view.open(address)
        view.go("parameters")
        asked = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/header") else None)
        page.route("**/api/trace/9/header", lambda route: route.abort(), times=1)
        page.evaluate("() => { location.hash = 'parameters?trace=9'; }")
        page.wait_for_selector(".problem")
        for trace in (0, 9, *range(1, 9), 1, 9):
            view.go(f"parameters?trace={trace}")
            page.wait_for_selector("h2:has-text('tensors')")
        again = [url.split("/")[-2] for url in asked]
        assert again.count("9") == 3, "it failed, came, and was forgotten"
        assert again.count("1") == 0, "Overview had asked for it"


@pytest.mark.parametrize(("where", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_where_every_push_is_tested(monkeypatch, where, outcome):
    monkeypatch.setenv("CI", where)
    with pytest.raises(outcome, match="no browser"):
        lacks("no browser")


def test_checkpoints_lead_on_and_keep_what_is_chosen(watched, tmp_path):
    """From Curves to Heads and Attention, of the same input."""
    metrics = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 101)]
    traces = [planted(sources=(letter, "b", "c", "d", "<eos>"))[0].to_bytes() for letter in "ab"]
    path = tmp_path / "kept.html"
    path.write_text(
        standalone(traces, {"name": "kept", "metrics": metrics, "checkpoints": True, "kept": [50]}), "utf-8"
    )
    view = watched()
    page = view.open(path.as_uri())
    for at, screen in ((".chart .kept", "heads"), (".leads a >> nth=0", "attention"), (".leads a >> nth=1", "heads")):
        view.go("curves?trace=1&other=0&smooth=0")
        page.locator(at).click()
        page.wait_for_function("name => location.hash.startsWith('#' + name)", arg=screen)
        view.settle()
        assert page.url.partition("?")[2] == "trace=1&other=0&smooth=0"
