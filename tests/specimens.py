"""Small models, padded rows and comparisons: what the laws of `contract/`, `parity/` and their neighbours share.

What `glassformer verify` tries its own laws on is tried here too, on the processor, in float64 and with more settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from glassformer import ATTEND, ModelConfig, Transformer
from glassformer.base.schemes import RelativeConfig, RotaryConfig
from glassformer.fast.compiler import compiler
from glassformer.fast.training import SWITCH
from glassformer.nn.block import PLACEMENTS
from glassformer.nn.feed_forward import ACTIVATIONS, EXPERTS, FEED_FORWARDS
from glassformer.nn.norm import NORMS
from glassformer.nn.outputs import Lm
from glassformer.nn.positions import POSITIONS, ROTARY_LAYOUTS, ROTARY_SCALINGS
from glassformer.nn.recipe import DEFAULTS, LOOK_BACK
from glassformer.proof.laws import law as library
from glassformer.proof.laws.law import PADDINGS, VOCAB, Setting, stack

__all__ = ["PADDINGS", "VOCAB", "stack"]  # the library's own, beside what is defined here
HERE = Setting(torch.device("cpu"), torch.float64)
SHAPES = ("encoder", "decoder", "encoder-decoder")
TOLERANCE = 1e-12  # for float64
native_cpp = pytest.mark.skipif(
    compiler() is None or os.environ.get(SWITCH) == "0",
    reason=f"no C++ compiler is here, or {SWITCH}=0 leaves ours off",
)
RULES = [*({"attention_rule": name} for name in ATTEND), {"attention_rule": "linear", "attention": "sums"}]
PATTERNS = [
    {"window": 2, "attention": "sparse"},
    {"window": 2, "dilation": 2, "attention": "sparse"},
    {"window": 2, "global_tokens": 1, "attention": "sparse"},
    {"window": 2, "sinks": 1, "attention": "sparse"},
    {"stride": 3, "attention": "sparse"},
    {"block": 3, "summary": 2, "attention": "sparse"},
]

FORWARD_ONLY = ("flex",)
"""Backends that have no gradients on a processor: there their values alone are compared, and learning meets this:"""
NO_BACKWARD = (
    r"no backward pass on cpu, so attention_rule='softmax' with attention='flex' cannot be trained.*'auto', a cuda"
)

WANTS = {"experts": {"n_experts": 3}}  # what a feed-forward cannot be made without
FEED_FORWARD_SETTINGS = [
    *({"feed_forward": name, **WANTS.get(name, {})} for name in FEED_FORWARDS),
    *({"feed_forward": "gated", "activation": name} for name in ACTIVATIONS),
    *({"feed_forward": "experts", "n_experts": 4, "experts_per_token": k, "expert": name}
      for name, k in zip(EXPERTS, (1, 4), strict=True)),
]  # fmt: skip
INSIDES = [
    *({"norm_placement": name} for name in PLACEMENTS),
    *({"norm": name} for name in NORMS),
    *({"activation": name} for name in ACTIVATIONS),
    *FEED_FORWARD_SETTINGS,
    *({"qk_norm": name} for name in NORMS),
    {"qk_norm": "rms", "positions": "rotary", "n_kv_heads": 1},
    {"norm": "rms", "norm_placement": "sandwich", "feed_forward": "gated", "activation": "silu"},
    {"residual_scale": 1.7},
    {"deepnorm": True, "norm_placement": "post"},
    {"parallel_branches": True},
    {"parallel_branches": True, "norm_placement": "sandwich", "convolution": 2, "positions": "rotary"},
    {"n_kv_heads": 1},
    {"attention_scale": 1.0},
    {"convolution": 2},
    {"convolution": 4, "norm_placement": "output", "positions": "rotary"},
    {"layers": "0 window=2 feed_forward=gated; 1 positions=none n_heads=1", "positions": "rotary"},
    {"layers": "0 feed_forward=plain; 1 convolution=2", "feed_forward": "experts", "n_experts": 3},
]
"""What may stand inside a block, by settings: the contract tests run each through every law."""

ENDS = [
    {"embedding_norm": True},
    {"embedding_norm": True, "norm": "rms"},
    {"scale_head": True},
    {"head": Lm(transform="gelu")},
    {"head": Lm(transform="relu"), "head_bias": True, "scale_head": True},
]
"""What may stand before the first block and behind the last: the contract tests run each through every law."""

SCALED = {
    "none": {},
    "linear": {"factor": 3.0},
    "ntk": {"factor": 3.0},
    "yarn": {"factor": 3.0, "original_max_len": 40, "fast_turns": 4.0},
    "llama3": {"factor": 3.0, "original_max_len": 40},
}
"""What each rotary scaling cannot be made without; with these bands a head of four is slowed in part."""
ROTARY = [
    *(RotaryConfig(layout=name, base=100.0) for name in ROTARY_LAYOUTS if name != RotaryConfig().layout),
    *(RotaryConfig(scaling=name, **SCALED[name]) for name in ROTARY_SCALINGS if name != RotaryConfig().scaling),
    RotaryConfig(layout="interleaved", share=0.5),
]
ORDERS = [
    *({"positions": name} for name in POSITIONS),
    *({"positions": "rotary", "rotary": each} for each in ROTARY),
    {"positions": "t5", "relative": RelativeConfig(n_buckets=6, max_distance=5)},
    {"positions": "shaw", "relative": RelativeConfig(clip_distance=2)},
]
"""Every position scheme, layout and scaling, by settings; the last two so small that short rows reach their ends."""


def config(shape: str = "encoder-decoder", **settings: object) -> ModelConfig:
    """A small model; of `settings` each goes to the model or to its stacks, whichever has it.

    A pattern that looks back makes its stack causal; in an encoder-decoder the decoder alone has it.
    """
    own = {field.name for field in fields(ModelConfig)} & settings.keys()
    whole = {"vocab_size": VOCAB, **{name: settings.pop(name) for name in own}}
    stacks = {side: dict(settings) for side in shape.split("-")}
    if settings.keys() & {*LOOK_BACK}:
        stacks[shape.split("-")[-1]]["causal"] = True
    if len(stacks) == 2:
        stacks["encoder"] |= {name: DEFAULTS[name] for name in LOOK_BACK}
    return ModelConfig(**{side: stack(**chosen) for side, chosen in stacks.items()}, **whole)


def model(shape: str = "encoder-decoder", *, dtype: torch.dtype = torch.float64, **settings: object) -> Transformer:
    """In evaluation mode, every parameter random: zeros and ones look alike after many a mistake."""
    return scramble(Transformer(config(shape, **settings)).to(dtype)).eval()


def scramble(module: nn.Module) -> nn.Module:
    """The module with every parameter drawn from N(0, 0.4)."""
    dtype = next((each.dtype for each in module.parameters()), HERE.dtype)
    return library.scramble(module, HERE._replace(dtype=dtype))


def tokens(*shape: int) -> Tensor:
    """Random ids."""
    return library.tokens(HERE, *shape)


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random numbers that ask for a gradient."""
    return library.normal(HERE._replace(dtype=dtype), *shape)


