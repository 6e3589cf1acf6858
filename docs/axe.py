"""Accessibility of pages on disk: axe-core's rules on each page, in a light and a dark theme and on a narrow screen.

    make docs
    make axe                          # the site; more files or folders: make axe ARGS="build/site course/diploma.html"

Prints each finding, and each request that would have left the machine; ends with 1 if there is any. Needs playwright
and axe-playwright-python (of the extra `dev`) and Debian's chromium.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

THEMES = {"light": ("light", 1280), "dark": ("dark", 1280), "narrow": ("light", 360)}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLAGS += ["--host-resolver-rules=MAP * ~NOTFOUND"]
RUN = "() => axe.run({resultTypes: ['violations']})"
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def pages(places: Iterable[str]) -> Iterator[Path]:
    """Yield the pages in these files and folders."""
    for place in map(Path, places):
        yield from sorted(place.rglob("*.html")) if place.is_dir() else [place]


def rules() -> str:
    """Return axe-core as one script."""
    found = find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        sys.exit("axe-playwright-python is not installed: make setup.")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text("utf-8")


def findings(page: Page, path: Path, script: str) -> Iterator[str]:
    """Yield what is wrong with one page: axe's findings, and a page that is wider than its screen."""
    page.goto(path.resolve().as_uri())
    page.evaluate(script)
    for each in page.evaluate(RUN)["violations"]:
        shown = each["nodes"][0]["html"].replace("\n", " ")[:200]
        yield f"{each['impact']} {each['id']}, {len(each['nodes'])} times: {shown}"
    if (wider := page.evaluate(WIDER)) > 0:
        yield f"the page is {wider} pixels wider than its screen"


def main(places: Sequence[str]) -> int:
    """Look at all pages in all themes."""
    counted: Counter[str] = Counter()
    found, script = [*pages(places or ["build/site"])], rules()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for theme, (scheme, width) in THEMES.items():
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(120_000)
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            for done, path in enumerate(found, 1):
                if sys.stderr.isatty():
                    print(f"\r{theme}: page {done} of {len(found)}", end="", file=sys.stderr, flush=True)
                for each in findings(page, path, script):
                    print(f"{theme} {path}: {each}", flush=True)
                    counted["findings"] += 1
            left = [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
            counted["requests"] += len(left)
            print(*(f"{theme}: a request to {url}" for url in left), sep="\n", end="\n" * bool(left))
            page.close()
        browser.close()
    print(
        f"{len(found)} pages, {len(THEMES)} themes: {counted['findings']} findings, "
        f"{counted['requests']} requests that leave the machine"
    )
    return int(counted.total() > 0 or not found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
