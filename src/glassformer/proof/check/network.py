"""Builds a learner's language model, and asks it for logits of a whole sequence or part by part."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts, first
from glassformer.proof.check.listen import scramble
from glassformer.proof.check.table import NotTestedError, SignatureError, ask

VOCAB, MAX_LEN, LAYERS = 90, 12, 2
WIDE, NARROW = (64, 4), (8, 2)
"""d_model and heads: wide where the size of the first logits matters, narrow where only dependencies do."""
NAMES = {
    "vocab_size": 0, "n_vocab": 0, "vocabulary_size": 0, "d_model": 1, "embed_dim": 1, "n_embd": 1, "dim": 1,
    "n_heads": 2, "num_heads": 2, "n_head": 2, "heads": 2, "n_layers": 3, "num_layers": 3, "n_layer": 3, "layers": 3,
    "max_len": 4, "max_length": 4, "block_size": 4, "context_length": 4,
}  # fmt: skip
"""The documented position of each argument, under its usual names."""
B, T = 3, 7
TOKENS = torch.randint(VOCAB, (B, T), generator=torch.Generator().manual_seed(9))
SAME = 1e-8
"""Rounding error of float64. The effect of a token on a logit is far larger."""


class Network:
    """The model as initialised, and narrow ones in float64 with random parameters."""

    def __init__(self, kind: Any) -> None:
        parameters = inspect.signature(kind).parameters
        self.names = [name for name, each in parameters.items() if each.default is each.empty]
        if sorted(NAMES.get(name, -1) for name in self.names) != [*range(5)]:
            self.names = []  # the names say nothing, so the documented order is assumed
            if not accepts(kind, "vocab_size", "d_model", "n_heads", "n_layers", "max_len"):
                raise SignatureError(f"{inspect.signature(kind)}")
        self.kind = kind
        self.fresh = self.made(LAYERS, WIDE).eval()
        if not accepts(self.fresh.forward, "tokens"):
            raise SignatureError(f"forward{inspect.signature(self.fresh.forward)}")
        self.takes_cache = accepts(self.fresh.forward, "tokens", "cache")
        self.module = scramble(self.made(LAYERS, NARROW))
        self.one_layer = scramble(self.made(1, NARROW))
        self.seen: Any = self.logits(TOKENS)

    def made(self, layers: int, size: tuple[int, int]) -> nn.Module:
        """Return an instance. Sizes are passed by name if all names are known, else in the documented order."""
        sizes = (VOCAB, *size, layers, MAX_LEN)
        if self.names:
            module = ask(lambda: self.kind(**{name: sizes[NAMES[name]] for name in self.names}))
        else:
            module = ask(self.kind, *sizes)
        if not isinstance(module, nn.Module):
            raise SignatureError("a class that is not an nn.Module")
        return module

    def logits(self, tokens: Tensor, module: nn.Module | None = None) -> Any:
        """Return the logits of tokens read at once."""
        with torch.no_grad():
            return first(ask(module or self.module, tokens))

    def in_parts(self, sizes: Sequence[int], tokens: Tensor = TOKENS) -> Tensor:
        """Return the logits of tokens read part by part through the cache.

        Errors: `NotTestedError` for a model without a cache, `CrashError`.
        """
        if not self.takes_cache:
            raise NotTestedError("forward takes no cache")
        cache, found = None, list[Tensor]()
        with torch.no_grad():
            for part in tokens.split([*sizes], dim=1):
                answer: Any = ask(self.module, part, cache)
                if not isinstance(answer, tuple | list) or len(answer) != 2:  # pyright: ignore[reportUnknownArgumentType]
                    raise NotTestedError("forward takes a second argument, but does not return (logits, cache)")
                logits, cache = answer  # pyright: ignore[reportUnknownVariableType]
                found.append(logits)
        return torch.cat(found, dim=1)


def changed(tokens: Tensor, *places: int) -> Tensor:
    """Return the tokens with those at some places changed in every row."""
    tokens = tokens.clone()
    tokens[:, [*places]] = (tokens[:, [*places]] + 1) % VOCAB
    return tokens
