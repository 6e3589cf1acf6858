"""Every backend equals the reference of its rule, in value and gradient; a query that may read nothing gets zeros."""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from glassformer import ATTEND, Mask
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import Pattern
from specimens import FORWARD_ONLY, NO_BACKWARD, close, normal

BACKENDS = [(rule, name) for rule, backends in ATTEND.items() for name in backends if name != "reference"]
B, H, K = 3, 4, 5
HIDING = (
    *("nothing", "keep", "positions", "ragged", "keep and ragged", "documents", "documents and keep"),
    *("prefix", "one prefix", "prefix and keep", "prefix and ragged", "prefix and documents"),
)
BIASES = (None, "given", "learned")
PATTERNS = (
    None, Pattern(window=2), Pattern(window=2, dilation=2), Pattern(window=1, global_tokens=2),
    Pattern(window=2, sinks=1), Pattern(stride=2), Pattern(block=3, summary=2),
)  # fmt: skip
LOOKS_BACK = ("sinks", "stride", "block")  # defined for causal attention alone


class Case(NamedTuple):
    """One cell of the law: lengths, key/value heads, and the rules of the mask."""

    T: int
    S: int
    G: int
    causal: bool
    pattern: Pattern | None
    hiding: str
    bias: str | None


def cases(T: int, rule: str = "softmax", backend: str = "reference") -> list[Case]:
    """Combinations of what a mask may say; the number of key/value heads changes from one to the next.

    For softmax all of them without a pattern and a ninth of those with one; for the other rules a third of that, as
    they differ in what comes after the mask, and for flex, whose uncompiled way is slow. Linear attention knows neither
    bias nor pattern.
    """
    rules = itertools.product((4, 7), (True, False), PATTERNS, HIDING, BIASES)
    every = [Case(T, S, (4, 2, 1)[(i + i // 3) % 3], *rest) for i, (S, *rest) in enumerate(rules)]
    some = [case for i, case in enumerate(every) if case.pattern is None or (i + i // 7) % 9 == 0]
    some = [case for case in some if case.causal or not any(getattr(case.pattern, name, 0) for name in LOOKS_BACK)]
    some = [case for case in some if "prefix" not in case.hiding or (case.causal and case.pattern is None)]
    if rule == "linear":
        return [case for case in some if (case.pattern, case.bias) == (None, None)]
    whole = rule == "softmax" and backend != "flex"
    return some if whole else [case for i, case in enumerate(some) if (i + i // 21) % 3 == 0]


def problem(case: Case) -> tuple[list[Tensor], Mask]:
    """The tensors that want a gradient (q, k, v, perhaps the bias), and the mask. The last sequence is all padding."""
    T, S = case.T, case.S
    torch.manual_seed(0)
    q, k, v = normal(B, H, T, K), normal(B, case.G, S, K), normal(B, case.G, S, K)
    inputs, rules = [q, k, v], {}
    if case.bias == "given":
        rules["bias"] = torch.randn(H, T, S, dtype=q.dtype)
    if case.bias == "learned":
        rules["bias"] = normal(B, H, T, S)
        inputs.append(rules["bias"])
    keep = torch.rand(B, S) < 0.6
    keep[-1] = False
    if "keep" in case.hiding:
        rules["keep"] = keep
    if case.hiding == "positions":  # one row for all sequences, in no order
        rules |= {"query_positions": torch.randint(S, (T,)), "key_positions": torch.randperm(S)}
    if "ragged" in case.hiding:
        standing = torch.where(torch.rand(B, S) < 0.7, torch.randint(S, (B, S)), -1)
        standing[-1] = -1
        rules |= {"query_positions": torch.randint(S, (B, T)), "key_positions": standing}
    if "documents" in case.hiding:
        rules["documents"] = torch.randint(2, (B, S))
        rules["query_documents"] = None if T <= S else torch.randint(2, (B, T))
    if "prefix" in case.hiding:
        rules["prefix"] = torch.tensor([3] if "one" in case.hiding else [2, S, 0])
    return inputs, Mask(causal=case.causal, pattern=case.pattern, **rules)


@cache
def solve(rule: str, backend: str, case: Case) -> list[Tensor]:
    """Output, then the gradients of a weighted sum of it; where there are none, it must say so."""
    inputs, mask = problem(case)
    if backend in FORWARD_ONLY:
        with pytest.raises(ConfigError, match=NO_BACKWARD):
            ATTEND[rule][backend](*inputs[:3], mask, scale=0.7)
        with torch.no_grad():
            return [ATTEND[rule][backend](*inputs[:3], mask, scale=0.7)]
    output = ATTEND[rule][backend](*inputs[:3], mask, scale=0.7)
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), inputs)]


@cache
def may_read(case: Case) -> Tensor:
    """[B, T, S] by the words of `Mask`, one pair at a time."""
    T, S, mask = case.T, case.S, problem(case)[1]
    table = torch.zeros(B, T, S, dtype=torch.bool)
    for b, t, s in itertools.product(range(B), range(T), range(S)):
        query, key = S - T + t, s
        if mask.query_positions is not None and mask.key_positions is not None:
            query = int(mask.query_positions.expand(B, T)[b, t])
            key = int(mask.key_positions.expand(B, S)[b, s])
        table[b, t, s] = (
            (mask.key_positions is None or key >= 0)
            and (mask.keep is None or bool(mask.keep[b, s]))
            and (not mask.causal or key <= query or (mask.prefix is not None and key < mask.prefix.expand(B)[b]))
            and within(mask.pattern or Pattern(), query, key)
        )
        if mask.documents is not None:
            own = mask.documents[b, S - T + t] if mask.query_documents is None else mask.query_documents[b, t]
            table[b, t, s] &= bool(mask.documents[b, s] == own)
    return table


def within(pattern: Pattern, query: int, key: int) -> bool:
    """By the words of the papers: which keys j the query i reads."""
    if pattern.stride:  # Child et al. 2019, section 4.3: the last l, and those with (i - j) mod l = 0
        return query - key < pattern.stride or (query - key) % pattern.stride == 0
    if pattern.block:  # the same: the own block, and those with j mod l in {l - c, ..., l - 1}
        same = query // pattern.block == key // pattern.block
        return same or key % pattern.block in range(pattern.block - pattern.summary, pattern.block)
    if pattern.window is None:
        return True
    steps = [query + pattern.dilation * n for n in range(1 - pattern.window, pattern.window)]
    read_by_all = key < max(pattern.global_tokens, pattern.sinks)
    return key in steps or read_by_all or pattern.global_tokens > max(query, 0)


@pytest.mark.parametrize("T", [1, 3, 7])
@pytest.mark.parametrize(("rule", "backend"), BACKENDS)
def test_backend_equals_reference(rule, backend, T):
    for case in cases(T, rule, backend):
        names = ("output", "dq", "dk", "dv", "dbias")
        for name, ours, theirs in zip(names, solve(rule, backend, case), solve(rule, "reference", case), strict=False):
            close(ours, theirs, (case, name))


@pytest.mark.parametrize("T", [1, 3, 7])
@pytest.mark.parametrize("rule", ATTEND)
def test_a_query_that_may_read_nothing_gets_zeros(rule, T):
    """For every backend: output exactly 0, nothing flows through it, and every gradient is finite."""
    seen = 0
    for backend, case in ((name, case) for name in ATTEND[rule] for case in cases(T, rule, name)):
        if case.hiding == "nothing" and T <= case.S:
            continue
        blind = ~may_read(case).any(-1)  # [B, T]
        output, *grads = solve(rule, backend, case)
        assert all(gradient.isfinite().all() for gradient in grads), (backend, case)
        at_blind = [each.transpose(1, 2)[blind] for each in (output, *grads[:1])]
        at_blind += [each.transpose(1, 2)[blind] for each in grads[3:]]  # that of a learned bias
        assert all((numbers == 0.0).all() for numbers in at_blind), (backend, case)
        assert (output.transpose(1, 2)[~blind] != 0.0).all(), (backend, case)
        seen += int(blind.sum())
    assert seen > 20


def features(x: Tensor) -> Tensor:
    return torch.nn.functional.elu(x) + 1


# What each rule makes of a query's readable keys, [H, keys], from q . k and the bias.
EQUATIONS = {
    "softmax": lambda dots, bias: (dots + bias).exp() / (dots + bias).exp().sum(-1, keepdim=True),
    "softmax_plus_one": lambda dots, bias: (dots + bias).exp() / (1 + (dots + bias).exp().sum(-1, keepdim=True)),
    "sigmoid": lambda dots, bias: 1 / (1 + dots.shape[-1] * (-dots - bias).exp()),
    "softcap": lambda dots, bias: EQUATIONS["softmax"](50 * (dots / 50).tanh(), bias),
    "linear": lambda dots, bias: dots / dots.sum(-1, keepdim=True),
}


@pytest.mark.parametrize("T", [1, 3, 7])
@pytest.mark.parametrize("rule", ATTEND)
def test_reference_is_the_equation(rule, T):
    """Written again without a mask: each query meets the keys that it may read, and no others."""
    for case in cases(T, rule):
        inputs, mask = problem(case)
        q, k, v, *_ = inputs
        readable = may_read(case)
        bias = torch.zeros(B, H, T, case.S, dtype=q.dtype) if mask.bias is None else mask.bias.expand(B, H, T, case.S)
        group = torch.arange(H) * case.G // H  # the key/value head of each head
        of_q, of_k = (features(q), features(k)) if rule == "linear" else (0.7 * q, k)
        rows = []
        for b, t in itertools.product(range(B), range(T)):
            here = readable[b, t].nonzero()[:, 0]
            dots = (of_k[b, group][:, here] @ of_q[b, :, t, :, None])[..., 0]  # [H, keys]
            weights = EQUATIONS[rule](dots, bias[b, :, t, here])
            rows.append((weights[:, None] @ v[b, group][:, here])[:, 0] if len(here) else 0.0 * q[b, :, t])
        output = torch.stack(rows).view(B, T, H, K).transpose(1, 2)
        weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
        grads = torch.autograd.grad((output * weights).sum(), inputs, materialize_grads=True)
        for ours, theirs in zip(solve(rule, "reference", case), [output.detach(), *grads], strict=True):
            close(ours, theirs, case)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize(("rule", "backend"), [(rule, name) for rule in ATTEND for name in ATTEND[rule]])
def test_narrow_numbers_stay_near_the_wide_reference(rule, backend, dtype, tolerance):
    biases = (None,) if rule == "linear" else ("given",)
    hiding = HIDING if rule == "softmax" else ("nothing", "keep and ragged")
    for case in itertools.starmap(
        Case, itertools.product((1, 7), (7,), (4, 2), (True, False), (None,), hiding, biases)
    ):
        if "prefix" in case.hiding and not case.causal:
            continue
        inputs, mask = problem(case)
        narrow = [each.detach().to(dtype) for each in inputs[:3]]
        output = ATTEND[rule][backend](*narrow, mask, scale=0.7)
        assert output.dtype == dtype
        exact = ATTEND[rule]["reference"](*(each.double() for each in narrow), mask, scale=0.7)
        close(output.double(), exact, case, tolerance)


@pytest.mark.parametrize(("rule", "backend"), [(rule, name) for rule in ATTEND for name in ATTEND[rule]])
@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True), Mask(window=9)], ids=["open", "causal", "window"])
def test_dropout_falls_on_the_weights(rule, backend, mask):
    """With the identity as values the output is the weights: each is zeroed with chance p or divided by 1 - p."""
    n, p = 16, 0.3
    if rule == "linear":
        pytest.skip("it refuses dropout, see below")
    q, k = torch.randn(40, H, n, n).double(), torch.randn(40, H, n, n).double()
    v = torch.eye(n).double().expand(40, H, n, n)
    attend = ATTEND[rule][backend]
    if backend == "flex":
        with pytest.raises(ConfigError, match=r"cannot drop any; got dropout=0\.3\. Set attention_dropout"):
            attend(q, k, v, mask, scale=0.2, dropout=p)
        return
    whole = attend(q, k, v, mask, scale=0.2)
    dropped = attend(q, k, v, mask, scale=0.2, dropout=p)
    readable = whole != 0.0
    kept = dropped != 0.0
    close(dropped[kept], whole[kept] / (1 - p), backend)
    assert not (kept & ~readable).any()
    share = (readable & ~kept).sum() / readable.sum()
    assert abs(share - p) < 5 * (p * (1 - p) / readable.sum()) ** 0.5, f"{share} zeroed, not {p}"


@pytest.mark.parametrize("backend", ATTEND["linear"])
@pytest.mark.parametrize(("rules", "dropout", "message"), [
    ({"bias": torch.zeros(H, 3, 3)}, 0.0, "added to attention scores, and linear attention has none"),
    ({"window": 2}, 0.0, "cannot leave any out"),
    ({}, 0.1, r"so it cannot drop any; got dropout=0\.1"),
])  # fmt: skip
def test_linear_attention_refuses_what_sums_cannot_honour(backend, rules, dropout, message):
    q = torch.zeros(B, H, 3, K)
    with pytest.raises(ConfigError, match=message):
        ATTEND["linear"][backend](q, q, q, Mask(**rules), scale=1.0, dropout=dropout)
