"""One model over several processes: weights, gradients and optimizer cut into parts, and saved whole.

FSDP2 (Zhao et al. 2023, "PyTorch FSDP"; `torch.distributed.fsdp.fully_shard`; the idea is ZeRO's stage 3, Rajbhandari
et al. 2020): each weight is cut along its first dimension; a block's are gathered before it computes and dropped after.

A checkpoint is the same as of one process. Each process writes its parts through torch.distributed.checkpoint, as
safetensors, into the staged folder; the first joins them there, file to file, and writes the manifest. So any number
of processes reads it, sharded or not, and no pickle is written: torch's own format of sharded state has one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from glassformer.data.dataset import Tokenizers
from glassformer.foundation.errors import CheckpointError, DivergedError, GlassformerError
from glassformer.model.transformer import Transformer
from glassformer.store.files import explained, sync_file, write_new
from glassformer.store.folders import MODEL, OPTIMIZER
from glassformer.store.manifest import write_manifest
from glassformer.store.snapshot import Moments, Snapshot, flattened, refuse_foreign, texts_of
from glassformer.store.staging import staged_folder
from glassformer.store.tensors import write_tensors
from glassformer.store.weights import unique_weights
from glassformer.train.ranks.cut_model import is_sharded, local
from glassformer.train.ranks.distributed import Ranks

JOINED = "model-00001-of-00001.safetensors"
"""What torch calls the file into which it joins all parts."""


def cut(model: Transformer, ranks: Ranks, precision: str) -> Transformer:
    """The same model, each weight of which is from now on cut over the processes; make its optimizer afterwards.

    Under bfloat16 on CUDA the blocks' weights travel as bfloat16, and gradients are added up in float32; embedding,
    head and last norm stay float32, and so does the residual stream.
    """
    from torch.distributed.device_mesh import init_device_mesh  # here, as a run that is not cut needs none of it
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (ranks.count,))
    # Processors have no norm of float32 by narrow weights, which autocast widens on CUDA alone.
    narrow = torch.bfloat16 if precision == "bfloat16" and device == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=narrow and torch.float32, cast_forward_inputs=False)
    for stack in (model.encoder, model.decoder):
        for block in () if stack is None else stack.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    for name in ("hidden", "encode"):  # what is called in place of forward; the head follows, and finds the root whole
        register_fsdp_forward_method(model, name)
    for module in model.modules():
        if isinstance(module, FSDPModule):  # sums: each piece's loss is a share of the whole batch's already
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return model


def parts_of(moments: Moments, model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The state of an optimizer, read whole, cut as the model's weights are; as it is where they are not."""
    weights = dict(model.named_parameters())
    return {
        name: {slot: part_of(tensor, weights.get(name)) for slot, tensor in slots.items()}
        for name, slots in moments.items()
    }


def part_of(tensor: Tensor, weight: Tensor | None) -> Tensor:
    """This process's part of a tensor that every process has read, if `weight` is cut and of its shape."""
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
    """As `store.snapshot.take_snapshot`, of a model that is cut: what this process has. All call it together.

    Errors: `DivergedError` for NaN or infinity, in all processes.
    """
    tensors = {MODEL: unique_weights(model), OPTIMIZER: flattened(optimizer, model)}
    for what, named in tensors.items():
        refuse_non_finite(what, named, ranks)
    return Snapshot(tensors, texts_of(model, tokenizers, state))


def write_parts(folder: Path, snapshot: Snapshot, ranks: Ranks) -> None:
    """As `store.snapshot.write_snapshot`, of what each process has: all call it together.

    Errors, in all or in none: `ResourceError` for a full disk, `CheckpointError` for a folder that cannot be written.
    """
    needed = 2 * snapshot.needed  # the parts, and beside them the whole
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
    """What one process fails to do, all fail to do, and none waits for the others in vain.

    Errors: a process's own; `CheckpointError` in one that had none.
    """
    failed: OSError | GlassformerError | None = None
    try:
        yield
    except (OSError, GlassformerError) as error:
        failed = error
    if ranks.any(failed is not None):
        raise failed or CheckpointError("Another process could not write its part of the checkpoint, and says why.")


def write_together(path: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Make the safetensors file `path` of tensors of which each process has a part, and wait until the disk has it.

    Errors: `OSError` of the system, whichever process it met.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    if not tensors:  # as of an optimizer before its first update; torch cannot join nothing
        if ranks.first:
            write_tensors(path, tensors)
        return
    parts, one_file = path.with_suffix(".parts"), dict.fromkeys(sorted(tensors), 1)
    # Told the names, torch lays them out in this order; else in one that differs between a run and its resume.
    writer = HuggingFaceStorageWriter(str(parts), one_file, save_distributed=True, enable_consolidation=True)
    try:
        save(dict(tensors), storage_writer=writer, process_group=ranks.group)
    except CheckpointException as error:  # which is no Exception, and holds each process's own
        met = [each for each, _ in error.failures.values()]
        raise next((each for each in met if isinstance(each, OSError)), met[0]) from error
    if ranks.first:
        write_scalars(parts / JOINED, {name: each for name, each in tensors.items() if each.ndim == 0})
        (parts / JOINED).rename(path)
        shutil.rmtree(parts)
        sync_file(path)


def write_scalars(path: Path, scalars: Mapping[str, Tensor]) -> None:
    """Put numbers without a dimension in their places in a safetensors file, where torch's joining leaves zeros.

    (torch 2.13; the steps of AdamW are such numbers, and with 0 in place of them a resumed run goes wrong in silence.)
    """
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        places = json.loads(file.read(size))
        for name, scalar in scalars.items():
            file.seek(8 + size + places[name]["data_offsets"][0])
            file.write(local(scalar).cpu().numpy().tobytes())


def refuse_non_finite(file: str, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Refuse NaN and infinity, wherever they are. Errors: `DivergedError` in all processes."""
    if ranks.any(not all(bool(torch.isfinite(local(each)).all()) for each in tensors.values())):
        raise DivergedError(
            f"What is saved must be finite, but {file} would hold numbers that are not. Nothing was written. Resume "
            "from the last checkpoint with a lower learning rate."
        )
