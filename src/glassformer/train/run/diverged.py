"""When a loss or gradient is no longer finite, find the first module that caused it.

Several processes search together, each in its own part of the weights, and report the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from glassformer.base.errors import DivergedError
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.sharded import local


def explain(
    model: Transformer,
    pieces: Sequence[Batch],
    objective: Objective,
    *,
    step: int,
    loss: float,
    grad_norm: float,
    ranks: Ranks = ALONE,
) -> DivergedError:
    """The error to raise before the update: step, loss, norm, the first module to blame, and what to do."""
    of_gradient = first_bad_gradient(model, ranks)  # first, as a forward pass hides the gradients of a sharded model
    blame = first_bad_weight(model, ranks) or first_bad_output(model, pieces, objective) or of_gradient
    autocast = torch.is_autocast_enabled(next(model.parameters()).device.type)
    narrow = ", training.precision=float32" if autocast else ""
    return DivergedError(
        f"Training must stay finite; at step {step} the loss is {loss:.4g} and the gradient's norm {grad_norm:.4g}. "
        f"{blame or 'No single module is to blame: the sum overflowed.'} "
        f"The weights were not updated. Try a lower training.learning_rate{narrow} or a longer training.warmup."
    )


def first_bad_weight(model: nn.Module, ranks: Ranks = ALONE) -> str | None:
    """A sentence on the first parameter with a value that is not finite, in any of the processes."""
    name = first_bad(model.named_parameters(), ranks)
    return f"The weight {name} is not finite." if name else None


def first_bad_output(model: Transformer, pieces: Sequence[Batch], objective: Objective) -> str | None:
    """A sentence on the first module, in the order of the computation, whose output is not finite."""
    found: list[str] = []

    def watch(name: str) -> object:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not found and isinstance(output, Tensor) and not bool(output.isfinite().all()):
                found.append(name)

        return hook

    handles = [
        module.register_forward_hook(watch(name))  # pyright: ignore[reportArgumentType]
        for name, module in model.named_modules()
        if name and not any(True for _ in module.children())
    ]
    try:
        with torch.no_grad():
            for piece in pieces:
                loss_of(model, piece, objective)
    finally:
        for handle in handles:
            handle.remove()
    return f"The first module whose output is not finite is {found[0]}." if found else None


def first_bad_gradient(model: nn.Module, ranks: Ranks = ALONE) -> str | None:
    """A sentence on the last module, the first in the backward pass, whose gradient is not finite."""
    named = reversed([(name, parameter.grad) for name, parameter in model.named_parameters()])
    name = first_bad(named, ranks)
    return f"The outputs are finite; the gradient of {name} is not." if name else None


def first_bad(named: Iterable[tuple[str, Tensor | None]], ranks: Ranks) -> str | None:
    """The name of the first tensor of which any process has a part that is not finite."""
    names, tensors = zip(*named, strict=True)
    found = (number for number, each in enumerate(tensors) if each is not None and not local(each).isfinite().all())
    first = -int(ranks.largest(-next(found, len(names))))
    return names[first] if first < len(names) else None
