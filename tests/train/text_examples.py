"""Small runs on running text for the tests: a text of random words, and recipes that read it."""

import json
import random
from dataclasses import replace
from pathlib import Path

from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.kinds import OBJECTIVES
from glassformer.train.recipe import Recipe, override
from train.examples import recipe

WINDOW = 8


def words(n: int, seed: int = 0) -> str:
    """Random words of a few letters, in lines."""
    draw = random.Random(seed)
    return "".join(
        "".join(draw.choices("abcde", k=draw.randint(1, 4))) + ("\n" if i % 7 == 6 else " ") for i in range(n)
    )


def book(folder: Path, n: int = 120, seed: int = 0) -> Path:
    """A text in a file."""
    path = folder / "book.txt"
    path.write_text(words(n, seed), "utf-8")
    return path


def shelf(folder: Path, n: int = 12) -> Path:
    """Several documents in a .jsonl file."""
    path = folder / "shelf.jsonl"
    path.write_text("".join(json.dumps({"text": words(9, seed)}) + "\n" for seed in range(n)), "utf-8")
    return path


def text_recipe(path: Path | None, objective: str = "next_token", **changes: object) -> Recipe:
    """The tiny recipe on running text, character by character: `a__b` is a.b."""
    tiny = replace(
        recipe(model__positions="rotary", model__d_model=16, training__batch_tokens=6 * WINDOW),
        data=DataConfig(
            task="text",
            layout=OBJECTIVES[objective],
            objective=objective,
            text=None if path is None else str(path),
            window=WINDOW,
        ),
        tokenizer=TokenizerConfig(kind="character"),
    )
    return override(tiny, {name.replace("__", "."): value for name, value in changes.items()})
