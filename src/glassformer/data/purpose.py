"""What a run is for, by its data, and which command uses it so; the refusal of the others. Imports no torch."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.data.config import ACTIONS, LABEL, LAYOUTS, NO_ANSWERS, TEXT, TRAJECTORIES, DataConfig

BLANKS = "fills all blanks at once"


class Purpose(NamedTuple):
    """What a run does, in words, and the command that lets it."""

    does: str
    verb: str


class Asked(NamedTuple):
    """Something that is asked of a run: the layouts that can do it, on which tasks, and what is said of the others."""

    layouts: tuple[str, ...]
    cannot: str
    of_text: bool = True
    """Whether running text counts, too."""

    def fits(self, data: DataConfig) -> bool:
        """Whether a run on such data can do it."""
        return data.layout in self.layouts and (self.of_text or data.task != TEXT)


ANSWERS = Asked(("encoder-decoder", "encoder"), "answers no lines", of_text=False)
WRITING = Asked(("encoder-decoder", "decoder"), "writes no text from left to right")
LABELS = Asked((LABEL,), "gives no labels")
ACTING = Asked((ACTIONS,), "plays no episodes")
TOKENS = Asked(tuple(each for each in LAYOUTS if each != ACTIONS), "reads no tokens")


def purpose_of(data: DataConfig) -> Purpose:
    """Return what a run on such data is for."""
    if data.task == TEXT:
        return Purpose(NO_ANSWERS[TEXT], "evaluate" if data.layout == "masked" else "generate")
    if data.task in NO_ANSWERS:
        return Purpose(NO_ANSWERS[data.task], "rollout" if data.task == TRAJECTORIES else "classify")
    return Purpose(BLANKS if data.layout == "encoder" else "writes answers", "translate")


def refuse_unfit(run: object, data: DataConfig, asked: Asked) -> None:
    """Refuse to ask of a run what it is not for. Errors: `ConfigError` naming the command that uses it."""
    if not asked.fits(data):
        does, verb = purpose_of(data)
        raise ConfigError(f"{run} {does} and {asked.cannot}. Use glassformer {verb} {run}.")


def held_out(data: DataConfig) -> str:
    """The split that a finished run is scored on: "test", or "dev" if its data have no test split."""
    if data.task == TEXT:
        return "dev" if data.test_text is None else "test"
    train, test = (any(path is not None for path in data.files(split)) for split in ("train", "test"))
    return "dev" if train and not test else "test"


def refuse_unnamed(data: DataConfig, split: str) -> None:
    """Refuse to score a split of running text that is not named. Errors: `ConfigError`."""
    if data.task == TEXT and split == "test" and data.test_text is None:  # a dev text may be cut from the training text
        raise ConfigError(
            "The test split needs a text, and the recipe names none. Give one with --data.text FILE, or score the dev "
            "text with --split dev."
        )
