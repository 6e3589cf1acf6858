"""`Attention` equals torch.nn.MultiheadAttention in output, weights and every gradient."""

import itertools

import pytest
import torch
from torch import nn

from glassformer import ATTEND, Attention, Mask
from glassformer.base.errors import ConfigError
from glassformer.nn.attention import attention_weights
from glassformer.store.families import as_torch
from specimens import FORWARD_ONLY, NO_BACKWARD, close, gradients, graph_where_it_can_be, normal, scramble

D, H, B, T, S = 12, 3, 2, 5, 4


@pytest.mark.parametrize("backend", ATTEND["softmax"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("crossing", [True, False])
def test_equals_multihead_attention(backend, bias, crossing):
    ours = scramble(Attention(D, H, ATTEND["softmax"][backend], bias=bias).double())
    theirs = nn.MultiheadAttention(D, H, bias=bias, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(as_torch(dict(ours.named_parameters())))
    x, source = normal(B, T, D), normal(B, S, D) if crossing else None
    read = x if source is None else source
    keep = torch.rand(B, read.shape[1]) < 0.7
    keep[:, 0] = True
    for causal, padding in itertools.product([True, False], [True, False]):
        # Where there are more queries than keys, torch lets the first query stand at the first key; ours is the last.
        if causal and crossing:
            continue
        mask = Mask(causal=causal, keep=keep if padding else None)
        hidden = torch.ones(T, read.shape[1], dtype=torch.bool).triu(1) if causal else None
        expected, weights = theirs(
            x, read, read, key_padding_mask=~keep if padding else None, attn_mask=hidden, average_attn_weights=False
        )
        case = (causal, padding)
        with graph_where_it_can_be(backend):
            answer = ours(x, mask=mask, source=source)
        close(answer, expected, case)
        q, k = (ours.heads(project(given)) for project, given in ((ours.query, x), (ours.key, read)))
        close(attention_weights(q, k, mask, scale=ours.scale), weights, case)
        if backend in FORWARD_ONLY:
            with pytest.raises(ConfigError, match=NO_BACKWARD):
                ours(x, mask=mask, source=source)
            continue
        named = gradients(expected, theirs)
        for name, gradient in as_torch(gradients(answer, ours)).items():
            close(gradient, named.pop(name), (case, name))
        assert not named
        inputs = [x] if source is None else [x, source]
        for mine, other in zip(
            *(torch.autograd.grad(out.square().sum(), inputs) for out in (answer, expected)), strict=True
        ):
            close(mine, other, case, 1e-11)
