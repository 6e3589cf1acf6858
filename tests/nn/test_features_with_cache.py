"""Vectors read a few at a time answer as read at once, whatever tells their order and wherever padding stands."""

from typing import Any

import pytest
import torch

from glassformer import ModelConfig, StackConfig, Transformer

SETTINGS = {
    "sinusoidal": {},
    "learned": {"positions": "learned", "max_len": 90},
    "window": {"window": 4},
    "learned, window": {"positions": "learned", "max_len": 90, "window": 4},
    "shaw, window": {"positions": "shaw", "window": 4},
    "shaw": {"positions": "shaw"},
    "window, sinks": {"window": 4, "sinks": 2},
    "linear": {"attention_rule": "linear"},
    "rotary, linear": {"positions": "rotary", "attention_rule": "linear"},
}


def reader(dtype: torch.dtype, n_layers: int = 2, **kwargs: Any) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": n_layers, "d_ff": 16, "n_features": 5, "dropout": 0.0}
    stack = StackConfig(**sizes, causal=True, **kwargs)
    return Transformer(ModelConfig(vocab_size=11, decoder=stack, tie_embeddings=False)).to(dtype).eval()


def padded(T: int, where: str) -> torch.Tensor | None:
    """Which of two rows' vectors are real."""
    keep = torch.ones(2, T, dtype=torch.bool)
    match where:
        case "left":
            keep[0, :3] = False
        case "inside":
            keep[1, 12:17] = False
        case _:
            return None
    return keep


@torch.no_grad()
def by_and_by(model: Transformer, x: torch.Tensor, keep: torch.Tensor | None, first: int = 10) -> torch.Tensor:
    """What a cache answers that is given `first` vectors, and then one at a time."""
    cache = model.new_cache()
    cuts = [(0, first), *((t, t + 1) for t in range(first, x.shape[1]))]
    return torch.cat([model(x[:, a:b], keep=None if keep is None else keep[:, a:b], cache=cache) for a, b in cuts], 1)


@pytest.mark.parametrize("where", ["nowhere", "left", "inside"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_cache_changes_nothing(settings, where):
    model = reader(torch.float64, **settings)
    x, keep = torch.randn(2, 80, 5, dtype=torch.float64), padded(80, where)
    real = torch.ones(2, 80, dtype=torch.bool) if keep is None else keep
    with torch.no_grad():
        whole = model(x, keep=keep)
    torch.testing.assert_close(by_and_by(model, x, keep)[real], whole[real], rtol=0, atol=1e-12)


def test_single_precision_and_a_relative_window():
    model = reader(torch.float32, positions="shaw", window=4)
    x = torch.randn(2, 40, 5)
    with torch.no_grad():
        torch.testing.assert_close(by_and_by(model, x, None), model(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("where", ["nowhere", "left"])
@pytest.mark.parametrize("settings", [{}, {"window": 8, "positions": "none"}], ids=["sinusoidal", "window"])
def test_places_beyond_256_in_bfloat16(settings, where):
    """bfloat16 has no 257, so places of that kind would stand in pairs."""
    model = reader(torch.bfloat16, n_layers=1, **settings)
    x, keep = torch.randn(2, 330, 5).bfloat16(), padded(330, where)
    with torch.no_grad():
        whole = model(x, keep=keep).float()
    apart = (by_and_by(model, x, keep, first=240).float() - whole).abs().amax((0, 2))
    assert apart[260:].max() <= 2 * apart[10:250].max() + 0.02
