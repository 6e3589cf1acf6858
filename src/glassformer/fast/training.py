"""Put speed on a model for training: faster equals of its parts, with the same parameters under the same names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import torch
from torch import nn

from glassformer.fast import attention, cross_entropy, orthogonal
from glassformer.fast.attention import FastAttention
from glassformer.fast.compiler import why_not
from glassformer.fast.dropout import FastDropout, FastStochasticDepth
from glassformer.fast.native import has_cpp
from glassformer.nn.transformer import Transformer
from glassformer.train.muon import Muon

SWITCH = "GLASSFORMER_FAST"
"""An environment variable: 0 leaves every model as it is, in plain torch."""
COST = "a training step on a CPU takes about 1.1 times as long"
PARTS: dict[type[nn.Module], Path | None] = {
    FastDropout: None,
    FastStochasticDepth: None,
    FastAttention: attention.SOURCE,
}
"""Faster equals of modules, each naming the class that it `exchanges`, and the C++ that it calls."""


class Exchanged(AbstractContextManager["Exchanged"]):
    """Which parts were exchanged, until they are taken off: by `take_off()`, or at the end of a `with`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """Lines for the user: why it is off, if it is."""
        self._undo = ExitStack()

    def put(self, target: object, name: str, value: object) -> None:
        """Set an attribute of a module, or of an optimizer, until `take_off`."""
        if name in vars(target) or name == "__class__":
            self._undo.callback(setattr, target, name, getattr(target, name))
        else:
            self._undo.callback(delattr, target, name)
        setattr(target, name, value)

    def take_off(self) -> None:
        """Give the model its own parts back."""
        self._undo.close()

    def __exit__(self, *error: object) -> None:
        """Take off what was put on."""
        self.take_off()


def for_training(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Exchanged:
    """Exchange parts of a model on a CPU for faster equals: attention, dropout, loss, Muon's step.

    Equal to rounding, dropout in distribution. Parameters, their names and the optimizer's state stay as they are, and
    so does what is computed in evaluation. Take it off by `take_off()`, or use it as a context manager:

    >>> from glassformer import ModelConfig, StackConfig, Transformer, fast
    >>> model = Transformer(ModelConfig(vocab_size=9, decoder=StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)))
    >>> with fast.for_training(model):
    ...     pass  # train it

    Whether a part can be exchanged is decided now: one with hooks of its own, a `forward` of its own, or on another
    device is left alone. Without a C++ compiler that takes ours, or with GLASSFORMER_FAST=0, `notes` says so
    and what it costs.
    """
    exchanged = Exchanged()
    if os.environ.get(SWITCH, "1").strip() == "0":
        exchanged.notes.append(f"fast: off, as {SWITCH}=0 says; {COST}")
        return exchanged
    if not any(each.device.type == "cpu" for each in model.parameters()):
        return exchanged
    if not has_cpp(attention.SOURCE) and (reason := why_not(attention.SOURCE)):
        exchanged.notes.append(f"fast: {reason}; {COST}")
    for module, fast in exchangeable(model):
        exchanged.put(module, "__class__", fast)
    head = getattr(model, "head", None)
    if isinstance(model, Transformer) and has_cpp(cross_entropy.SOURCE):
        exchanged.put(head, "loss_kernel", cross_entropy.KERNEL)
    if isinstance(optimizer, Muon) and has_cpp(orthogonal.SOURCE):
        exchanged.put(optimizer, "iterate", orthogonal.iterate)
    return exchanged


def exchangeable(model: nn.Module) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
    """The modules that have a faster equal here, and its class."""
    equals = {fast.exchanges: fast for fast, source in PARTS.items() if source is None or has_cpp(source)}  # pyright: ignore
    for module in model.modules():
        fast = equals.get(type(module))
        if fast is None or "forward" in vars(module) or any(each.device.type != "cpu" for each in module.parameters()):
            continue
        if not isinstance(module, attention.Attention) or attention.plain(module):
            yield module, fast
