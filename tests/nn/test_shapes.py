"""The shapes in signatures are executed: a tensor that does not fit is refused where it enters."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.fast.dropout import FastDropout
from glassformer.nn.feed_forward import FeedForward
from glassformer.nn.heads import Head
from glassformer.nn.norm import NORMS
from glassformer.nn.positions import rotate
from specimens import model, tokens

pytestmark = pytest.mark.shapes(True)

FORWARD = {
    "tokens without a batch": lambda made: made(tokens(5), source=tokens(2, 4)),
    "tokens of floats": lambda made: made(torch.zeros(2, 5), source=tokens(2, 4)),
    "another batch": lambda made: made(tokens(2, 5), source=tokens(3, 4)),
    "another length of keep": lambda made: made(tokens(2, 5), source=tokens(2, 4), keep=torch.ones(2, 4).bool()),
    "a keep of numbers": lambda made: made(tokens(2, 5), source=tokens(2, 4), keep=torch.ones(2, 5)),
    "the source's keep": lambda made: made(tokens(2, 5), source=tokens(2, 4), source_keep=torch.ones(2, 5).bool()),
    "a memory of ids": lambda made: made(tokens(2, 5), memory=tokens(2, 4)),
    "a flat memory": lambda made: made(tokens(2, 5), memory=torch.zeros(2, 16)),
}


@pytest.mark.parametrize("call", FORWARD.values(), ids=FORWARD)
def test_model_refuses(call):
    with pytest.raises(jaxtyping.TypeCheckError):
        call(model())


PARTS = {
    "norm": lambda: NORMS["layer"](4, 1e-5)(torch.zeros(2, 4, dtype=torch.long)),
    "rms": lambda: NORMS["rms"](4, 1e-5)(torch.zeros(2, 4, dtype=torch.long)),
    "feed-forward": lambda: FeedForward(4, 5, torch.relu)(torch.zeros(2, 3, dtype=torch.long)),
    "head": lambda: Head(3, 4)(torch.zeros(2, 4, dtype=torch.long)),
    "dropout": lambda: FastDropout(0.1)(torch.zeros(2, dtype=torch.long)),
    "rotate": lambda: rotate(torch.zeros(2, 3, 4), None),
    "bias": lambda: Mask(bias=torch.zeros(3, 3)),
    "positions": lambda: Mask(query_positions=torch.zeros(3)),
    "keys of two lengths": lambda: Mask(keep=torch.ones(2, 3).bool(), key_positions=torch.arange(4)),
}


@pytest.mark.parametrize("call", PARTS.values(), ids=PARTS)
def test_part_refuses(call):
    with pytest.raises(jaxtyping.TypeCheckError):
        call()


@pytest.mark.parametrize(("rule", "backend"), [(rule, name) for rule in ATTEND for name in ATTEND[rule]])
@pytest.mark.parametrize(
    ("k", "v"), [((2, 2, 5, 3), (2, 2, 6, 3)), ((2, 2, 5, 4), (2, 2, 5, 4)), ((3, 2, 5, 3), (3, 2, 5, 3))]
)
def test_backend_refuses_keys_that_do_not_fit(rule, backend, k, v):
    with pytest.raises(jaxtyping.TypeCheckError):
        ATTEND[rule][backend](torch.zeros(2, 2, 4, 3), torch.zeros(k), torch.zeros(v), Mask(), scale=1.0)
