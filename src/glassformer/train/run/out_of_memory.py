"""When training runs out of memory: report the estimate, the remedies and their effect, and what is left."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import GlassformerError, ResourceError, is_out_of_memory
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.store.folders import newest
from glassformer.train.estimate.memory import estimate, heap_notes, kept_beside
from glassformer.train.objective import Objective
from glassformer.train.ranks.sharded import is_sharded
from glassformer.train.recipe import Recipe
from glassformer.train.record.records import bytes_text
from glassformer.train.run.build import objective_of
from glassformer.train.run.saving import Saver
from glassformer.train.sources.run_data import RunData

ANY = "--training.recompute 1; any other setting must be allowed by name, as with --allow-change training.accumulate"
"""The advice if no setting in particular helps."""


def memory_ran_out(
    error: Exception,
    run: Path,
    step: int,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    prepared: RunData,
) -> Exception:
    """The exception to raise for an error after `step` steps: the error itself, unless memory ran out.

    First frees what the failed step held, so that there is room for the forward pass of the estimate.
    """
    if isinstance(error, GlassformerError) or not is_out_of_memory(error):
        return error
    what = in_a_line(error)
    traceback.clear_frames(error.__traceback__)
    optimizer.zero_grad(set_to_none=True)
    batch = next(prepared.batches(step))[1]
    helps = "Any of these helps: more processes, half of training.batch_tokens, training.recompute=1."
    if not is_sharded(next(model.parameters())):  # no process can run a forward pass of a sharded model alone
        helps = remedies(model, batch, objective_of(model, prepared.recipe), optimizer, prepared.recipe)
    return ResourceError(
        f"Memory ran out in step {step + 1}, in a batch of {batch.n_tokens:,} tokens ({what}). {helps} {left(run)}"
    )


@contextmanager
def enough_beside(what: str, helps: str, saver: Saver, step: int) -> Generator[None]:
    """Wrap what is done between two steps. `helps`: arguments of `resume` with which it needs less memory.

    Errors: `ResourceError` if memory runs out; it waits for the current save and says what is left.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error) or isinstance(error, GlassformerError):
            raise
        saver.close()
        told = f"Memory ran out after step {step}, in {what} ({in_a_line(error)}). {left(saver.run, helps)}"
        raise ResourceError(told) from None


def half_batch(recipe: Recipe) -> str:
    """The arguments with which an evaluation needs about half the memory."""
    return f"--decode.batch-size {max(1, recipe.decode.batch_size // 2)} --allow-change decode.batch_size"


def in_a_line(error: Exception) -> str:
    """The first line of an out-of-memory error."""
    return (str(error) or "no more available").splitlines()[0][:200]


def remedies(
    model: Transformer,
    batch: Batch,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
) -> str:
    """What a step on this batch needs by the estimate, with the current settings and with others."""
    training, beside = recipe.training, kept_beside(recipe)

    def needs(**changes: int | str) -> str:
        settings = replace(training, **changes)
        asked: Mapping[str, Any] = {name: getattr(settings, name) for name in ("precision", "accumulate", "recompute")}
        try:
            return f"about {bytes_text(estimate(model, batch, objective, optimizer, **asked, **beside).peak)}"
        except (MemoryError, RuntimeError):  # a forward pass needs memory too, and each library has its own error
            return "an unknown amount (memory ran out in the estimate too)"

    twice = 2 * training.accumulate
    ways = [
        f"training.batch_tokens={max(1, training.batch_tokens // 2)}",
        f"training.accumulate={twice} ({needs(accumulate=twice)}; without dropout the same gradients)",
    ]
    if not training.recompute:
        ways.append(f"training.recompute=1 ({needs(recompute=1)}; the same bits, for one more forward)")
    if training.precision == "float32":
        ways.append(f"training.precision=bfloat16 ({needs(precision='bfloat16')})")
    ways.append("a smaller model.d_model or model.n_layers")
    device = next(model.parameters()).device
    return f"By the estimate, the step needs {needs()}. Any of these helps: {', '.join(ways)}. " + " ".join(
        heap_notes(device)
    )


def left(run: Path, helps: str = ANY) -> str:
    """Say which checkpoint is left, and what to type next."""
    kept = newest(run).folder
    if kept is None:
        words = "the setting" if helps == ANY else helps.partition(" --allow-change")[0]
        return f"Nothing is lost: there is no checkpoint yet. Train again with {words}, and --overwrite."
    return (
        f"Nothing is lost: the last checkpoint, {kept}, is intact. Continue from it with the setting changed, as in "
        f"glassformer resume {shlex.quote(str(run))} {helps}."
    )
