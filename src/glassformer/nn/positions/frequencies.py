"""Frequencies of rotary positions (radians per position of each pair), and ways to lower them for longer texts.

Each function in `ROTARY_SCALINGS` takes the settings and R, how many numbers of a head are rotated, and returns R/2
frequencies ("speeds"), the fastest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from glassformer.base.order import RotaryConfig
from glassformer.base.shapes import Float, Tensor
from glassformer.base.wide import widest


def speeds(log_base: float, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """base^(-2i/R) for pair i (Su et al. 2021, equation 15), in float64 if the device has it.

    In float32 the angle at position 100,000 is off by 0.004, which no later step can correct. The base is given as its
    logarithm, because a stretched base may exceed the largest float.
    """
    return torch.exp(torch.arange(0, R, 2, device=device, dtype=widest(device)) * (-log_base / R))


def unscaled(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """The original frequencies, without scaling."""
    return speeds(math.log(settings.base), R, device)


def linear(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """Position interpolation: position p is rotated as p / factor was before (Chen et al. 2023, section 2.3)."""
    return speeds(math.log(settings.base), R, device) / _factor(settings)


def ntk(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """NTK-aware interpolation (Peng et al. 2023, section 3.1): the base becomes base * factor^(R/(R-2)).

    The slowest pair becomes slower by the factor; the fastest pair does not change.
    """
    return speeds(math.log(settings.base) + R / (R - 2) * math.log(_factor(settings)), R, device)


def yarn(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """YaRN: keep fast pairs, interpolate slow pairs, and use a ramp in between (Peng et al. 2023, section 3.2).

    The ramp is linear in the index of the pair, with its ends rounded outwards to whole pairs, as in the paper's code,
    which trained the published weights. Equation 18 instead defines it over the number of turns.
    """
    own, slow_fast = speeds(math.log(settings.base), R, device), settings.turns
    slow, fast = (_pair_of(turns, settings, R) for turns in slow_fast)
    first, last = max(math.floor(fast), 0), min(math.ceil(slow), R - 1)
    pairs = torch.arange(R // 2, device=device, dtype=own.dtype)
    ramp = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)  # a step, if both ends are the same pair
    return own * (1 - ramp) + own / _factor(settings) * ramp


def llama3(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """As YaRN, with a ramp over the number of turns within the original length (code of Llama 3.1, 2024)."""
    own = speeds(math.log(settings.base), R, device)
    turns = own * (_original(settings) / (2 * math.pi))
    slow, fast = settings.turns
    kept = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return own * kept + own / _factor(settings) * (1 - kept)


ROTARY_SCALINGS: dict[str, Callable[[RotaryConfig, int, torch.device], Tensor]] = {
    "none": unscaled,
    "linear": linear,
    "ntk": ntk,
    "yarn": yarn,
    "llama3": llama3,
}


def attention_factor(settings: RotaryConfig) -> float:
    """The factor for queries and keys that keeps attention as sharp over many more keys; 1 except for YaRN.

    sqrt(1/t) = 0.1 ln(factor) + 1, where t is the temperature of the softmax (Peng et al. 2023, equation 22).
    """
    if settings.scaling != "yarn":
        return 1.0
    return 0.1 * math.log(_factor(settings)) + 1.0 if settings.attention_factor is None else settings.attention_factor


def _pair_of(turns: float, settings: RotaryConfig, R: int) -> float:
    """The (fractional) index of the pair that makes this many turns within the original length."""
    return R * (math.log(_original(settings) / (2 * math.pi)) - math.log(turns)) / (2 * math.log(settings.base))


def _factor(settings: RotaryConfig) -> float:
    assert settings.factor is not None, "RotaryConfig refuses a scaling without its factor"
    return settings.factor


def _original(settings: RotaryConfig) -> int:
    assert settings.original_max_len is not None, "RotaryConfig refuses bands without the original length"
    return settings.original_max_len
