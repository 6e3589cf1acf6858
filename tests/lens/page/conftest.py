"""A browser for the tests of the page: Debian's Chromium, which reaches nothing but this machine."""

import csv
import io
import os
import threading
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from glassformer.lens.server.app import listen, make_app, make_server, new_token
from lens.explored import page_of, planted

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip
METRICS = [{"kind": "train", "step": step, "loss": 2.0 / step, "learning_rate": 0.1} for step in range(1, 40)]
METRICS += [{"kind": "dev", "step": 30, "exact_match": 0.9, "loss": 0.1, "n": 5}]


def lacks(what):
    """What cannot be tested here is left out, by name; where every push is tested, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; with CI set nothing may be left out", pytrace=False)
    pytest.skip(what)


def saved(page, button):
    """The name and the bytes of what a button saves."""
    with page.expect_download() as caught:
        button.click()
    return caught.value.suggested_filename, Path(caught.value.path()).read_bytes()


def table(data):
    """The lines of a CSV by its names."""
    return list(csv.DictReader(io.StringIO(data.decode())))


@pytest.fixture(scope="module")
def chromium():
    """The browser; a machine without one skips, by name, and fails where CI is set.

    It ends with the last test of a file: as long as it lives, an event loop of its own counts as the running one
    of this process, and no other test could run another.
    """
    if find_spec("playwright") is None:
        lacks("the package playwright is not installed (make setup)")
    if not CHROMIUM.exists():
        lacks(f"there is no {CHROMIUM} (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page of the browser, and all that it asked for or complained of."""

    def __init__(self, browser, **settings):
        usual = {"viewport": {"width": 1280, "height": 860}, "accept_downloads": True}
        self.context = browser.new_context(**usual | settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.requested, self.complaints = [], []
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, address, place=None):
        """The page, once its first screen is drawn, and from there the place that is named."""
        self.page.goto(address)
        self.page.wait_for_selector("body[data-ready]")
        return self.page if place is None else self.go(place)

    def go(self, place):
        """Another screen, by its address."""
        self.page.evaluate("place => { location.hash = place; }", place)
        self.settle()
        return self.page

    def settle(self):
        """Two frames after what was asked for is there: it is drawn."""
        self.page.wait_for_selector("body:not([data-busy])")
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture
def watched(chromium):
    """A fresh page, with no memory of another test; one of which a test expects a complaint takes it away."""
    made = []

    def make(**settings):
        made.append(Watched(chromium, **settings))
        return made[-1]

    yield make
    for each in made:
        each.context.close()
    heard = [line for each in made for line in each.complaints if not line.startswith("Canvas2D: ")]
    assert heard == [], "but for what a test itself reads of a picture"


@pytest.fixture(scope="session")
def serving():
    """`with serving(subject) as address`: a server on a thread of its own; its address has its token."""

    @contextmanager
    def serve(subject):
        with ExitStack() as closing:
            listeners = [closing.enter_context(each) for each in listen(0)]
            port, token = listeners[0].getsockname()[1], new_token()
            server = make_server(make_app(subject, token))
            thread = threading.Thread(target=lambda: server.run(sockets=listeners))
            thread.start()
            try:
                yield f"http://127.0.0.1:{port}/#token={token}"
            finally:
                server.should_exit = True
                thread.join()

    return serve


@pytest.fixture(scope="module")
def served(subject, serving):
    """The address of a server of the `subject` of a file, with its token."""
    with serving(subject) as address:
        yield address


@pytest.fixture(scope="session")
def shown(tmp_path_factory):
    """A planted trace as one file, its address, and its weights."""
    made, weights = planted(encoding="sqrt255")
    sentences = ["cross 1.2 is a reversal head."]
    address = page_of(tmp_path_factory.mktemp("page"), made, name="planted run", metrics=METRICS, sentences=sentences)
    return address, made, weights


@pytest.fixture
def opened_with(watched, tmp_path):
    """`opened_with(*traces, place=None, **facts)`: a page of these in a file, open."""

    def make(*traces, place=None, **facts):
        view = watched()
        view.open(page_of(tmp_path, *traces, **facts), place)
        return view

    return make


@pytest.fixture
def opened(watched, shown):
    """The planted trace, open."""
    view = watched()
    view.open(shown[0])
    return view
