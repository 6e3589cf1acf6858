"""The state of linear attention: the recurrence of the paper, of constant size, in the clothes of a cache."""

import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.nn.attention import LayerCache
from glassformer.nn.compact_cache import State, StateCache
from glassformer.nn.linear import features
from specimens import close, model, normal, tokens

ATTENDS = ATTEND["linear"]


@pytest.mark.parametrize("backend", ATTENDS)
def test_equations_18_to_20(backend):
    """One token after the other: s += features(k) v^T, z += features(k), answer = features(q) s / features(q) z."""
    state, K = State(), 3
    assert isinstance(state, LayerCache)
    state.select(torch.tensor([0]))  # nothing yet, nothing to do
    s, z = torch.zeros(2, 1, K, K).double(), torch.zeros(2, 1, K).double()
    for t in range(6):
        q, k, v = (3 * torch.randn(2, 1, 1, K).double() for _ in range(3))
        s, z = s + features(k).mT @ v, z + features(k)[:, :, 0]
        held_k, held_v = state.append(k, v)
        assert held_k.shape == held_v.shape == (2, 1, K + 1, K)
        there = torch.tensor([[-1 if t == 0 else 0] * K + [t]])
        answer = ATTENDS[backend](q, held_k, held_v, Mask(causal=True, keep=(there >= 0).expand(2, -1)), scale=1.0)
        close(answer, features(q) @ s / (features(q) @ z[..., None]))


def test_many_small_numbers_are_kept_in_float32():
    state = State()
    k = v = torch.ones(1, 1, 1, 2, dtype=torch.bfloat16)
    for _ in range(600):  # in bfloat16 such a sum stops at 512
        held_k, held_v = state.append(k, v)
    assert held_k.dtype == held_v.dtype == torch.bfloat16
    assert state._sums.dtype == torch.float32
    assert state._sums[0, 0, 0, -1].item() == 1200


@pytest.mark.parametrize("capacity", [None, 40])
def test_it_does_not_grow(capacity):
    made, ids = model("decoder", attention_rule="linear", max_len=None), tokens(2, 40)
    cache = made.new_cache(capacity)
    assert isinstance(cache, StateCache)
    sizes = set()
    with torch.no_grad():
        for t in range(40):
            logits = made(ids[:, t : t + 1], cache=cache)
            sizes.add(sum(each.numel() for state in cache.states for each in state.read()))
        close(logits, made(ids)[:, -1:])
    assert len(sizes) == 1
    assert cache.length == 40


@pytest.mark.parametrize("backend", ATTENDS)
def test_padding_alone_has_no_gradient_and_makes_none_nan(backend):
    state, first, then, q = (
        State(),
        (normal(2, 1, 3, 4), normal(2, 1, 3, 4)),
        (normal(2, 1, 1, 4),) * 2,
        normal(2, 1, 1, 4),
    )
    state.real = torch.tensor([[True] * 3, [False] * 3])
    state.append(*first)
    state.real = torch.ones(2, 1, dtype=torch.bool)
    k, v = state.append(*then)
    answer = ATTENDS[backend](q, k, v, Mask(keep=torch.ones(2, k.shape[2], dtype=torch.bool)), scale=1.0)
    gradients = torch.autograd.grad(answer.square().sum(), [q, *first, then[0]])
    assert all(each.isfinite().all() for each in gradients)
    assert not gradients[1][1].any()
