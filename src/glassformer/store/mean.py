"""Checkpoint averaging: load the mean of the weights of a run's last checkpoints as one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from glassformer.base.errors import CheckpointError
from glassformer.store.checkpoint import READ, Loaded, load
from glassformer.store.folders import CONFIG, SOURCE_TOKENIZER, TOKENIZER, Skipped, check, checkpoints

ALIKE = (CONFIG, TOKENIZER, SOURCE_TOKENIZER)
"""The files that must be identical in checkpoints that are averaged."""


def load_mean(run: Path, count: int, *, device: str | torch.device = "cpu") -> Loaded:
    """Load the newest complete checkpoint with the mean weights of the newest `count` (Vaswani et al. 2017, 6.1).

    The sum is in float64, whatever the dtype of the weights; tied weights stay tied. Damaged checkpoints are skipped
    and listed in `skipped`. Errors: `CheckpointError` if fewer are complete or if they differ in model or vocabulary;
    those of `load`.
    """
    folders, skipped = last_complete(run, count)
    refuse_unlike(folders)
    first = load(folders[0], device=device, verify=False)
    sums: dict[str, Tensor] = {name: each.detach().double() for name, each in first.model.named_parameters()}
    for folder in folders[1:]:
        for name, each in load(folder, device=device, verify=False).model.named_parameters():
            sums[name] += each.detach()
    with torch.no_grad():
        for name, each in first.model.named_parameters():
            each.copy_(sums[name] / len(folders))
    return replace(first, skipped=skipped)


def last_complete(run: Path, count: int) -> tuple[list[Path], tuple[Skipped, ...]]:
    """Return the newest `count` complete checkpoints, newest first, and the skipped ones. Errors: `CheckpointError`."""
    found: list[Path] = []
    skipped: list[Skipped] = []
    for folder in reversed(checkpoints(run).values()):
        if len(found) == count:
            break
        try:
            check(folder, read=READ)
            found.append(folder)
        except CheckpointError as error:
            skipped.append(Skipped(folder, str(error)))
    if len(found) < count:
        raise CheckpointError(
            f"Averaging {count} checkpoints needs {count} complete ones; {run} has {len(found)}. "
            f"{' '.join(each.reason for each in skipped[:2])}{' ' if skipped else ''}Train with --checkpoint.keep "
            f"{count} to keep that many, or average fewer."
        )
    return found, tuple(skipped)


def refuse_unlike(folders: list[Path]) -> None:
    """Raise `CheckpointError`, naming both and the file, if checkpoints differ in model or vocabulary."""
    newest = check(folders[0], read=READ, hashed=False)
    for folder in folders[1:]:
        other = check(folder, read=READ, hashed=False)
        for name in ALIKE:
            if newest.get(name) != other.get(name):
                raise CheckpointError(
                    f"Averaged checkpoints must have the same model and vocabulary, but {folders[0].name} and "
                    f"{folder.name} differ in {name}. Average only those after the change."
                )