def padded(rows: Sequence[Tensor], width: int, where: str) -> tuple[Tensor, Tensor]:
    """Rows of ids in one tensor, and where it is real."""
    return library.padded(HERE, rows, width, where)


def close(ours: Tensor, theirs: Tensor, what: object = "", tolerance: float = TOLERANCE) -> None:
    """Equal within the tolerance, relative to the larger of 1 and what is expected; NaN equals nothing."""
    assert ours.shape == theirs.shape, f"{what}: {tuple(ours.shape)} against {tuple(theirs.shape)}"
    error = ((ours - theirs).abs() / theirs.abs().clamp(min=1)).max().item() if ours.numel() else 0.0
    assert error <= tolerance, f"{what}: {error:.3g} apart"  # a NaN fails this too


@contextmanager
def graph_where_it_can_be(backend: str | None) -> Iterator[None]:
    """No gradients for a backend that has none here, and nothing else changed."""
    with torch.set_grad_enabled(backend not in FORWARD_ONLY):
        yield


def gradients(of: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """The gradient of a weighted sum of `of` by parameter name; the weights differ, so nothing cancels."""
    weights = torch.linspace(-1, 2, of.numel(), dtype=of.dtype).view_as(of)
    named = dict(module.named_parameters())
    found = torch.autograd.grad((of * weights).sum(), list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


@contextmanager
def production() -> Iterator[None]:
    """Shapes go unchecked, as they do for users: what an error then says is our own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
