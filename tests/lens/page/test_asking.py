"""What is asked of the model: one question at a time, and no late answer comes between the reader and the page."""

import threading

import pytest

from glassformer.lens.server.subject import Subject
from lens.explored import toy


class Waiting(Subject):
    """Its answers to a new question wait behind each token, until they may go on or their reader has left."""

    def trace(self, source, gold=None, manner=None):
        if manner is None or manner.heard is None:
            return super().trace(source, gold, manner)

        def poll():
            try:
                manner.poll()
            except BaseException:
                self.left.set()
                raise

        def hear(token):
            manner.heard(token)
            while not self.go_on.wait(0.02):
                poll()

        return super().trace(source, gold, manner._replace(heard=hear, poll=poll))


@pytest.fixture(scope="module")
def waiting():
    return toy("abcd", kind=Waiting)


@pytest.fixture
def view(watched, serving, waiting):
    """Generate, with a question that is being answered; the subject; the address."""
    waiting.go_on, waiting.left = threading.Event(), threading.Event()
    with serving(waiting) as address:
        view = watched()
        page = view.open(address, "generate")
        page.fill("#prompt", "dcba")
        page.locator("form button[type=submit]").click()
        page.wait_for_function("() => document.querySelectorAll('.prompt .stream .chip').length === 1")
        try:
            yield view
        finally:
            waiting.go_on.set()


@pytest.mark.parametrize("place", ["heads", "attention?block=cross"])
def test_a_late_answer_leaves_the_reader_alone(view, waiting, place):
    """Who has gone to another screen stays there, and nothing is written for nobody."""
    page = view.go(place)
    assert waiting.left.wait(20)
    waiting.go_on.set()
    view.settle()
    assert page.url.partition("#")[2] == place
    assert page.locator("#bar option").count() == 0, "there is one input"


def test_the_next_question_ends_the_one_before(view, waiting):
    """Another token is clicked while a text is answered: that answer alone is shown, and there is no other."""
    page = view.page
    page.locator(".chances button[data-branch]").first.click()
    assert waiting.left.wait(20)
    waiting.go_on.set()
    page.wait_for_selector(".two-steps")
    view.settle()
    assert page.locator("#bar select option").count() == 2
    assert " · with " in page.locator("#bar option:checked").text_content()


def test_a_branch_can_be_stopped(view, waiting):
    page = view.page
    page.locator(".chances button[data-branch]").first.click()
    page.locator(".asking .stop:visible").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.message')].some(each => each.textContent === 'Stopped.')"
    )
    waiting.go_on.set()
    view.settle()
    assert "trace=" not in page.url
    assert page.locator(".stop:visible").count() == 0


def test_what_stands_beside_is_shown_once_it_is_there(watched, serving):
    """Its logits are held back: no card of two answers, whatever is turned; nor once nothing is to stand there."""
    with serving(toy("abcd", "dcba")) as address:
        view = watched()
        page = view.open(address)
        held = []
        view.go("generate?trace=0")
        page.route("**/api/trace/1/buffer/logits*", lambda route: held.append(route))
        page.evaluate("() => { location.hash = 'generate?other=1'; }")
        page.wait_for_function("() => document.body.dataset.busy === 'yes'")
        turn = "() => document.querySelector('[data-dial=temperature]').dispatchEvent(new Event('input'))"
        while not held:
            page.wait_for_timeout(20)
        page.evaluate(turn)
        assert page.locator(".two-steps").count() == 0
        page.evaluate("() => { location.hash = 'generate'; }")
        held.pop().continue_()
        view.settle()
        page.evaluate(turn)
        assert page.locator(".two-steps").count() == 0
        view.go("generate?other=1")
        assert page.locator(".two-steps").count() == 1
