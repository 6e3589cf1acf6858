"""Build an optimizer by name over groups of parameters by role and depth, and save its state by parameter name."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from glassformer.base.errors import CheckpointError
from glassformer.base.registry import lookup
from glassformer.train.muon import Adafactor, AdamW, Group, Muon
from glassformer.train.ranks.sharded import is_sharded, local, put_back
from glassformer.train.settings import OptimizerConfig

Arithmetic = torch.dtype | None
NamedState = dict[str, dict[str, Tensor]]
"""Parameter name -> {"exp_avg": ..., "exp_avg_sq": ..., "step": ...}, or whatever else the optimizer keeps."""


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, *, learning_rate: float, dtype: Arithmetic = None
) -> torch.optim.Optimizer:
    """Build the optimizer of a model. `dtype`: what Muon computes products in; None: the weights' own.

    Weight decay applies to hidden matrices only: those of the blocks' linear maps and, as in BERT, of a head's dense
    layer. Biases, norms, embeddings and the matrix that computes the scores (the embedding's if the two are tied) do
    not decay. The learning rate of a step is multiplied by each group's "scale": less for lower blocks if there is a
    layer decay, and `adamw_scale` for what Muon leaves to AdamW.
    """
    build = lookup(OPTIMIZERS, config.name, "optimizer.name")
    linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    matrices: dict[float, list[Tensor]] = {}
    others: dict[float, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        depth = config.layer_decay ** above(model, name)
        if id(parameter) in linear:
            matrices.setdefault(depth, []).append(parameter)
        else:
            others.setdefault(depth * config.adamw_scale, []).append(parameter)
    return build(
        [{"params": some, "weight_decay": config.weight_decay, "scale": scale} for scale, some in matrices.items()],
        [{"params": some, "weight_decay": 0.0, "scale": scale} for scale, some in others.items()],
        config,
        learning_rate,
        dtype,
    )


def above(model: nn.Module, name: str) -> int:
    """The depth of a parameter below the head: 0 for the head, 1 for the last block and the norm after it."""
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
    """Adafactor (Shazeer and Stern 2018), which keeps only the row and column means of squared gradients.

    A step is a fraction of the weights' own size, so its learning rate is larger than AdamW's: 0.01, for example.
    """
    del config, dtype
    return Adafactor([*matrices, *others], lr=rate)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": muon, "adafactor": adafactor}


def kept(optimizer: torch.optim.Optimizer, parameter: Tensor) -> set[str]:
    """The names of what the optimizer keeps for a parameter."""
    if isinstance(optimizer, Muon) and any(parameter is each for g in optimizer.matrices for each in g["params"]):
        return {"momentum"}
    if isinstance(optimizer, Adafactor):
        return {"step", "row_var", "col_var"} if parameter.ndim > 1 else {"step", "variance"}
    return {"step", "exp_avg", "exp_avg_sq"}


def shape_of(key: str, parameter: Tensor) -> torch.Size:
    """The shape of what is kept as `key`; Adafactor's row and column means are narrower than the matrix."""
    *batch, rows, columns = parameter.shape if parameter.ndim > 1 else (1, *parameter.shape)
    narrow = {"row_var": (*batch, rows, 1), "col_var": (*batch, 1, columns)}
    return torch.Size(narrow.get(key, parameter.shape))


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> NamedState:
    """The optimizer's tensors by parameter name, which does not depend on the order of the parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module, saved: NamedState, *, unused: bool = False
) -> None:
    """Restore saved tensors. `unused`: the optimizer has made no update yet, so that it may have kept nothing.

    Errors: `CheckpointError` if names or shapes differ from the model's.
    """
    if unused and not any(saved.values()):
        return
    parameters = dict(model.named_parameters())
    if missing := sorted(parameters.keys() ^ saved.keys()):
        raise CheckpointError(
            "The saved optimizer must have the parameters of the model; only one of the two has "
            f"{', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}. Resume with the recipe that the run began "
            "with."
        )
    for name, tensors in saved.items():
        parameter = parameters[name]
        if tensors.keys() != (known := kept(optimizer, parameter)):
            raise CheckpointError(
                f"The saved optimizer must be of the same kind as that of the recipe; for {name} it has "
                f"{', '.join(sorted(tensors))}, but {type(optimizer).__name__} keeps {', '.join(sorted(known))}. "
                "Resume with the recipe that the run began with."
            )
        for key, tensor in tensors.items():
            if tensor.ndim and tensor.shape != shape_of(key, parameter):
                raise CheckpointError(
                    f"The saved optimizer's {key} of {name} must have the shape of the parameter, "
                    f"{tuple(parameter.shape)}; it has {tuple(tensor.shape)}. Resume with the recipe that the run "
                    "began with."
                )
        optimizer.state[parameter] = {key: tensor.to(parameter.device) for key, tensor in tensors.items()}


# A moving average of the weights over all steps so far, which is evaluated and kept instead of the last weights.

SUM, LAST = "average", "last"
"""What a checkpoint keeps for each parameter, beside the average, which is stored as the weights of its model."""


class Average:
    """sum <- memory sum + (1 - memory) weights after each step; the average is sum / (1 - memory^steps).

    An exponential moving average (Polyak and Juditsky 1992 for the plain mean), corrected for its start at zero as
    Adam's moments are (Kingma and Ba 2015, algorithm 1). It smooths out the noise of the last batches. If a model is
    sharded over several processes, each averages the parts that it has.
    """

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.model = model
        self.memory = memory
        self.sums: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights into the average after a step."""
        for name, parameter in self.model.named_parameters():
            local(self._sum(name, parameter)).lerp_(local(parameter), 1 - self.memory)

    @contextmanager
    def in_place(self, steps: int) -> Generator[None]:
        """Give the model its average over `steps` steps as weights; afterwards it has its own again, bit for bit.

        Before the first step there is no average, and the model keeps its own weights.
        """
        if steps == 0:
            yield
            return
        own = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        put(self.model, {name: each / (1 - self.memory**steps) for name, each in self.sums.items()})
        try:
            yield
        finally:
            if any(is_sharded(each) for each in own.values()):
                put_back(self.model)  # drops the whole weights that a forward in between may have gathered
            put(self.model, own)

    def state(self) -> NamedState:
        """What `restore` needs; the weights among it are the model's own only if this is called outside `in_place`."""
        return {
            name: {SUM: self._sum(name, parameter), LAST: parameter.detach().clone()}
            for name, parameter in self.model.named_parameters()
        }

    def restore(self, saved: NamedState) -> NamedState:
        """Restore what `state` returned, including the model's weights. Returns the rest, which is the optimizer's.

        Errors: `CheckpointError` if the saved state has no average.
        """
        if any(not {SUM, LAST} <= slots.keys() for slots in saved.values()):
            raise CheckpointError(
                "A run with optimizer.average needs the average in its checkpoint; this one has none. Resume with the "
                "recipe that the run began with."
            )
        put(self.model, {name: slots[LAST] for name, slots in saved.items()})
        self.sums = {name: slots[SUM] for name, slots in saved.items()}
        return {
            name: {key: each for key, each in slots.items() if key not in (SUM, LAST)} for name, slots in saved.items()
        }

    def _sum(self, name: str, parameter: Tensor) -> Tensor:
        if name not in self.sums:
            self.sums[name] = torch.zeros_like(parameter)
        return self.sums[name]


def merged(one: NamedState, other: NamedState) -> NamedState:
    """Merge two states: what either keeps for each parameter."""
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {**one, **other}}


def averaged(average: Average | None, steps: int) -> AbstractContextManager[None]:
    """`average.in_place(steps)`, or a context that does nothing if there is no average."""
    return average.in_place(steps) if average else nullcontext()


@torch.no_grad()
def put(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model, by name."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
