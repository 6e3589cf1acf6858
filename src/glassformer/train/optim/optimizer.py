"""The optimizers by name, over groups of parameters by role and depth; and their state by parameter name."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from glassformer.foundation.errors import CheckpointError
from glassformer.foundation.registry import lookup
from glassformer.train.optim.muon import Group, Muon
from glassformer.train.optim.optimizer_config import OptimizerConfig
from glassformer.train.optim.uncompiled import Adafactor, AdamW

Arithmetic = torch.dtype | None
NamedState = dict[str, dict[str, Tensor]]
"""Parameter name -> {"exp_avg": ..., "exp_avg_sq": ..., "step": ...}, or what else the optimizer keeps."""


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, *, learning_rate: float, dtype: Arithmetic = None
) -> torch.optim.Optimizer:
    """The optimizer of a model. `dtype`: what Muon computes products in; None: the weights' own.

    Only hidden matrices decay: those of the blocks' linear maps and, as in BERT, the dense map of a head; not biases,
    norms, embeddings, nor the matrix that makes the scores, which is an embedding's where the two are tied. A group's
    "scale" is its share of the learning rate of a step.
    """
    build = lookup(OPTIMIZERS, config.name, "optimizer.name")
    linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    matrices: dict[float, list[Tensor]] = {}
    others: dict[float, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        role, scale = (matrices if id(parameter) in linear else others), config.layer_decay ** above(model, name)
        role.setdefault(scale, []).append(parameter)
    return build(
        [{"params": some, "weight_decay": config.weight_decay, "scale": scale} for scale, some in matrices.items()],
        [{"params": some, "weight_decay": 0.0, "scale": scale} for scale, some in others.items()],
        config,
        learning_rate,
        dtype,
    )


def above(model: nn.Module, name: str) -> int:
    """How many steps below the head a parameter stands: 0 for the head, 1 for the last block and what follows it."""
    if name.startswith("head."):
        return 0
    stack, _, rest = name.partition(".")
    blocks = getattr(getattr(model, stack), "blocks", ())
    if found := re.match(r"blocks\.(\d+)\.", rest):
        return len(blocks) - int(found[1])
    return 1 if rest.startswith("norm.") else len(blocks) + 1


def adamw(matrices: list[Group], others: list[Group], config: OptimizerConfig, rate: float, dtype: Arithmetic) -> AdamW:
    """AdamW (Loshchilov and Hutter 2019), fused."""
    del dtype
    betas = (config.beta1, config.beta2)
    return AdamW([*matrices, *others], lr=rate, betas=betas, eps=config.epsilon, fused=True)


def muon(matrices: list[Group], others: list[Group], config: OptimizerConfig, rate: float, dtype: Arithmetic) -> Muon:
    """Muon (Jordan et al. 2024) for the hidden matrices, AdamW for the rest."""
    betas = (config.beta1, config.beta2)
    return Muon(matrices, others, lr=rate, momentum=config.momentum, betas=betas, eps=config.epsilon, dtype=dtype)


def adafactor(
    matrices: list[Group], others: list[Group], config: OptimizerConfig, rate: float, dtype: Arithmetic
) -> Adafactor:
    """Adafactor (Shazeer and Stern 2018), which keeps a mean a row and a mean a column of squared gradients.

    A step is a share of the weights' own size, so its learning rate is larger than AdamW's: 0.01, say.
    """
    del config, dtype
    return Adafactor([*matrices, *others], lr=rate)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": muon, "adafactor": adafactor}


def kept(optimizer: torch.optim.Optimizer, parameter: Tensor) -> set[str]:
    """The names of what an optimizer keeps of a parameter."""
    if isinstance(optimizer, Muon) and any(parameter is each for g in optimizer.matrices for each in g["params"]):
        return {"momentum"}
    if isinstance(optimizer, Adafactor):
        return {"step", "row_var", "col_var"} if parameter.ndim > 1 else {"step", "variance"}
    return {"step", "exp_avg", "exp_avg_sq"}


def shape_of(key: str, parameter: Tensor) -> torch.Size:
    """The shape of what is kept under a name; Adafactor's means of rows and columns are narrower than the matrix."""
    *batch, rows, columns = parameter.shape if parameter.ndim > 1 else (1, *parameter.shape)
    narrow = {"row_var": (*batch, rows, 1), "col_var": (*batch, 1, columns)}
    return torch.Size(narrow.get(key, parameter.shape))


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> NamedState:
    """The optimizer's tensors by parameter name, which outlives any order of parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module, saved: NamedState, *, unused: bool = False
) -> None:
    """Puts saved tensors back. `unused`: it has made no update so far, so that it may have kept nothing yet.

    Errors: `CheckpointError` where names or shapes are not the model's.
    """
    if unused and not any(saved.values()):
        return
    parameters = dict(model.named_parameters())
    if missing := sorted(parameters.keys() ^ saved.keys()):
        raise CheckpointError(
            f"The saved optimizer must have the parameters of the model; these stand in only one of the two: "
            f"{', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}. Resume with the recipe that began the run."
        )
    for name, tensors in saved.items():
        parameter = parameters[name]
        if tensors.keys() != (known := kept(optimizer, parameter)):
            raise CheckpointError(
                f"The saved optimizer must be of the kind that goes on; of {name} it has {', '.join(sorted(tensors))}, "
                f"and {type(optimizer).__name__} keeps {', '.join(sorted(known))}. Resume with the recipe that began "
                "the run."
            )
        for key, tensor in tensors.items():
            if tensor.ndim and tensor.shape != shape_of(key, parameter):
                raise CheckpointError(
                    f"The saved optimizer's {key} of {name} has shape {tuple(tensor.shape)}, but the parameter "
                    f"{tuple(parameter.shape)}. Resume with the recipe that began the run."
                )
        optimizer.state[parameter] = {key: tensor.to(parameter.device) for key, tensor in tensors.items()}
