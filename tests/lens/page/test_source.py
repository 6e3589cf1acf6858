"""The page's own source: text never becomes HTML or script, and no name stands for two things."""

import re

import pytest

from glassformer.lens.page.bundle import resources

FORBIDDEN = re.compile(
    r"\beval\b|\bFunction\s*\(|\b(?:inner|outer)HTML\b|\binsertAdjacentHTML\b|\bdocument\s*\.\s*write|\bsrcdoc\b"
    r"|\bcreateContextualFragment\b|\bsetHTML\w*|\bDOMParser\b|\bset(?:Timeout|Interval)\s*\(\s*[\"'`]|javascript:"
)
MODULES = [name for name in resources() if name.endswith(".js")]


@pytest.mark.parametrize("name", MODULES)
def test_no_text_becomes_html_or_script(name):
    text = resources()[name].decode()
    assert [match.group() for match in FORBIDDEN.finditer(text)] == []


@pytest.mark.parametrize(
    "line",
    ["eval(text)", "new Function ('x')", "a.innerHTML = b", "a.outerHTML += b", "a.insertAdjacentHTML('x', b)",
     "document.write(a)", "document . writeln(a)", 'setTimeout("go()")', "a.href = 'javascript:go()'"],
)  # fmt: skip
def test_the_rule_sees_what_is_planted(line):
    assert FORBIDDEN.search(line)


def test_exported_names_are_told_apart():
    """A name that two modules export, or that one exports and another declares, is read as the wrong one."""
    declared = {
        name: set(re.findall(r"^(?:export )?(?:async )?function (\w+)", resources()[name].decode(), re.MULTILINE))
        for name in MODULES
    }
    assert [name for name in MODULES if "apart" in declared[name]] == ["data.js"]
