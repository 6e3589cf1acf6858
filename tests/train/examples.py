"""Tiny models, batches and recipes for the tests of training, decoding and learning."""

import random
import shutil
from collections.abc import Iterable
from dataclasses import fields
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from glassformer import Batch, ModelConfig, StackConfig, Transformer, recompute
from glassformer.base.launched import Launched
from glassformer.data.config import DataConfig
from glassformer.data.tokens.vocabulary import SPECIALS
from glassformer.nn.outputs import Classify, Regress, Tag
from glassformer.nn.positions import POSITIONS
from glassformer.nn.recipe import ModelRecipe
from glassformer.store.folders import MANIFEST, checkpoints, step_folder
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.recipe import Recipe, load_recipe, override
from glassformer.train.records import Evaluated, Event
from glassformer.train.report import Reporter
from glassformer.train.run.beginning import model_config, prepare
from glassformer.train.run.session import Session, resume, start
from glassformer.train.settings import CheckpointConfig, DecodeConfig, OptimizerConfig, TrainingConfig

VOCAB = 13
STEPS = 12
OUTPUTS = {
    "classify": Classify(3, "attention"),
    "tag": Tag(3),
    "regress": Regress(2),
    "regress in places": Regress(2, "none"),
}
RAGGED = [(3, 5), (1, 1), (6, 2), (2, 8)]
"""Lengths of sources and targets of a batch."""
LAYOUTS = ("encoder-decoder", "encoder", "decoder", *OUTPUTS)
"""Of the last an encoder with this head."""
SCHEMES = sorted(POSITIONS)

SMALL = {
    "data.train_size": 300, "data.dev_size": 40, "data.test_size": 40, "model.d_model": 16, "model.n_heads": 2,
    "model.n_layers": 1, "model.d_ff": 32, "training.steps": 6, "training.warmup": 2, "training.evaluate_every": 3,
    "training.batch_tokens": 200, "training.threads": 1, "training.device": "cpu", "training.precision": "float32",
    "checkpoint.every": 3, "checkpoint.keep": 9,
}  # fmt: skip
"""With these a recipe whose samples are made trains in a second, with two evaluations and two checkpoints."""

OF_FILES = SMALL | {f"data.{split}_size": getattr(DataConfig, f"{split}_size") for split in ("train", "dev", "test")}
"""The same where samples are read."""


def model(
    layout: str = "encoder-decoder", *, seed: int = 0, vocab: int = VOCAB, tie: bool = False, **settings: object
) -> Transformer:
    """One block a stack in float64, with weights so large that the answer hangs on all that is read."""
    torch.manual_seed(seed)
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12, "dropout": 0.0, "max_len": 24}
    stack = StackConfig(**sizes | settings)
    sides = {
        "encoder-decoder": {"encoder": stack, "decoder": stack},
        "encoder": {"encoder": stack},
        "decoder": {"decoder": stack},
    }
    sides |= {kind: {"encoder": stack, "head": head} for kind, head in OUTPUTS.items()}
    made = Transformer(ModelConfig(vocab_size=vocab, tie_embeddings=tie, **sides[layout])).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=2 * parameter.shape[1] ** -0.5)
            else:
                parameter.normal_(mean=float("norm" in name and "weight" in name), std=0.2)
    return made


def sequences(lengths: Iterable[int], seed: int = 0, vocab: int = VOCAB) -> list[list[int]]:
    """Random ids of these lengths, none of them special."""
    draw = random.Random(seed)
    return [[draw.randrange(len(SPECIALS), vocab) for _ in range(length)] for length in lengths]


