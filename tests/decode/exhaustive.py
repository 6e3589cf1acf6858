"""All answers that a tiny model can write, with their scores: what a beam that is wide enough must find."""

import math
from collections.abc import Callable, Sequence

import torch

from glassformer import Transformer
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.beam import Hypothesis
from train.examples import model

SMALL = 8
"""Ids: the six special ones and two more."""


@torch.no_grad()
def log_p(
    network: Transformer, source, begun: list[list[int]], prompt: Sequence[int] = (BOS,), *, prefix: bool = False
) -> list[list[float]]:
    """Of the token after each of these beginnings, which are of one length; without a cache."""
    inputs = {} if source is None else {"source": torch.tensor([[*source, EOS]] * len(begun))}
    inputs |= {"prefix": torch.tensor([len(prompt)] * len(begun))} if prefix else {}
    logits = network(torch.tensor([[*prompt, *ids] for ids in begun]), **inputs)
    return logits[:, -1].log_softmax(-1).tolist()


def exhaustive(
    network: Transformer,
    source,
    limit: int,
    alpha: float,
    prompt: Sequence[int] = (BOS,),
    *,
    prefix: bool = False,
    stop: Callable[[list[int]], bool] = lambda _: False,
) -> list[Hypothesis]:
    """All answers there are, best first: those that end or stop within the limit, and those that reach it."""
    found: list[Hypothesis] = []
    active: list[tuple[list[int], float]] = [([], 0.0)]
    for step in range(1, limit + 1):
        if not active:
            break
        tokens = log_p(network, source, [ids for ids, _ in active], prompt, prefix=prefix)
        longer = [
            ([*ids, token], total + value)
            for (ids, total), values in zip(active, tokens, strict=True)
            for token, value in enumerate(values)
        ]
        ended = [each for each in longer if each[0][-1] == EOS]
        stopped = [each for each in longer if each[0][-1] != EOS and stop(each[0])]
        active = [each for each in longer if each[0][-1] != EOS and not stop(each[0])]
        penalty = ((5 + step) / 6) ** alpha
        found += [Hypothesis(ids[:-1], value, value / penalty, True) for ids, value in ended]
        found += [Hypothesis(ids, value, value / penalty, True, True) for ids, value in stopped]
    found += [Hypothesis(ids, value, value / penalty, False) for ids, value in active]
    return sorted(found, key=lambda each: -each.score)


def small(layout: str, seed: int, positions: str = "sinusoidal", **settings: object) -> Transformer:
    """A random model with so few tokens that all its answers can be counted."""
    return model(layout, seed=seed, vocab=SMALL, positions=positions, max_len=12, **settings).eval()


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    """The same answers in the same order, with the same scores."""
    assert [(each.ids, *each[3:]) for each in found] == [(each.ids, *each[3:]) for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert math.isclose(one.log_probability, other.log_probability, rel_tol=1e-10, abs_tol=1e-10)
        assert math.isclose(one.score, other.score, rel_tol=1e-10, abs_tol=1e-10)
