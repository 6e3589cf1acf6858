"""How fast each pair of a head turns: radians a position, and the ways to slow them down for longer texts.

Every function takes the settings and how many numbers R of a head are turned; it answers R/2 speeds, the fastest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from glassformer.foundation.order import RotaryConfig
from glassformer.foundation.shapes import Float, Tensor


def speeds(log_base: float, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """base^(-2i/R) for pair i (Su et al. 2021, equation 15), in float64 where the device has it.

    An angle in float32 is off by 0.004 at position 100,000, and no later step can mend that. The base comes as its
    logarithm, as a stretched one may be larger than any float.
    """
    wide = torch.float32 if device.type == "mps" else torch.float64
    return torch.exp(torch.arange(0, R, 2, device=device, dtype=wide) * (-log_base / R))


def unscaled(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """The speeds as they were published."""
    return speeds(math.log(settings.base), R, device)


def linear(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """Position interpolation: position p turns as p / factor did (Chen et al. 2023, section 2.3)."""
    return speeds(math.log(settings.base), R, device) / _factor(settings)


def ntk(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """A larger base, base * factor^(R/(R-2)): the slowest pair is slowed by the factor, the fastest is left alone.

    "NTK-aware" interpolation (Peng et al. 2023, section 3.1).
    """
    return speeds(math.log(settings.base) + R / (R - 2) * math.log(_factor(settings)), R, device)


def yarn(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """Pairs that turn often stay, pairs that turn seldom are interpolated, with a ramp between (Peng et al. 2023, 3.2).

    The ramp is linear in the number of the pair, its ends rounded outwards to whole pairs, as in the paper's code, with
    which the published weights were trained; equation 18 writes it over the turns themselves.
    """
    own, slow_fast = speeds(math.log(settings.base), R, device), settings.turns
    slow, fast = (_pair_of(turns, settings, R) for turns in slow_fast)
    first, last = max(math.floor(fast), 0), min(math.ceil(slow), R - 1)
    pairs = torch.arange(R // 2, device=device, dtype=own.dtype)
    ramp = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)  # where both ends are one pair, a step
    return own * (1 - ramp) + own / _factor(settings) * ramp


def llama3(settings: RotaryConfig, R: int, device: torch.device) -> Float[Tensor, " pairs"]:
    """The same idea with a ramp over the turns in the original length, from slow to fast (code of Llama 3.1, 2024)."""
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
    """What multiplies queries and keys, so that scores over many more keys stay as sharp; 1 but for YaRN.

    sqrt(1/t) = 0.1 ln(factor) + 1, where t is the temperature of the softmax (Peng et al. 2023, equation 22).
    """
    if settings.scaling != "yarn":
        return 1.0
    return 0.1 * math.log(_factor(settings)) + 1.0 if settings.attention_factor is None else settings.attention_factor


def _pair_of(turns: float, settings: RotaryConfig, R: int) -> float:
    """The number, whole or not, of the pair that turns so often in the original length."""
    return R * (math.log(_original(settings) / (2 * math.pi)) - math.log(turns)) / (2 * math.log(settings.base))


def _factor(settings: RotaryConfig) -> float:
    assert settings.factor is not None, "RotaryConfig refuses a scaling without its factor"
    return settings.factor


def _original(settings: RotaryConfig) -> int:
    assert settings.original_max_len is not None, "RotaryConfig refuses bands without the original length"
    return settings.original_max_len
