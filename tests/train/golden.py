"""The first losses of each recipe that makes its own data, in float64: what `golden.txt` pins.

A changed loss is a changed model: or other first weights, other data, another order, optimizer or schedule. Where that
is meant, write the file anew and say in the changelog what changed:

    PYTHONPATH=src python tests/train/golden.py > tests/train/golden.txt
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from glassformer.data.config import FILES
from glassformer.train.events import Progress
from glassformer.train.recipe import known_recipes, load_recipe, override
from glassformer.train.session import start

FEW = {
    "training.steps": 6,
    "training.warmup": 2,  # so that four steps come after it
    "training.batch_tokens": 512,
    "training.precision": "float32",  # which means: the weights' own
    "training.device": "cpu",
    "training.threads": 1,
    "training.evaluate_every": 0,
    "data.train_size": 200,
    "data.dev_size": 2,
}


def recipes() -> list[str]:
    """The named recipes that make their own data."""
    return [name for name in known_recipes() if load_recipe(name).data.task not in FILES]


def losses(name: str) -> list[float]:
    """The loss of each of a few steps, as the recipe has them but for `FEW`."""
    with tempfile.TemporaryDirectory() as folder:
        session = start(override(load_recipe(name), FEW), Path(folder, "run"))
        session.model.double()  # the same weights, in numbers that all processors add up alike
        return [event.loss for event in session.train() if isinstance(event, Progress)]


if __name__ == "__main__":
    for each in recipes():
        print(each, *(f"{loss:.12g}" for loss in losses(each)))