def batch(layout: str, lengths: Iterable[tuple[int, int]], seed: int = 0) -> Batch:
    """Random pairs of these (source, target) lengths in one batch; a decoder reads both in one sequence."""
    lengths = list(lengths)
    sources = sequences((n for n, _ in lengths), seed)
    targets = sequences((n for _, n in lengths), seed + 1)
    match layout:
        case "encoder-decoder":
            return Batch.pairs(sources, targets)
        case "encoder":
            return Batch.blanks(sources, targets)
        case "classify":
            return Batch.labelled(sources, [n % 3 for _, n in lengths])
        case "tag":
            return Batch.tagged(sources, [[id % 3 for id in ids] for ids in sources])
        case "regress":
            return Batch.labelled(sources, [[n / 4, -1.5] for _, n in lengths])
        case "regress in places":
            tags = Batch.tagged(sources, [[id % 3 for id in ids] for ids in sources])
            labels = torch.stack([tags.tokens / 4, -1.5 * tags.labels], -1).double()
            return Batch(tags.tokens, tags.keep, labels=labels)
        case _:
            text = Batch.pairs(sources, [x + y for x, y in zip(sources, targets, strict=True)])
            return Batch(text.tokens, text.keep)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """A copy of each parameter's gradient; zeros where there is none."""
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def weights(module: nn.Module) -> dict[str, Tensor]:
    """A copy of each parameter."""
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-12) -> None:
    """Equal names, and values equal to `tolerance`, absolute and relative."""
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(
            tensor, other[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Equal names, and values equal bit for bit."""
    assert one.keys() == other.keys()
    assert [name for name, tensor in one.items() if not torch.equal(tensor, other[name])] == []


class Agreeing(Ranks):
    """One of two, of which the other always says yes."""

    def __init__(self) -> None:
        super().__init__(Launched(0, 2, 0, 2))

    def _reduced(self, value, operation):
        return 1.0


def recipe(**changes: object) -> Recipe:
    """Twelve steps over two and a half epochs with all that must not depend on where a run was cut: `a__b` is a.b."""
    tiny = Recipe(
        "tiny",
        data=DataConfig(task="reverse", symbols=5, min_length=2, max_length=4, train_size=50, dev_size=6, test_size=6),
        model=ModelRecipe(d_model=8, n_heads=2, n_layers=1, d_ff=12, dropout=0.2),
        training=TrainingConfig(
            steps=STEPS,
            batch_tokens=176,
            accumulate=2,
            learning_rate=1e-2,
            schedule="cosine",
            warmup=3,
            label_smoothing=0.1,
            precision="float32",
            device="cpu",
            threads=1,
            evaluate_every=4,
            metric="loss",
            samples=1,
        ),
        optimizer=OptimizerConfig(weight_decay=0.1),
        checkpoint=CheckpointConfig(every=0, keep=99, background=False),
        decode=DecodeConfig(max_new_tokens=4),
    )
    return override(tiny, {name.replace("__", "."): value for name, value in changes.items()})


def follow(session: Session, stop_after: int | None = None) -> list[Event]:
    """Train as the command line does, files and all; asked to stop after the step `stop_after`. What happened."""
    events: list[Event] = []
    with Reporter(session.run) as report:
        for event in session.train():
            report(event)
            events.append(event)
            if stop_after is not None and session.step == stop_after:
                session.interrupt()
    return events


def final(run: Path) -> dict[str, bytes]:
    """All that a run leaves at its end, but for what tells the time."""
    last = list(checkpoints(run).values())[-1]
    assert last == step_folder(run, load_recipe(run / "recipe.toml").training.steps)
    kept = [path for path in last.iterdir() if path.name != MANIFEST] + [run / "metrics.jsonl", run / "recipe.toml"]
    return {path.name: path.read_bytes() for path in [*kept, *(run / "samples").glob("*")]}


def assert_same_end(run: Path, whole: Path) -> None:
    """Weights, optimizer, state, figures and samples of the two are equal byte for byte."""
    ours, theirs = final(run), final(whole)
    assert ours.keys() == theirs.keys() >= {"model.safetensors", "optimizer.safetensors", "state.json"}
    differing = [name for name in theirs if ours[name] != theirs[name]]
    assert not differing, differing


def assert_resumed_to_the_same_bits(recipe: Recipe, folder: Path) -> None:
    """A run of several evaluations that was cut after step 5, and resumed elsewhere, ends as one that was not."""
    events = follow(start(recipe, folder / "whole"))
    assert sum(isinstance(event, Evaluated) for event in events) > 1
    follow(start(recipe, folder / "run"), stop_after=5)
    torch.manual_seed(5)
    follow(resume(folder / "run"))
    assert_same_end(folder / "run", folder / "whole")


def first(prepared, count: int, start: int = 0) -> list[tuple[int, Batch]]:
    """So many batches from a step on, each with its epoch."""
    return list(islice(prepared.batches(start), count))


def same(one: list[tuple[int, Batch]], other: list[tuple[int, Batch]]) -> bool:
    """Equal epochs, and batches that are equal in every part."""
    parts = [
        (getattr(x, part.name), getattr(y, part.name))
        for (_, x), (_, y) in zip(one, other, strict=True)
        for part in fields(Batch)
    ]
    equal = all(x is y if x is None or y is None else torch.equal(x, y) for x, y in parts)
    return equal and [epoch for epoch, _ in one] == [epoch for epoch, _ in other]


def assert_batches_of_recipe_and_step(requested: Recipe, reseeded: Recipe | None) -> None:
    """Whatever was drawn before, and wherever one begins; each batch is another, and so are those of another seed."""
    expected = first(prepare(requested), 12)
    torch.manual_seed(99)
    np.random.seed(99)
    again = prepare(requested)
    for start_at in (11, 0, 5, 1):
        assert same(first(again, 12 - start_at, start_at), expected[start_at:])
    assert not same(expected[:1], [(expected[0][0], expected[1][1])])
    assert reseeded is None or not same(first(prepare(reseeded), 12), expected)


def texts(folder: Path, **lines: list[str]) -> dict[str, Path]:
    """A file of lines for each name."""
    paths = {name: folder / f"{name}.txt" for name in lines}
    for name, path in paths.items():
        path.write_text("".join(f"{line}\n" for line in lines[name]), "utf-8")
    return paths


def killed_after(whole: Path, step: int, to: Path) -> Path:
    """What a kill would have left: no later checkpoints, but later lines of figures."""
    shutil.copytree(whole, to)
    for each, folder in checkpoints(to).items():
        if each > step:
            shutil.rmtree(folder)
    return to


def kept(network, groups, forward):
    """Bytes that a forward keeps for the backward, parameters aside; each tensor is counted once."""
    own = {each.untyped_storage().data_ptr() for each in network.parameters()}
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage  # alive, so that its address is nobody else's
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), recompute(network, groups):
        forward()
    return sum(each.nbytes() for each in seen.values())


def definite(requested):
    """The data of a recipe, and a model in float64 that says something definite."""
    prepared = prepare(requested)
    torch.manual_seed(3)
    network = Transformer(model_config(prepared.recipe, prepared.tokenizers)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
    return prepared, network.eval()
