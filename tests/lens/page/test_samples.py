"""What a run wrote at its evaluations, on the screen of its curves: the newest, any other, and what comes meanwhile."""

import json

import pytest

from glassformer.lens.trace.make import trace
from lens.explored import BOTH, page_of, small, toy

pytestmark = pytest.mark.slow

SHOWN = "document.querySelector('.sample').textContent"


def wrote(run, step, text):
    """An evaluation, as training leaves it."""
    (run / "samples").mkdir(exist_ok=True)
    (run / "samples" / f"step-{step:09d}.txt").write_text(text)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "dev", "step": step, "loss": 1 / step, "n": 1}) + "\n")


def test_the_newest_any_other_and_what_comes(watched, serving, tmp_path):
    wrote(tmp_path, 10, "source  a b\noutput  b a   (right)\n")
    wrote(tmp_path, 20, "source  a b\noutput  \u202eb <b>\n")
    view = watched()
    with serving(toy("abc", run=tmp_path)) as address:
        page = view.open(address, "curves")
        page.wait_for_function(f"() => {SHOWN}.includes('<b>')")
        assert page.text_content(".sample") == "source  a b\noutput  \\u{202e}b <b>"
        wrote(tmp_path, 30, "the third\n")
        page.wait_for_function(f"() => {SHOWN} === 'the third'")
        page.locator(".samples select").select_option("10")
        assert page.text_content(".sample").endswith("(right)")
        wrote(tmp_path, 40, "the fourth\n")
        page.wait_for_selector(".samples option[value='40']", state="attached")
        assert page.text_content(".sample").endswith("(right)"), "what was chosen stays"


def test_a_copy_has_them(watched, tmp_path):
    made, metrics = trace(small(), BOTH, "abc"), [{"kind": "dev", "step": 1, "loss": 1.0}]
    result = [{"step": 1, "text": "so it wrote", "cut": True}]
    view = watched()
    page = view.open(page_of(tmp_path, made, metrics=metrics, samples=result), "curves")
    page.wait_for_function(f"() => {SHOWN}.startsWith('so it wrote')")
    assert "The rest is in the run's folder samples" in page.text_content(".sample")
    view.go("overview")
    page_of(tmp_path, made, metrics=metrics)
    page.reload()
    view.go("curves")
    assert page.locator(".samples").is_hidden()
