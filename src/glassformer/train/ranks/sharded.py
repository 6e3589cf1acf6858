"""Shard one model over several processes: weights, gradients and optimizer state in parts, checkpoints whole.

FSDP2 (Zhao et al. 2023, "PyTorch FSDP"; `torch.distributed.fsdp.fully_shard`; the idea is ZeRO's stage 3, Rajbhandari
et al. 2020): each weight is split along its first dimension; a block's weights are gathered before it computes and
dropped afterwards.

A checkpoint is the same as that of one process. Each process writes its parts as safetensors through
torch.distributed.checkpoint into the staging folder; there the first process joins them, file to file, and writes the
manifest. So any number of processes can read it, sharded or not, and no pickle is written, which torch's own format of
sharded state contains.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.base.errors import CheckpointError, DivergedError, GlassformerError
from glassformer.data.dataset import Tokenizers
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Moments, Snapshot, flattened, refuse_foreign, texts_of
from glassformer.store.files import explained, staged_folder, sync_file, write_new
from glassformer.store.folders import MODEL, OPTIMIZER, write_manifest
from glassformer.store.weights import unique_weights, write_tensors
from glassformer.train.ranks.distributed import Ranks

# Helpers for the tensors of a sharded model: whether one is sharded, this process's part, the whole.


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor. Recognised by a method, because importing that class takes a second."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor."""
    return cast(Any, tensor).to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor; all processes must call this together."""
    return cast(Any, tensor).full_tensor() if is_sharded(tensor) else tensor


def put_back(model: nn.Module) -> None:
    """Drop the gathered weights after a forward pass without a backward, as in an evaluation."""
    from torch.distributed.fsdp import FSDPModule  # here: only sharded runs need it

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


# Shard one model over several processes: weights, gradients and optimizer state in parts, checkpoints whole.

JOINED = "model-00001-of-00001.safetensors"
"""torch's name for the file into which it joins all parts."""


def cut(model: Transformer, ranks: Ranks, precision: str) -> Transformer:
    """Shard each weight of the model over the processes, in place; make its optimizer afterwards.

    With bfloat16 on CUDA the blocks' weights are sent as bfloat16, and gradients are summed in float32; embedding, head
    and last norm stay float32, and so does the residual stream.
    """
    from torch.distributed.device_mesh import init_device_mesh  # here: only sharded runs need it
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (ranks.count,))
    # CPUs have no norm of float32 inputs with narrow weights; autocast widens the weights on CUDA only.
    narrow = torch.bfloat16 if precision == "bfloat16" and device == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=narrow and torch.float32, cast_forward_inputs=False)
    for stack in (model.encoder, model.decoder):
        for block in () if stack is None else stack.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    for name in ("hidden", "encode"):  # called in place of forward; the head follows and finds the root gathered
        register_fsdp_forward_method(model, name)
    for module in model.modules():
        if isinstance(module, FSDPModule):  # sums: a piece's loss is already a share of the whole batch's
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return model


def parts_of(moments: Moments, model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Split an optimizer state, read whole, as the model's weights are; unchanged where they are not sharded."""
    weights = dict(model.named_parameters())
    return {
        name: {slot: part_of(tensor, weights.get(name)) for slot, tensor in slots.items()}
        for name, slots in moments.items()
    }


def part_of(tensor: Tensor, weight: Tensor | None) -> Tensor:
    """This process's part of a tensor that every process has read, if `weight` is sharded and has its shape."""
    if weight is None or not is_sharded(weight) or tensor.shape != weight.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    like = cast(DTensor, weight)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def take_parts(
    model: Transformer,
    tokenizers: Tokenizers,
    ranks: Ranks,
    *,
    optimizer: Moments,
    state: Mapping[str, object],
) -> Snapshot:
    """Like `store.checkpoint.take_snapshot`, but of this process's parts of a sharded model. All call it together.

    Errors: `DivergedError` for NaN or infinity, in all processes.
    """
    tensors = {MODEL: unique_weights(model), OPTIMIZER: flattened(optimizer, model)}
    for what, named in tensors.items():
        refuse_non_finite(what, named, ranks)
    return Snapshot(tensors, texts_of(model, tokenizers, state))


def write_parts(folder: Path, snapshot: Snapshot, ranks: Ranks) -> None:
    """Like `store.checkpoint.write_snapshot`, but of each process's parts. All call it together.

    Errors, in all or in none: `ResourceError` for a full disk, `CheckpointError` for a folder that cannot be written.
    """
    needed = 2 * snapshot.needed  # the parts and, beside them, the whole
    with agreed(ranks), explained(folder, needed), ExitStack() as stack:
        staging = ""
        with agreed(ranks):
            if ranks.first:
                refuse_foreign(folder)
                staging = str(stack.enter_context(staged_folder(folder, needed)))
        place = Path(ranks.text_of_first(staging))
        for name, named in snapshot.tensors.items():
            with agreed(ranks):
                write_together(place / name, named, ranks)
        if ranks.first:
            for name, text in snapshot.texts.items():
                write_new(place / name, text)
            write_manifest(place)


@contextmanager
def agreed(ranks: Ranks) -> Generator[None]:
    """If the `with` fails in one process, let it fail in all, so that none waits for the others in vain.

    Errors: a process's own; `CheckpointError` in a process that had none.
    """
    failed: OSError | GlassformerError | None = None
    try:
        yield
    except (OSError, GlassformerError) as error:
        failed = error
    if ranks.any(failed is not None):
        raise failed or CheckpointError(
            "Another process could not write its part of the checkpoint; its own message says why."
        )


def write_together(path: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Write tensors of which each process has a part to the safetensors file `path`, and wait for the disk.

    Errors: `OSError` of the system, whichever process it met.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    if not tensors:  # as for an optimizer before its first update; torch cannot join nothing
        if ranks.first:
            write_tensors(path, tensors)
        return
    parts, one_file = path.with_suffix(".parts"), dict.fromkeys(sorted(tensors), 1)
    # Given the names, torch lays the tensors out in this order; otherwise it differs between a run and its resume.
    writer = HuggingFaceStorageWriter(str(parts), one_file, save_distributed=True, enable_consolidation=True)
    try:
        save(dict(tensors), storage_writer=writer, process_group=ranks.group)
    except CheckpointException as error:  # a BaseException, which holds each process's own
        met = [each for each, _ in error.failures.values()]
        raise next((each for each in met if isinstance(each, OSError)), met[0]) from error
    if ranks.first:
        # torch's joining (2.13) leaves zeros in place of tensors without dimensions, such as the steps of AdamW; with
        # 0 there a resumed run goes wrong silently
        with (parts / JOINED).open("r+b") as file:
            size = int.from_bytes(file.read(8), "little")
            places = json.loads(file.read(size))
            for name, each in tensors.items():
                if each.ndim == 0:
                    file.seek(8 + size + places[name]["data_offsets"][0])
                    file.write(local(each).cpu().numpy().tobytes())
        (parts / JOINED).rename(path)
        shutil.rmtree(parts)
        sync_file(path)


def refuse_non_finite(file: str, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Refuse NaN and infinity in any process's part. Errors: `DivergedError` in all processes."""
    if ranks.any(not all(bool(torch.isfinite(local(each)).all()) for each in tensors.values())):
        raise DivergedError(
            f"Saved values must be finite, but some for {file} are not. Nothing was written. Resume from the last "
            "checkpoint with a lower learning rate."
        )
