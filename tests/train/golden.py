"""The first losses of the named recipes, to the bit: what `golden.txt` pins.

A changed loss is a changed model: or other first weights, other data, another order, optimizer or schedule. Where that
is meant, write the file anew and say in the changelog what changed:

    OMP_NUM_THREADS=1 PYTHONPATH=src python tests/train/golden.py > tests/train/golden.txt

Its first line says with which torch, on which kind of processor, with how many threads, and whether with our C++, which
does the work of Muon and of attention. There losses are compared bit for bit; elsewhere, where sums are added up in
another order, to `TOLERANCE`.
"""

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import islice
from math import isclose
from pathlib import Path

import torch
import torch.nn.functional as F

from glassformer.data.kinds import LABELLED, PAIRS
from glassformer.fast import for_training
from glassformer.fast.native import has_cpp
from glassformer.fast.training import SWITCH
from glassformer.train.recipe import known_recipes, load_recipe, override
from glassformer.train.records import Progress
from glassformer.train.run.session import start

STEPS = 20
FEW = {
    "training.steps": STEPS,
    "training.warmup": 4,
    "training.batch_tokens": 256,
    "training.precision": "float32",  # which means: the weights' own
    "training.device": "cpu",
    "training.threads": 1,
    "training.evaluate_every": 0,
}
SIZES = {"data.train_size": 200, "data.dev_size": 2}
TOLERANCE = 1e-4
LETTERS = "abcdefgh"


def labelled(draw: random.Random) -> Iterator[str]:
    """Texts whose label is their most frequent letter."""
    for _ in range(120):
        text = draw.choices(LETTERS[:4], k=draw.randint(3, 9))
        yield f"{' '.join(text)}\t{max(sorted({*text}), key=text.count)}\n"


def pairs(draw: random.Random) -> Iterator[str]:
    """Words, and their letters in order."""
    for _ in range(120):
        word = "".join(draw.choices(LETTERS, k=draw.randint(2, 8)))
        yield f"{word}\t{''.join(sorted(word))}\n"


def text(draw: random.Random) -> Iterator[str]:
    """Words that follow each other at random, in lines."""
    words = ["".join(draw.choices(LETTERS, k=draw.randint(1, 7))) for _ in range(200)]
    for _ in range(600):
        yield " ".join(draw.choices(words, k=12)) + "\n"


WRITTEN = ("denoise", "lm", "mlm")
"""Recipes that read running text, which is written here."""
FED: dict[str, Callable[[random.Random], Iterator[str]]] = {"classify": labelled, "seq2seq": pairs}
"""Recipes that read files, and what is written into them here."""


def recipes() -> list[str]:
    """The named recipes that make their own data or are given some here."""
    return [
        name
        for name in known_recipes()
        if name in (*FED, *WRITTEN) or load_recipe(name).data.task not in (PAIRS, LABELLED)
    ]


def losses(name: str, steps: int = STEPS) -> list[float]:
    """The loss of each of the first steps, as the recipe has them but for `FEW`, in float64."""
    with tempfile.TemporaryDirectory() as folder:
        session = start(
            override(load_recipe(name), FEW | data_of(name, Path(folder))), Path(folder, "run"), speed=for_training
        )
        session.model.double()  # the same weights, in numbers that all processors add up nearly alike
        with closing(session.train()) as events:
            return [*islice((event.loss for event in events if isinstance(event, Progress)), steps)]


def data_of(name: str, folder: Path) -> dict[str, object]:
    """Settings of little data; of a recipe that reads files, with the files."""
    if name in WRITTEN:
        (folder / "text.txt").write_text("".join(text(random.Random(0))), "utf-8")
        return {"data.text": str(folder / "text.txt")}
    if name not in FED:
        return SIZES
    lines = [*FED[name](random.Random(0))]
    files = {split: folder / f"{split}.tsv" for split in ("train", "dev")}
    files["train"].write_text("".join(lines[20:]), "utf-8")
    files["dev"].write_text("".join(lines[:20]), "utf-8")
    return {f"data.{split}": str(path) for split, path in files.items()}


def conditions() -> str:
    """What the bits of a loss hang on beside our own code, as the first line of the file has it."""
    processor = torch.backends.cpu.get_cpu_capability()
    ours = "with" if has_cpp() and os.environ.get(SWITCH) != "0" else "without"
    return (
        f"torch {torch.__version__}, {processor}, threads {torch.get_num_threads()}, {ours} our C++, "
        f"arithmetic {arithmetic()}"
    )


def arithmetic() -> str:
    """A digest of what this build computes here of the same numbers: libraries look at more than the capability."""
    drawn = torch.randn(96, 80, generator=torch.Generator().manual_seed(0))
    x = drawn.double()
    found = [drawn, x @ x.T, x.exp(), x.log_softmax(-1), x.sum(0), F.layer_norm(x, (80,)), x.square().mean().sqrt()]
    return sha256(b"".join(each.numpy().tobytes() for each in found)).hexdigest()[:16]


def differing(found: Sequence[float], golden: Sequence[float], exact: bool) -> list[int]:
    """The steps, from 1, whose loss is not the golden one: to the bit, or to the tolerance."""
    if len(found) != len(golden):
        return [min(len(found), len(golden)) + 1]
    same = (lambda a, b: a == b) if exact else (lambda a, b: isclose(a, b, rel_tol=TOLERANCE))
    return [step for step, (a, b) in enumerate(zip(found, golden, strict=True), 1) if not same(a, b)]


if __name__ == "__main__":
    print(conditions())
    for each in recipes():
        print(each, *(loss.hex() for loss in losses(each)))
