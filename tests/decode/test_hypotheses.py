"""When a search is done: once no hypothesis can beat the answers found, at whatever length is the best for it."""

import pytest

from glassformer.decode.beam import length_penalty
from glassformer.decode.hypotheses import Beginning, Hypothesis, Search, done


@pytest.mark.parametrize(
    ("alpha", "score", "is_done"),
    [(4.0, -0.9, False), (4.0, -0.06, True), (-4.0, -3.8, False), (-4.0, -3.6, True), (0.0, -2.1, False)],
)
def test_the_best_length_counts(alpha, score, is_done):
    """Of 2 to 9 tokens: (7/6)^4 = 1.85, (14/6)^4 = 29.6. One that goes on has a log-probability of -2."""
    search = Search(0, 9, [Beginning([6], -2.0, 0), Beginning([7], -3.0, 0)], [Hypothesis([], score, score, True)])
    assert done(search, 1, 1, length_penalty(alpha), None) == is_done
    assert done(search, 1, 1, length_penalty(alpha), 1), "enough answers"
    assert not done(search, 1, 2, length_penalty(alpha), None), "too few answers"
