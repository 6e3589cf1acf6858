"""The roles that a head may have: for each, the keys that it predicts for a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.lens.roles.metrics import Tally, largest_key, tally
from glassformer.lens.roles.view import ABSENT, View

Predict = Callable[[View], Bool[Tensor, "N T S"] | None]
"""Returns P(i) as a mask, or None if this kind of attention cannot have the role."""


@dataclass(frozen=True)
class Role:
    """A role that a head may have."""

    name: str
    """The name in tables."""
    what: str
    """What a query reads, in words."""
    predict: Predict
    needs_repeats: bool = False
    """Whether it can be recognised only in sequences with repeated tokens."""
    shift: int = 0
    """How many keys to the right of the unshifted role's keys it reads."""

    @property
    def title(self) -> str:
        """The role's name before the word "head"."""
        return TITLES.get(self.family, self.family)

    @property
    def family(self) -> str:
        """The name without its shift."""
        return self.name.split(" ")[0] if self.shift else self.name


def offset(by: int) -> Predict:
    """Predict {i + by}; `by` is key minus query, so -1 is the previous token (Clark et al. 2019, section 3.1)."""

    def predict(view: View) -> Tensor | None:
        if view.crossing:
            return None
        T = view.queries.shape[1]
        places = torch.arange(T, device=view.queries.device)
        return (places == places[:, None] + by).expand(len(view.queries), T, T)

    return predict


def sink(view: View) -> Bool[Tensor, "N T S"]:
    """Predict special tokens or the first key: where idle heads attend (Clark et al. 2019, section 3.2)."""
    return everywhere(view, view.sinks)


def end(view: View) -> Bool[Tensor, "N T S"]:
    """Predict <eos>, whose position tells the length of the sequence."""
    return everywhere(view, view.keys == EOS)


def everywhere(view: View, keys: Bool[Tensor, "N S"]) -> Bool[Tensor, "N T S"]:
    """Predict the same keys for every query."""
    return keys[:, None, :].expand(*view.queries.shape, keys.shape[1])


def duplicate(view: View) -> Bool[Tensor, "N T S"] | None:
    """Predict {j != i: x_j = x_i}: the same token elsewhere (for a causal head, earlier)."""
    if view.crossing:
        return None
    same = view.queries[:, :, None] == view.keys[:, None, :]
    elsewhere = ~torch.eye(same.shape[-1], dtype=torch.bool, device=same.device)
    return same & elsewhere & view.real[:, None, :]


def induction(view: View) -> Bool[Tensor, "N T S"] | None:
    """Predict {j <= i: x_(j-1) = x_i}: what followed the same token earlier (Olsson et al. 2022, prefix matching)."""
    if view.crossing:
        return None
    S = view.keys.shape[1]
    follows = torch.zeros(*view.queries.shape, S, dtype=torch.bool, device=view.keys.device)
    follows[:, :, 1:] = (view.queries[:, :, None] == view.keys[:, None, :-1]) & view.real[:, None, :-1]
    before = torch.ones(S, S, dtype=torch.bool, device=view.keys.device).tril()
    return follows & before & view.real[:, None, :]


def diagonal(shift: int = 0) -> Predict:
    """Predict {s + t + shift}: step t of the answer reads token t of the source, which s special tokens precede."""

    def predict(view: View) -> Tensor | None:
        return None if view.outputs is None else at_rank(view, view.step + shift)

    return predict


def reversal(shift: int = 0) -> Predict:
    """Predict {s + n-1-t + shift}: step t reads the t-th token from the end of the n source tokens.

    In a stack that answers in place, the query at position i has step i - s and reads position 2s + n-1-i.
    """

    def predict(view: View) -> Tensor:
        return at_rank(view, view.length[:, None] - 1 - view.step + shift)

    return predict


def at_rank(view: View, ranks: Int[Tensor, "N T"]) -> Bool[Tensor, "N T S"]:
    """Predict, for each query that has a step, the source token at a rank."""
    found = (view.rank[:, None, :] == ranks[:, :, None]) & (view.rank != ABSENT)[:, None, :]
    return found & (view.step != ABSENT)[:, :, None]


def lookup(view: View) -> Bool[Tensor, "N T S"] | None:
    """Predict {j: x_j = the token to be written}: found by identity, as in sorting, not by position."""
    if view.outputs is None:
        return None
    found = (view.outputs[:, :, None] == view.keys[:, None, :]) & (view.rank != ABSENT)[:, None, :]
    return found & (view.step != ABSENT)[:, :, None]


TITLES = {
    **{name: f"{name}-token" for name in ("previous", "current", "next", "duplicate")},
    "eos": "end-of-sequence",
}
OFFSETS = {-1: "previous", 0: "current", 1: "next"}
SHIFTS = (0, -1, 1)
EVERY: tuple[Role, ...] = (
    *(
        Role(OFFSETS.get(by, f"offset {by:+d}"), f"the token at {by:+d}" if by else "its own token", offset(by))
        for by in (-1, 0, 1, -2, 2, -3, 3)
    ),
    Role("eos", "the end of the sequence", end),
    Role("sink", "special tokens, or the first", sink),
    Role("duplicate", "the same token elsewhere", duplicate, needs_repeats=True),
    Role("induction", "what came after the same token before", induction, needs_repeats=True),
    *(
        Role(f"{name} {c:+d}" if c else name, what + (f", {c:+d} keys" if c else ""), make(c), shift=c)
        for name, what, make in (
            ("reversal", "the source from its end", reversal),
            ("diagonal", "the source in step", diagonal),
        )
        for c in SHIFTS
    ),
    Role("lookup", "the token that is to be written", lookup),
)
"""All roles. Their order decides ties: of roles that predict the same keys, the first wins."""
ROLES: dict[str, Role] = {role.name: role for role in EVERY}


def tallies(
    view: View, weights: Float[Tensor, "N H T S"], allowed: Bool[Tensor, "N T S"], *, repeats: bool
) -> dict[str, Tally]:
    """Return the tally of every role that these maps can show, by name; `repeats`: whether tokens repeat in them."""
    found: dict[str, Tally] = {}
    largest = largest_key(weights, allowed)
    for name, role in ROLES.items():
        if role.needs_repeats and not repeats:
            continue
        predicted = role.predict(view)
        if predicted is not None and bool((predicted & allowed).any()):
            found[name] = tally(weights, predicted, allowed, view.counted, largest)
    return found
