"""Writing on the page: token by token, another way from any step, with a beam whose tree is shown, beside another."""

import threading
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from glassformer import trace
from glassformer.decode.settings import BeamSettings
from glassformer.lens.ablate import silence
from glassformer.lens.server.subject import Subject
from lens.explored import BOTH, LETTERS, small, toy
from lens.page.conftest import saved, table

STEPS = ".steps[aria-label^='Tokens, with'] .chip"


@pytest.fixture(scope="module")
def subject():
    return toy("abcd", model=small(), silence=silence)


@pytest.fixture
def twin(subject):
    """The same weights, to ask while the server asks its own."""
    return replace(subject, model=deepcopy(subject.model))


def asks(page, text, **settings):
    """Type and run."""
    page.fill("#prompt", text)
    for name, value in settings.items():
        page.fill(f"#ask-{name}", str(value))
    page.locator("form button[type=submit]").click()


def shows(view, made):
    """Wait until the steps are those of a trace."""
    arg = [STEPS, made.output]
    view.page.wait_for_function(
        "([at, texts]) => [...document.querySelectorAll(at)].map(each => each.textContent).join() === texts.join()",
        arg=arg,
    )
    view.settle()


def test_another_token_is_gone_on_with(watched, served, twin):
    """A click on the likeliest other token of a step: Python's answer with that beginning, the old one beside it."""
    view = watched()
    page = view.open(served, "generate?step=2")
    whole = twin.trace("abcd")
    written = whole.header["sequences"]["target"]["ids"][1:]
    button = page.locator(".chances button[data-branch]").first
    begin = [*written[:2], int(button.get_attribute("data-branch"))]
    assert begin[2] != written[2]
    button.click()
    shows(view, trace(twin.model, BOTH, "abcd", begin=begin))
    assert "other=0" in page.url
    assert "step=2" in page.url
    title = page.locator("#bar option[value='1']").text_content()
    assert title == f"abcd · with {LETTERS.tokens(begin[2:])[0]} as token 3"
    assert page.locator(".steps[aria-label='Tokens of B'] .chip").all_text_contents() == whole.output
    assert page.locator(".steps[aria-label='Tokens of B'] .differs").count() > 0


def test_chances_of_two_answers(watched, served, twin):
    """A, B and A - B of each token at the same place are those of the logits."""
    view = watched()
    page = view.open(served, "generate")
    asks(page, "dcba", max_new_tokens=5)
    made = trace(twin.model, BOTH, "dcba", max_new_tokens=5)
    shows(view, made)
    view.go(f"{page.url.partition('#')[2].partition('&step')[0]}&other=0&step=1")
    page.locator(".two-steps tbody tr").first.wait_for()
    softmax = [np.exp(z) / np.exp(z).sum() for z in (it.buffers["logits"][1][1] for it in (made, twin.trace("abcd")))]
    names = LETTERS.tokens(range(LETTERS.vocab_size))
    rows = [row.locator("td").all_text_contents() for row in page.locator(".two-steps tbody tr").all()]
    assert len(rows) == 12
    for name, a, b, delta in rows:
        one, other = (float(each[names.index(name)]) for each in softmax)
        assert float(a.strip(" %")) / 100 == pytest.approx(one, abs=6e-4)
        assert float(b.strip(" %")) / 100 == pytest.approx(other, abs=6e-4)
        assert float(delta.removesuffix(" points")) == pytest.approx(100 * (one - other), abs=2e-2)
    _, data = saved(page, page.locator(".two-steps .exports button", has_text="CSV"))
    first = table(data)[0]
    assert float(first["chance_a"]) == pytest.approx(float(softmax[0][names.index(first["token"])]), rel=1e-5)


def test_the_tree_of_a_beam(watched, served, twin):
    """As many boxes as beginnings; its answers in order; a click on another beginning goes on from it."""
    view = watched()
    page = view.open(served, "generate")
    asks(page, "dcba", beam=3, max_new_tokens=5)
    made = trace(twin.model, BOTH, "dcba", search=BeamSettings(beam=3), max_new_tokens=5)
    shows(view, made)
    nodes = made.header["beams"]["nodes"]
    assert page.locator(".beam-tree .beam-node").count() == len(nodes)
    best = page.locator(".beam-node.best")
    assert best.count() == len(made.output)
    rows = {each.get_attribute("transform").partition(" ")[2] for each in best.all()}
    assert len(rows) == 1, "the best answer is one straight line"
    answers = page.locator(".beams tbody tr")
    assert answers.first.locator("td").nth(3).locator(".chip").all_text_contents() == made.output
    assert answers.count() == 3
    assert saved(page, page.locator(".beams .exports button", has_text="SVG"))[1].count(b"<rect") == len(nodes) + 1
    place, node = next((i, node) for i, node in enumerate(nodes) if node["parent"] == -1 and i)
    page.locator(f".beam-node[data-place='{place}']").click()
    again = trace(twin.model, BOTH, "dcba", search=BeamSettings(beam=3), max_new_tokens=5, begin=[node["token"]])
    shows(view, again)
    assert page.locator("#ask-beam").input_value() == "3", "what was typed stays"


