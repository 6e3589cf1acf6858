"""What stands in the address is what is shown; what is no setting there does nothing."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("query", ["screen=nosuch", "toString=1", "constructor=1&__proto__=x", "nosuch=1&layer=-1"])
def test_what_is_no_setting_does_nothing(opened, query):
    page = opened.go(f"heads?{query}")
    assert page.locator("h2", has_text="18 heads").count() == 1
    assert page.locator("nav a[aria-current]").text_content() == "Heads"
    page.locator("nav a[data-screen=curves]").click()
    opened.settle()
    assert page.url.partition("#")[2] == "curves"
    assert not opened.complaints
