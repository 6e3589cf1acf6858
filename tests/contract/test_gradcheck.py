"""Every part's gradient is the slope of its output, to all inputs and parameters (central differences, float64)."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.func import functional_call

from glassformer import ATTEND, Attention, Mask
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern
from glassformer.nn.block import PLACEMENTS, Residual
from glassformer.nn.build import build_block, build_feed_forward
from glassformer.nn.embedding import Embedding
from glassformer.nn.feed_forward import ACTIVATIONS, FeedForward
from glassformer.nn.heads import Head
from glassformer.nn.norm import NORMS
from glassformer.nn.positions import POSITIONS, Rotation, Sizes, rotate
from specimens import FEED_FORWARD_SETTINGS, FORWARD_ONLY, NO_BACKWARD, ORDERS, model, normal, scramble, stack, tokens

B, T, S, D = 2, 3, 4, 4
KEEP = torch.tensor([[True, False, True, True], [False] * 4])  # the second sequence may read nothing
MASKS = {
    "open": Mask(),
    "causal": Mask(causal=True),
    "window": Mask(window=1),
    "keep": Mask(keep=KEEP[:, :T]),
    "all": Mask(causal=True, window=2, keep=KEEP[:, :T], bias=torch.randn(2, T, T).double()),
    "stride": Mask(causal=True, pattern=Pattern(stride=2)),
    "block": Mask(causal=True, pattern=Pattern(block=2)),
    "global": Mask(pattern=Pattern(window=1, global_tokens=1)),
    "documents": Mask(causal=True, documents=torch.tensor([[0, 1, 1]])),
    "positions": Mask(causal=True, query_positions=torch.tensor([2, 0, 1]), key_positions=torch.tensor([1, -1, 2])),
}
masks = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def check(module: nn.Module, *inputs: torch.Tensor, **given: object) -> None:
    """The slopes of `module(*inputs, **given)` along its inputs and its parameters, all in one long vector."""
    named = dict(scramble(module.double()).named_parameters())
    tensors = [*inputs, *named.values()]

    def call(vector):
        parts = vector.split([tensor.numel() for tensor in tensors])
        numbers = [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
        parameters = dict(zip(named, numbers[len(inputs) :], strict=True))
        return functional_call(module, parameters, (*numbers[: len(inputs)],), given)

    vector = torch.cat([tensor.detach().flatten() for tensor in tensors]).requires_grad_()
    assert torch.autograd.gradcheck(call, (vector,), fast_mode=vector.numel() > 60)


@pytest.mark.parametrize(("rule", "backend"), [(rule, name) for rule in ATTEND for name in ATTEND[rule]])
@masks
def test_attend(rule, backend, mask):
    if rule == "linear" and (mask.sparse or mask.bias is not None):
        pytest.skip("it refuses both")
    K = 2  # each slope by itself, of which there are twice as many with twice the width
    q, k, v = normal(B, 2, T, K), normal(B, 1, T, K), normal(B, 1, T, K)
    attend = ATTEND[rule][backend]
    if backend in FORWARD_ONLY:
        with pytest.raises(ConfigError, match=NO_BACKWARD):
            attend(q, k, v, mask, scale=0.7)
        return
    assert torch.autograd.gradcheck(lambda *qkv: attend(*qkv, mask, scale=0.7), (q, k, v))


@pytest.mark.parametrize(
    ("rule", "backend"), [(rule, name) for rule in ATTEND for name in ATTEND[rule] if rule != "linear"]
)
def test_bias_of_attend(rule, backend):
    q, k, v, bias = normal(B, 2, T, D), normal(B, 1, S, D), normal(B, 1, S, D), normal(2, T, S)
    attend = ATTEND[rule][backend]

    def call(bias):
        return attend(q, k, v, Mask(causal=True, keep=KEEP, bias=bias), scale=0.7)

    if backend in FORWARD_ONLY:
        q, k, v = q.detach(), k.detach(), v.detach()  # the bias alone learns
        with pytest.raises(ConfigError, match=NO_BACKWARD):
            call(bias)
        return
    assert torch.autograd.gradcheck(call, (bias,))


@masks
@pytest.mark.parametrize("backend", ATTEND["softmax"])
def test_self_attention(backend, mask):
    turned = Rotation(*torch.randn(2, T, 1).double())
    made = Attention(D, 2, ATTEND["softmax"][backend], n_kv_heads=1)
    with pytest.raises(ConfigError, match=NO_BACKWARD) if backend in FORWARD_ONLY else nullcontext():
        check(made, normal(B, T, D), mask=mask, rotation=turned)


@pytest.mark.parametrize("norm", NORMS)
def test_query_and_key_norm(norm):
    made = Attention(D, 2, ATTEND["softmax"]["auto"], qk_norm=lambda width: NORMS[norm](width, 1e-5))
    check(made, normal(B, T, D), mask=MASKS["all"], rotation=Rotation(*torch.randn(2, T, D // 4).double()))


def test_cross_attention():
    attention = Attention(D, 2, ATTEND["softmax"]["auto"], bias=False)
    for mask in (Mask(), Mask(keep=KEEP)):
        check(Reading(attention, mask), normal(B, T, D), normal(B, S, D))


class Reading(nn.Module):
    """A branch whose source is an input, so that its slopes are checked too."""

    def __init__(self, reader: nn.Module, mask: Mask) -> None:
        super().__init__()
        self.reader, self.mask = reader, mask

    def forward(self, x, source):
        return self.reader(x, source=source, mask=self.mask)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward(activation):
    check(FeedForward(D, 5, ACTIVATIONS[activation]), normal(B, T, D))


@pytest.mark.parametrize("settings", FEED_FORWARD_SETTINGS, ids=str)
def test_feed_forward_by_settings(settings):
    chosen = stack(**{"d_model": D, "d_ff": 5, "n_heads": 2, "activation": "gelu"} | settings)
    check(build_feed_forward(chosen), normal(B, T, D))


@pytest.mark.parametrize("norm", NORMS)
def test_norm(norm):
    check(NORMS[norm](D, 1e-5), normal(B, T, D))
    check(NORMS[norm](D, 1e-5), torch.ones(1, 2, D).double().requires_grad_())  # no variance at all


@pytest.mark.parametrize(("norm", "placement"), list(itertools.product(NORMS, PLACEMENTS)))
def test_residual(norm, placement):
    branch = FeedForward(D, 5, torch.tanh)
    made = Residual(branch, lambda: NORMS[norm](D, 1e-5), placement=placement, scale=1.3)
    check(made, normal(B, T, D))


@masks
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_block(placement, mask):
    chosen = stack(d_model=D, n_heads=2, d_ff=5, norm_placement=placement, activation="gelu")
    block = build_block(chosen, reads_memory=True)
    memory = normal(B, S, D)
    check(Recalling(block, mask), normal(B, T, D), memory)


class Recalling(nn.Module):
    """A block whose memory is an input."""

    def __init__(self, block: nn.Module, mask: Mask) -> None:
        super().__init__()
        self.block, self.mask = block, mask

    def forward(self, x, memory):
        return self.block(x, mask=self.mask, memory=memory, memory_mask=Mask(keep=KEEP))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_model(order):
    """From the parameters to the logits: embedding, positions, masks, blocks, norms and head together."""
    made = model(**order, activation="gelu", d_model=8, n_heads=2, d_ff=6, head_bias=True)
    keep = torch.tensor([[True, True, False], [False] * 3])
    check(made, tokens=tokens(B, T), keep=keep, source=tokens(B, S), source_keep=KEEP)


def test_embedding_and_head():
    embedding = Embedding(5, D, scale=2.0)
    check(embedding, tokens=torch.tensor([[1, 4, 1]]))
    check(Head(5, D, bias=True), normal(B, T, D))


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions(positions):
    """What a scheme adds to embeddings, turns, or adds to scores or values, along its parameters and along q."""
    scheme, places = POSITIONS[positions](Sizes(D, 2, D, 8)), torch.tensor([[3, 0, 7]])
    like = torch.zeros((), dtype=torch.float64)

    class Placing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scheme, self.relation = scheme, scheme.relation()

        def forward(self, q):
            added = self.scheme.embedding(places, like)
            turned = rotate(q if added is None else q + added[:, None], self.scheme.rotation(places, like))
            bias = self.scheme.score_bias(places, places, like)
            scores = turned @ turned.mT if bias is None else turned @ turned.mT + bias
            if self.relation is None:
                return scores
            mask = self.relation(turned, turned, Mask(query_positions=places, key_positions=places), scale=0.7)
            return torch.cat([scores + mask.bias, mask.value_bias.read(scores)], -1)

    check(Placing(), normal(1, 2, T, D))
