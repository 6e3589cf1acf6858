"""Of several stop texts, the one that is complete first ends a text, however the text comes."""

import pytest

from glassformer.decode.hypotheses import stop_in


@pytest.mark.parametrize(
    ("text", "stops", "begin"),
    [
        ("xabcy", ["abc", "b"], 2),
        ("xabcy", ["bc", "abc"], 1),
        ("bxab", ["ab", "x"], 1),
        ("aab", ["ab"], 1),
        ("a", [], None),
    ],
)
def test_where_it_stands(text, stops, begin):
    assert stop_in(text, stops) == begin
    assert stop_in("none", ["x", "y"]) is None
