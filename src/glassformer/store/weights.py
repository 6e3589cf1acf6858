"""Turning a model into named tensors and back; a tied matrix, one tensor under several names, is stored once."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import CheckpointError, ConfigError, GlassformerError, ResourceError
from glassformer.nn.config import ModelConfig
from glassformer.nn.transformer import Transformer
from glassformer.store.json_file import RESTORE
from glassformer.store.tensors import refuse_difference

SIZES = (
    *("vocab_size", "source_vocab_size", "d_model", "d_ff", "n_heads", "n_kv_heads", "d_head"),
    *("n_features", "n_segments", "n_labels", "n_numbers", "n_experts"),
)
WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module")
"""The attributes in which torch.compile, DistributedDataParallel and FSDP keep the wrapped model."""

WRONG = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors that a value of a wrong type or size may cause in a constructor."""


def stored_names(model: nn.Module) -> dict[str, str]:
    """Map each name in the model's state_dict to the name that its tensor is stored under: the tensor's first name."""
    first: dict[int, str] = {}
    shared = {
        name: first.setdefault(id(tensor), name)
        for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
        for name, tensor in named
    }
    return {name: shared[name] for name in model.state_dict()}


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors, each once, by stored name. Errors: `CheckpointError` for a wrapped model."""
    state: Mapping[str, Tensor] = model.state_dict()
    wrapper = next((name for name in map(first_word, state) if name in WRAPPERS), None)
    if wrapper is not None:
        raise CheckpointError(
            "The model to be saved must not be wrapped (compiled or distributed); the names of its weights begin with "
            f"{wrapper!r}. Save the model inside: model.{wrapper}."
        )
    return {name: state[name] for name in dict.fromkeys(stored_names(model).values())}


def first_word(name: str) -> str:
    """Return the part of a name before its first dot."""
    return name.partition(".")[0]


def rebuild(values: Any, weights: Mapping[str, Tensor], folder: Path, device: torch.device) -> Transformer:
    """Build the model that the contents of config.json describe, with `weights`, on `device`, in evaluation mode.

    Memory is allocated only after names, shapes and kinds agree. The weights keep the dtype they were saved in.
    Errors: `CheckpointError` for an invalid config or for weights of another model, `ResourceError` if they do not
    fit into memory.
    """
    model = outline(values, weights, folder / "config.json")
    names = stored_names(model)
    refuse_difference(folder / "model.safetensors", unique_weights(model), weights)
    with enough_memory(f"The model in {folder}", weights, device):
        if any(name not in names for name, _ in model.named_buffers()):
            with torch.random.fork_rng(devices=[]):
                model = Transformer(model.config)  # a buffer that no file holds must be computed, which `meta` cannot
        allocate(model, weights, device)
    model.load_state_dict({name: weights[stored] for name, stored in names.items()})
    return model.eval()


def outline(values: Any, weights: Mapping[str, Tensor], path: Path) -> Transformer:
    """Build the model on the device `meta`: all shapes, no numbers, almost no memory."""
    refuse_implausible(values, weights, path)
    try:
        with torch.device("meta"):
            return Transformer(ModelConfig.from_dict(values))
    except GlassformerError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except WRONG as error:
        raise CheckpointError(f"{path} has a value that no model can have: {str(error)[:150]}. {RESTORE}") from error


def refuse_implausible(values: Any, weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise `CheckpointError` for a config with sizes larger than any tensor's in the file.

    Merely building a model of arbitrary size could use up all time and memory.
    """
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must be a JSON object of settings; got {type(values).__name__}. {RESTORE}")
    longest = max((length for tensor in weights.values() for length in tensor.shape), default=0)
    limits = dict.fromkeys(SIZES, longest) | {"n_layers": len(weights) // 4}  # a block has at least four projections
    unused = unused_vocabularies(values)
    for part in (values, values.get("encoder"), values.get("decoder"), values.get("head")):
        for name, limit in limits.items():
            value = part.get(name) if isinstance(part, dict) else None
            if isinstance(value, int | float) and value > limit and name not in unused:
                raise CheckpointError(
                    f"{path} says {name}={value:.6g}, but model.safetensors has {len(weights)} tensors, none of them "
                    f"longer than {longest}. Use the config.json that was saved with these weights."
                )


def unused_vocabularies(values: dict[str, Any]) -> set[str]:
    """Return the vocabulary sizes that no tensor has: their stacks read features and the head writes no tokens."""
    encoder, decoder, head = (values.get(name) for name in ("encoder", "decoder", "head"))
    sides = {"source_vocab_size": [encoder], "vocab_size": [decoder]}
    if not (values.get("source_vocab_size") and decoder):
        sides["vocab_size"].append(encoder)  # the encoder shares the decoder's vocabulary, or there is no decoder
    written = head is None or (isinstance(head, dict) and head.get("kind") == "lm")
    return {
        name
        for name, stacks in sides.items()
        if not (written and name == "vocab_size")
        and all(stack is None or (isinstance(stack, dict) and stack.get("n_features")) for stack in stacks)
    }


def allocate(model: nn.Module, weights: Mapping[str, Tensor], device: torch.device) -> None:
    """Allocate every tensor of a model on `device`; tied tensors stay tied."""
    places = [
        (module, name, f"{path}.{name}".lstrip("."), old)
        for path, module in model.named_modules(remove_duplicate=False)
        for name, old in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    ]  # this list keeps the old tensors alive, so that no new one gets the id of an old one
    made: dict[int, Tensor] = {}
    for module, name, stored, old in places:
        if id(old) not in made:
            new = (
                torch.empty_like(old, device=device, dtype=weights[stored].dtype)
                if stored in weights
                else old.to(device)
            )
            made[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
        setattr(module, name, made[id(old)])


@contextmanager
def enough_memory(what: str, tensors: Mapping[str, Tensor], device: torch.device) -> Generator[None, None, None]:
    """Turn torch's errors for too little memory, or for a dtype that the device lacks, into a `ResourceError`."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        needed = sum(tensor.nbytes for tensor in tensors.values())
        raise ResourceError(
            f"{what} needs {needed:,} bytes on {device}, and could not be put there: {str(error)[:150]}. Close other "
            "programs, or use another device."
        ) from error


def usable(device: str | torch.device) -> torch.device:
    """Return the device. Errors: `ConfigError` if this machine cannot use it."""
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (AssertionError, RuntimeError) as error:
        first = str(error).splitlines()[0][:150]
        raise ConfigError(f"device={str(device)!r} cannot be used here: {first}. Try device='cpu'.") from error
    return found
