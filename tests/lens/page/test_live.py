"""The served page in a browser, with a model behind it: what it shows is what Python says."""

from dataclasses import replace

import pytest

from glassformer import answer, trace
from glassformer.decode.answer import nothing
from glassformer.decode.settings import Sampling
from glassformer.lens.ablate import silence
from lens.explored import BOTH, LETTERS, SCREENS, small, toy

pytestmark = pytest.mark.slow

PAST = {
    "steps": [10, 20, 30],
    "heads": [
        {"id": "x.0.1", "block": "cross", "layer": 0, "head": 1, "role": "reversal", "scores": [0.1, 0.5, 0.9]},
        {"id": "x.0.2", "block": "cross", "layer": 0, "head": 2, "role": "reversal", "scores": [0.1, None, 0.2]},
        {"id": "d.0.0", "block": "decoder", "layer": 0, "head": 0, "role": "previous", "scores": [-0.1, 0.0, 0.3]},
    ],
}


@pytest.fixture(scope="module")
def subject():
    model = small(n_layers=1)
    sources = [LETTERS.encode(text) for text in ("ab", "ba", "cd")]
    rights = [each.ids for each in answer(model, sources, max_new_tokens=4)]

    def score(poll=nothing):
        found = answer(model, sources, max_new_tokens=4, poll=poll)
        return "exact_match", sum(each.ids == right for each, right in zip(found, rights, strict=True)) / 3, 3

    return toy("abc", model=model, history=lambda: PAST, silence=silence, score=score)


def test_every_screen_asks_this_server_alone(watched, served):
    view = watched()
    page = view.open(served)
    assert "token" not in page.url, "the token does not stay in the address"
    for screen in SCREENS:
        view.go(screen)
        page.locator("main .card").first.wait_for()
    origin = served.partition("/#")[0]
    assert all(url.startswith((origin, "data:", "blob:")) for url in view.requested)
    page.reload()
    page.wait_for_selector("body[data-ready=yes]")


def test_without_the_token_nothing_is_shown(watched, served):
    view = watched()
    page = view.open(served.partition("#")[0])
    assert page.get_attribute("body", "data-ready") == "failed"
    assert "token" in page.text_content("main")
    view.complaints.clear()


def test_a_text_is_answered_as_in_python(watched, served, subject):
    view = watched()
    page = view.open(served, "generate")
    page.fill("#prompt", "dcab")
    page.fill("#ask-temperature", "1.5")
    page.fill("#ask-seed", "7")
    page.fill("#ask-max_new_tokens", "6")
    page.locator("button[type=submit]").click()
    page.wait_for_selector("#bar option[value='1']", state="attached")
    expected = trace(subject.model, BOTH, "dcab", sampling=Sampling(temperature=1.5, seed=7), max_new_tokens=6)
    page.wait_for_function("n => document.querySelectorAll('.steps .chip').length === n", arg=len(expected.output))
    assert page.locator(".steps .chip").all_text_contents() == expected.output
    page.fill("#ask-temperature", "-1")
    page.locator("form").evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    page.wait_for_function("() => document.querySelector('.message').textContent.includes('temperature')")
    view.complaints.clear()


def test_heads_taken_out_as_in_python(watched, served, subject):
    page = watched().open(served, "ablations")
    for head in range(4):
        page.check(f"[data-head='cross 0 {head}']")
    page.locator("#ablate").click()
    page.locator("#after").wait_for()
    with silence(subject.model, [("cross", 0, head) for head in range(4)]):
        _, after, _ = subject.score()
        written = replace(subject).trace("abc").output
    assert page.text_content("#before") == "100 %"
    assert float(page.text_content("#after").removesuffix(" %")) == pytest.approx(100 * after, abs=0.1)
    rows = page.locator(".outcome .strip")
    assert rows.nth(2).locator(".chip").all_text_contents() == written
    assert rows.nth(1).locator(".chip").all_text_contents() == subject.trace("abc").output


def test_what_wrote_a_token_is_as_in_python(watched, served, subject):
    """The terms of the first step, as many as are shown, and the logit that all of them come to."""
    page = watched().open(served, "generate")
    made = subject.trace("abc")
    names, terms = made.header["attribution"]["names"], made.buffers["attribution"][1][:, 0]
    logit = made.buffers["logits"][1][0, made.header["steps"][0]["chosen"]]
    page.locator(".terms li.sum").wait_for()
    assert float(page.locator(".terms li.sum .figure").text_content()) == pytest.approx(float(logit), abs=2e-3)
    order = sorted(zip(names, terms, strict=True), key=lambda each: -abs(each[1]))[:12]
    shown = page.locator(".terms li:not(.sum):not(.rest) .figure").all_text_contents()
    assert [float(each) for each in shown] == pytest.approx([float(value) for _, value in order], abs=1e-3)


def test_roles_over_the_checkpoints(watched, served):
    """A chart for each role, a line for each head, a mark for each checkpoint that has a score."""
    page = watched().open(served, "heads")
    page.locator("#history").click()
    page.locator(".by-role").first.wait_for()
    assert page.locator(".by-role h3").all_text_contents() == ["reversal", "previous"]
    assert [page.locator(".by-role").nth(i).locator("circle").count() for i in (0, 1)] == [5, 3]
    assert page.locator(".by-role").first.locator(".keys").text_content() == "cross 0.1: 90.0 %cross 0.2: 20.0 %"
    ys = [float(each.get_attribute("cy")) for each in page.locator(".by-role").first.locator("circle.c0").all()]
    assert ys == sorted(ys, reverse=True), "the score rises"
    assert (ys[0] - ys[1]) == pytest.approx(ys[1] - ys[2], rel=1e-6)
