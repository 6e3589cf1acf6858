"""DeepNorm: a larger residual and branches with smaller initial weights, so that deep post-norm stacks train."""

from __future__ import annotations

from typing import NamedTuple


class DeepNorm(NamedTuple):
    """The constants of one stack (Wang et al. 2022, DeepNet, figure 2)."""

    alpha: float
    """Multiplies x in norm(alpha x + branch(x))."""
    beta: float
    """Multiplies the initial weights of value, output and feed-forward maps, but not of query and key."""


def deepnorm(encoder_layers: int, decoder_layers: int) -> tuple[DeepNorm, DeepNorm]:
    """The constants (alpha, beta) of the encoder and of the decoder; those of a side with 0 layers mean nothing.

    One stack of N layers: (2N)^(1/4), (8N)^(-1/4). N encoder and M decoder layers: encoder 0.81 (N^4 M)^(1/16),
    0.87 (N^4 M)^(-1/16); decoder (3M)^(1/4), (12M)^(-1/4).
    """
    N, M = encoder_layers, decoder_layers
    if N and M:
        both = float(N**4 * M) ** (1 / 16)
        return DeepNorm(0.81 * both, 0.87 / both), DeepNorm((3 * M) ** 0.25, (12 * M) ** -0.25)
    alone = DeepNorm((2 * (N + M)) ** 0.25, (8 * (N + M)) ** -0.25)
    return alone, alone