def test_a_copy_shows_the_tree_and_begins_nothing(opened_with):
    made = trace(small(), BOTH, "dcba", search=BeamSettings(beam=3), max_new_tokens=5)
    page = opened_with(made, place="generate").page
    assert page.locator(".beam-tree .beam-node").count() == len(made.header["beams"]["nodes"])
    assert page.locator(".beam-node[role=button], [data-branch]").count() == 0


def test_tokens_come_one_by_one_and_can_be_stopped(watched, serving):
    """The answer waits for us after its second token: two are shown by then. Stopping leaves all as it was."""
    go_on, left = threading.Event(), threading.Event()
    model = small()

    class Slow(Subject):
        """Its answers to a new text stop and wait."""

        def trace(self, source, gold=None, manner=None):
            if manner is None or manner.heard is None:
                return super().trace(source, gold, manner)
            heard = []

            def hear(token):
                manner.heard(token)
                heard.append(token)
                if len(heard) == 2:
                    go_on.wait(20)

            def poll():
                try:
                    manner.poll()
                except BaseException:
                    left.set()
                    raise

            return super().trace(source, gold, manner._replace(heard=hear, poll=poll))

    view = watched()
    with serving(toy("abcd", model=model, kind=Slow)) as address:
        page = view.open(address, "generate")
        before = page.locator(STEPS).all_text_contents()
        asks(page, "dcba", max_new_tokens=6)
        try:
            page.wait_for_function("() => document.querySelectorAll('.stream .chip').length === 2")
            expected = trace(deepcopy(model), BOTH, "dcba", max_new_tokens=6).output
            assert page.locator(".stream .chip").all_text_contents() == expected[:2]
            page.locator(".stop:visible").click()
            page.wait_for_function("() => document.querySelector('.message').textContent === 'Stopped.'")
        finally:
            go_on.set()
        assert left.wait(20), "the model writes for nobody"
        assert page.locator(STEPS).all_text_contents() == before


def test_how_far_the_others_moved(watched, served, twin):
    """Without the heads of the first layer: the shift of each head's attention is Python's; a row opens both maps."""
    view = watched()
    page = view.open(served, "ablations")
    for head in range(4):
        page.check(f"[data-head='cross 0 {head}']")
    page.locator("#ablate").click()
    page.locator(".moved-heads tbody tr").first.wait_for()
    whole = twin.trace("abcd", None)
    written = whole.header["sequences"]["target"]["ids"][1:]
    with silence(twin.model, [("cross", 0, head) for head in range(4)]):
        without = trace(twin.model, BOTH, "abcd", begin=written, max_new_tokens=len(written), encoding="f32")
    expected = {}
    for block in ("encoder", "decoder", "cross"):
        gap = np.abs(whole.attention(block) - without.attention(block)).sum(-1).mean(-1) / 2
        expected |= {f"{block} {i}.{j}": float(gap[i, j]) for i in range(2) for j in range(4)}
    rows = [row.locator("td").all_text_contents() for row in page.locator(".moved-heads tbody tr").all()]
    assert {name for name, *_ in rows} == expected.keys()
    for name, moved, out in rows:
        assert float(moved) == pytest.approx(expected[name], abs=6e-3)
        assert out == ("removed" if name.startswith("cross 0") else "")
    moved = [float(row[1]) for row in rows]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 0.01
    page.locator(".moved-heads tbody tr").first.click()
    view.settle()
    assert page.locator(".maps canvas.map-cells").count() == 3, "A, B and their difference"
    assert page.locator("#bar option", has_text="without 4 heads").count() == 1


def test_what_stands_in_their_place_is_chosen(watched, serving):
    """Nothing, or their mean; the address has it."""
    kinds = []

    def noted(model, heads, kind="zero"):
        kinds.append(kind)
        return silence(model, heads)

    view = watched()
    with serving(toy("abcd", model=small(), silence=noted)) as address:
        page = view.open(address, "ablations")
        page.check("[data-head='cross 0 1']")
        page.locator("#ablate").click()
        page.locator(".moved-heads").wait_for()
        assert {*kinds} == {"zero"}
        page.locator("button[data-value=mean]").click()
        view.settle()
        assert "kind=mean" in page.url
        kinds.clear()
        page.locator("#ablate").click()
        page.wait_for_function("() => document.querySelector('.outcome').textContent.includes('with their mean')")
        assert {*kinds} == {"mean"}
