"""The page of a model that has just learned its task names what its heads do; that of an untrained one does not."""

import pytest

from glassformer import diagnose, trace
from glassformer.lens.page.bundle import standalone
from lens.explored import LETTERS
from lens.learners import backwards, learned, probe_of, untrained


def opened_page(watched, folder, model):
    """The overview of a model that was to reverse, in the browser."""
    found = diagnose(model, probe_of("encoder-decoder", backwards))
    made = trace(model, LETTERS, "badcf", gold="fcdab")
    made.header["heads"] = found.to_json()
    path = folder / "learned.html"
    path.write_text(standalone([made.to_bytes()], {"name": "reverse", "sentences": found.sentences}), "utf-8")
    return watched().open(path.as_uri())


@pytest.mark.slow
def test_a_model_that_reverses_is_named_so(watched, tmp_path):
    page = opened_page(watched, tmp_path, learned("encoder-decoder", backwards, 250, 2e-2))
    assert "6 of 6 tokens correct" in page.text_content(".answer")
    assert "reversal" in page.text_content(".diagnosis .sentence.first")
    found = page.locator(".diagnosis .found", has=page.locator(".role.strong", has_text="reversal"))
    assert found.count() >= 1
    assert found.first.locator("h3").text_content().startswith("cross")


def test_an_untrained_one_is_not(watched, tmp_path):
    page = opened_page(watched, tmp_path, untrained("encoder-decoder"))
    assert "No head has a role" in page.text_content(".diagnosis")
    assert "reversal" not in page.text_content(".diagnosis")
