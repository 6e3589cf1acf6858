"""The pictures of docs/explorer.md: screens, of a run of the recipe `reverse`. README has one of chapter 4's.

    glassformer train reverse
    make pictures ARGS=runs/reverse

Needs playwright (of the extra `dev`) and Debian's chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from glassformer.cli.explore import EXAMPLES_ALONE, page_of
from glassformer.cli.runs import existing_run

PICTURES = Path(__file__).parent / "pictures"
SCREENS = {"overview": ("overview", "light", 780), "attention": ("attention?layer=0&head=1&q=2&k=5", "dark", 700)}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main(run: str) -> int:
    """Write the page of the run, open it, and take a picture of each screen."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_of(existing_run(run), Path(folder, "page.html"), EXAMPLES_ALONE)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for name, (screen, scheme, tall) in SCREENS.items():
            page = browser.new_page(viewport={"width": 1280, "height": tall}, color_scheme=scheme)
            page.goto(f"{Path(folder, 'page.html').as_uri()}#{screen}")
            page.wait_for_selector("body[data-ready=yes]")
            page.screenshot(path=str(PICTURES / f"{name}.png"))
            page.close()
        browser.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the run: make pictures ARGS=runs/reverse")
    sys.exit(main(sys.argv[1]))
