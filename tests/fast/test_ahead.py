"""Choices that need not know the last token: those of `Choose`, and a mark where it raises an error."""

import math

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.decode.choose import chooser, greedy, own_uniforms
from glassformer.decode.filters import Context, without
from glassformer.decode.settings import GREEDY, Sampling
from glassformer.fast.graphs import REFUSED, ahead_of

FORBIDS = chooser(GREEDY, [without([0])])
DRAWS = chooser(Sampling(seed=4), [without([0])])
CONTEXT = Context([0, 1, 2], [()] * 3, [[]] * 3)


def chosen(choose, logits):
    ahead = ahead_of(choose)
    drawn = None if ahead.seed is None else torch.tensor(own_uniforms(ahead.seed, CONTEXT))
    return ahead(logits, drawn).tolist()


@pytest.mark.parametrize("choose", [greedy, FORBIDS, DRAWS], ids=["greedy", "filtered", "drawn"])
def test_choices_are_the_same(choose):
    for logits in torch.randn(50, 3, 9):
        assert chosen(choose, logits) == choose(logits, CONTEXT).tolist()


@pytest.mark.parametrize("choose", [FORBIDS, DRAWS], ids=["filtered", "drawn"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, None], ids=str)
def test_what_is_refused_is_marked(choose, wrong):
    """Also what stands at a token that is forbidden; None: all others are forbidden."""
    logits = torch.zeros(3, 9)
    if wrong is None:
        logits[1, 1:] = -math.inf
    else:
        logits[1, 0] = wrong
    found = chosen(choose, logits)
    assert found[1] == REFUSED
    assert REFUSED not in (found[0], found[2])
    with pytest.raises(ConfigError if wrong is None else DataError):
        choose(logits, CONTEXT)
