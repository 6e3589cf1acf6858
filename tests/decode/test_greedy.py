"""The most likely token, in every dtype."""

import math

import pytest
import torch

from glassformer.base.errors import DataError
from glassformer.decode.choose import greedy
from glassformer.decode.filters import Context

NOBODY = Context([], [], [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_it_is_the_most_likely_and_the_lowest_of_equals(dtype):
    logits = torch.randn(40, 77).to(dtype)
    logits[::2, 40:60] = 9.0
    logits[5] = -torch.inf
    found = greedy(logits.requires_grad_(), NOBODY)
    assert found.dtype == torch.int64
    assert torch.equal(found, logits.detach().double().argmax(-1))
    assert found[::2].tolist() == [40] * 20


def test_logits_that_are_a_part_of_others():
    """As those of the last position, or of the rows that go on."""
    logits = torch.randn(6, 3, 50)
    assert torch.equal(greedy(logits[:, -1], NOBODY), logits[:, -1].argmax(-1))


@pytest.mark.parametrize("place", [0, 3, 4])
@pytest.mark.parametrize(("value", "says"), [(math.nan, r"not numbers \(NaN\)"), (math.inf, "infinite")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_no_number_is_refused(dtype, value, says, place):
    """Wherever it stands, as elsewhere; -inf is a token that is forbidden, and may be the highest there is."""
    logits = torch.zeros(3, 5, dtype=dtype)
    logits[0] = -math.inf
    context = Context([4, 9, 8], [[1]] * 3, [[]] * 3)
    assert greedy(logits, context).tolist() == [0, 0, 0]
    logits[1:, place] = value
    with pytest.raises(DataError, match=says + r" in row 9 \(counted from 0\)"):
        greedy(logits, context)
