"""AdamW over two groups of parameters, and its state by parameter name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.foundation.errors import CheckpointError

NamedState = dict[str, dict[str, Tensor]]
"""Parameter name -> {"exp_avg": ..., "exp_avg_sq": ..., "step": ...}."""


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.98),
    epsilon: float = 1e-9,
    weight_decay: float = 0.0,
) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019), fused. Only the matrices of the blocks' linear maps decay.

    Not biases, norms, embeddings, nor the head, which is an embedding's matrix where the two are tied.
    """
    linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if id(p) in linear], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) not in linear], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=epsilon, fused=True)


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> NamedState:
    """The optimizer's tensors by parameter name, which outlives any order of parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, saved: NamedState) -> None:
    """Puts saved tensors back. Errors: `CheckpointError` where names or shapes are not the model's."""
    parameters = dict(model.named_parameters())
    if missing := sorted(parameters.keys() ^ saved.keys()):
        raise CheckpointError(
            f"The saved optimizer must have the parameters of the model; these stand in only one of the two: "
            f"{', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}. Resume with the recipe that began the run."
        )
    for name, tensors in saved.items():
        parameter = parameters[name]
        for key, tensor in tensors.items():
            if tensor.ndim and tensor.shape != parameter.shape:
                raise CheckpointError(
                    f"The saved optimizer's {key} of {name} has shape {tuple(tensor.shape)}, but the parameter "
                    f"{tuple(parameter.shape)}. Resume with the recipe that began the run."
                )
        optimizer.state[parameter] = {key: tensor.to(parameter.device) for key, tensor in tensors.items()}
