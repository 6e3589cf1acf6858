"""Named tensors and models: a safetensors file, which holds numbers only; turning a model into tensors and back."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.base.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    GlassformerError,
    ResourceError,
    some,
)
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS
from glassformer.nn.config import ModelConfig
from glassformer.nn.heads import NEVER
from glassformer.nn.transformer import Transformer
from glassformer.store.files import RESTORE, readable, regular_size, sync_file, without_links, write_new

# Reading and writing named tensors as a safetensors file, which holds numbers only, so that it can run no code.

LARGEST_HEADER = 16 * 2**20  # bytes; a hundred thousand tensors need about 10 MiB
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Create `path` with tensors from any device and fsync it; `about` goes into its header.

    Errors: `OSError` from the system.
    """
    write_new(path, b"")  # safetensors creates files with mode 0600; this one has the mode of the user's umask
    mode = path.stat().st_mode
    try:
        save_file(separate(tensors), path, about)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        full = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        number = int(code[1]) if code else full
        raise OSError(number, os.strerror(number) if code else str(error), str(path)) from error
    path.chmod(mode)
    sync_file(path)


def room_for(tensors: Mapping[str, Tensor]) -> int:
    """Estimate the bytes of a file of these tensors: their numbers, and a header entry for each."""
    return sum(tensor.nbytes + len(name) + 80 for name, tensor in tensors.items())


def separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, no two sharing memory, as the format requires; clones only those that would."""
    seen: set[int] = set()
    values: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        value = tensor.detach().to("cpu").contiguous()
        place = value.untyped_storage().data_ptr()
        values[name] = value.clone() if place in seen else value
        seen.add(place)
    return values


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Map the tensors of a file into memory; the disk is read only when they are used, so copy what must last.

    Errors: `CheckpointError` for anything but a safetensors file (no other format is ever tried); `ResourceError` for
    a file that the system cannot map.
    """
    size = regular_size(path)
    with readable(path), open(path, "rb", opener=without_links) as file:
        start = file.read(8)
    header = int.from_bytes(start, "little") if len(start) == 8 else size
    if header > min(size - 8, LARGEST_HEADER):
        raise CheckpointError(not_safetensors(path, start, f"its header would have {header:,} bytes"))
    try:
        with readable(path):
            return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(not_safetensors(path, start, str(error)[:150])) from error
    except RuntimeError as error:  # from torch, if the system cannot map this much
        raise ResourceError(
            f"{path} could not be mapped into memory ({size:,} bytes): {str(error)[:150]}. Close other programs."
        ) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # from Rust: a BaseException, which no caller expects
            raise
        raise CheckpointError(not_safetensors(path, start, str(error)[:150])) from None


def not_safetensors(path: Path, start: bytes, reason: str) -> str:
    """Return the message for a file that is damaged or of another format."""
    pickled = start[:1] == b"\x80" or start[:2] == b"PK"
    seems = " It looks like a pickle, which is never read, because reading one can run code." if pickled else ""
    return f"{path} is not a safetensors file: {reason}.{seems} {RESTORE}"


def refuse_non_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise `DivergedError` for NaN or infinity: a checkpoint with them is useless and would displace a useful one."""
    for name, tensor in tensors.items():
        if not tensor.dtype.is_floating_point or bool(torch.isfinite(tensor).all()):
            continue
        wrong = (~torch.isfinite(tensor)).nonzero()
        first = tuple(wrong[0].tolist())
        raise DivergedError(
            f"{what} must be finite to be saved; {len(wrong):,} of {tensor.numel():,} values of {name} are not, the "
            f"first ({tensor[first].item()}) at index {list(first)}. Nothing was written. Resume from the last "
            "checkpoint with a lower learning rate."
        )


def refuse_difference(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` if tensors differ from `expected` in names, shapes or `kind`, listing the differences."""

    def changed(what: Callable[[Tensor], object]) -> list[str]:
        """The tensors of both sides of which `what` differs."""
        both = [(name, what(expected[name]), what(found[name])) for name in expected if name in found]
        return [f"{shown(name)} (expected {ours}, found {theirs})" for name, ours, theirs in both if ours != theirs]

    differences = {
        "missing": [shown(name) for name in expected if name not in found],
        "unexpected": [shown(name) for name in found if name not in expected],
        "of the wrong shape": changed(lambda tensor: list(tensor.shape)),
        "of the wrong type": changed(kind),
    }
    lines = [f"{len(each)} {how}: {some(each, 3)}" for how, each in differences.items() if each]
    if lines:
        raise CheckpointError(
            f"{path} does not match the model that the config.json beside it describes. Tensors: {'; '.join(lines)}. "
            "Use the config.json that was saved with these weights."
        )


