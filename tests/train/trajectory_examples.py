"""Small runs on trajectories for the tests: episodes in a file or of the rooms, and recipes that read them."""

from dataclasses import replace
from pathlib import Path

from data.trajectories.episodes import csv_of, made
from glassformer.data.config import DataConfig
from glassformer.train.recipe import Recipe, override
from train.examples import recipe

WINDOW = 4
LENGTHS = [5, 1, 8, 3, 12, 2, 7, 4, 6, 9]


def log(folder: Path, *, discrete: bool = True, seed: int = 0, lengths: list[int] = LENGTHS) -> Path:
    """Episodes in a file."""
    path = folder / "log.csv"
    path.write_text(csv_of(made(lengths, discrete=discrete, seed=seed)), "utf-8")
    return path


def acting(path: Path | None = None, **changes: object) -> Recipe:
    """The tiny recipe on the episodes of a file, or of the rooms: `a__b` is a.b."""
    tiny = replace(
        recipe(
            model__positions="rotary",
            model__d_model=16,
            training__batch_tokens=6 * 3 * WINDOW,
            training__label_smoothing=0.0,
        ),
        data=DataConfig(
            task="trajectories",
            layout="actions",
            environment="rooms",
            train=None if path is None else str(path),
            window=WINDOW,
            train_size=20,
            dev_size=5,
            test_size=5,
            **({} if path is None else {"dev_share": 0.2}),
        ),
    )
    return override(tiny, {name.replace("__", "."): value for name, value in changes.items()})