def kind(tensor: Tensor) -> str:
    """Return the dtype's kind for comparison: all floating-point types that a model computes in count as equal."""
    return "a floating-point type" if tensor.dtype in FLOATS else str(tensor.dtype).removeprefix("torch.")


def shown(name: str) -> str:
    """Return a name read from a file, made safe and short for a terminal."""
    return name if len(name) <= 100 and name.isprintable() else f"{name[:60]!a}…"


# Turning a model into named tensors and back; a tied matrix, one tensor under several names, is stored once.

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
    wrapper = next((name for name in WRAPPERS if any(each.startswith(f"{name}.") for each in state)), None)
    if wrapper is not None:
        raise CheckpointError(
            "The model to be saved must not be wrapped (compiled or distributed); the names of its weights begin with "
            f"{wrapper!r}. Save the model inside: model.{wrapper}."
        )
    return {name: state[name] for name in dict.fromkeys(stored_names(model).values())}


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


# The rows of a vocabulary: those of an imported model in the order of our ids, and those that an export has.

INPUT, OUTPUT, BIAS = "decoder.embedding.weight", "head.weight", "head.bias"
"""Our names of the tensors of a decoder that have a row for each token."""


def reordered(
    config: ModelConfig, weights: Mapping[str, Tensor], rows: Sequence[int | None]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return config and weights of the same decoder with our ids: id i has their row `rows[i]`, zeros if that is None.

    Of the special tokens only <eos> is predicted; the others are `silent`. So every other token has the probability
    that it had there, if theirs has no special tokens but the end of a text.
    """
    index = torch.tensor([row or 0 for row in rows])
    empty = torch.tensor([row is None for row in rows])
    made = {
        name: each[index].masked_fill(empty[:, None], 0.0) if name in (INPUT, OUTPUT) else each
        for name, each in weights.items()
    }
    silent = [id for id in range(len(SPECIALS)) if id != EOS or rows[EOS] is None]
    made[BIAS] = torch.zeros(len(rows)).index_fill(0, torch.tensor(silent), NEVER)
    return replace(config, vocab_size=len(rows), silent=",".join(map(str, silent))), made


class Kept(NamedTuple):
    """The tokens of a model that its export has."""

    ids: list[int]
    """Our ids, in ascending order; the id of each in the export is its place here."""
    ends: list[int]
    """Our ids of special tokens that are the token <eos> there, as they have its rows."""
    silent: list[int]
    """Those of `ids` that our model never predicts, but that have a logit there."""

    def stands_for(self, id: int) -> int:
        """Our id of the token that a special token is there."""
        return EOS if id in self.ends else id

    def place(self, id: int) -> int | None:
        """The id of a special token there; None if there is none."""
        own = self.stands_for(id)
        return self.ids.index(own) if own in self.ids else None


def kept_rows(config: ModelConfig, weights: Mapping[str, Tensor], needed: Collection[int]) -> Kept:
    """Choose the tokens to export: all, except special ones that the model never predicts and that have no rows.

    They would get a logit there, and so a probability, as other libraries have no `silent`. The tokens `needed` are
    kept even so, because a tokenizer gives their ids.
    """
    tables = [weights[name] for name in (INPUT, OUTPUT) if name in weights]
    requested = [id for id in config.silent_ids if id < len(SPECIALS)]
    empty = [id for id in requested if id not in needed and not any(bool(each[id].any()) for each in tables)]
    others = [id for id in requested if id not in (*empty, EOS) and (id not in needed or id == BOS)]
    ends = [id for id in others if EOS not in empty and all(torch.equal(each[id], each[EOS]) for each in tables)]
    ids = [id for id in range(config.vocab_size or 0) if id not in (*empty, *ends)]
    return Kept(ids, ends, [id for id in config.silent_ids if id in ids])


def selected(config: ModelConfig, weights: Mapping[str, Tensor], kept: Kept) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return config and weights of the same decoder with the rows of these tokens."""
    made = {name: each[kept.ids] if name in (INPUT, OUTPUT) else each for name, each in weights.items() if name != BIAS}
    return replace(config, vocab_size=len(kept.ids), silent=""), made
