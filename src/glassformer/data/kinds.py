"""The kinds of task as the settings of their data see them: which settings each reads, its layouts and its files."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.nn.recipe import ACTING, Layout

# What the settings of running text can be, by name.

TEXT = "text"
"""The task that reads running text."""
TEXTS = {"train": "text", "dev": "dev_text", "test": "test_text"}
"""The setting that names the text of each split."""
OBJECTIVES = {
    "next_token": "decoder",
    "prefix": "decoder",
    "masked": "masked",
    "spans": "encoder-decoder",
    "noise": "encoder-decoder",
}
"""What can be learned from running text, and the layout that it needs."""
TEXT_LAYOUTS = ("decoder", "masked")
"""The layouts that only running text has."""
ORDERS = ("random", "sequential")
MOST_WINDOW = 2**20
"""Tokens: no model here reads more at once."""
CORRUPTIONS = {
    "mask_share": ("masked", "spans", "noise"),
    "mean_span": ("spans", "noise"),
    "whole_words": ("masked",),
    "permute_sentences": ("noise",),
}
"""Settings that not every objective reads, and those that do."""
TEXT_SETTINGS = (
    *TEXTS.values(),
    "field",
    "stride",
    "order",
    "documents",
    "document_mask",
    "objective",
    *CORRUPTIONS,
)


# What the settings of trajectories can be, by name.

TRAJECTORIES = "trajectories"
"""The task that learns to act from episodes."""
ACTIONS = "actions"
"""Its layout: returns-to-go, observations and actions in turn, of which the actions are predicted."""
TRAJECTORY_SETTINGS = ("environment", "discount")
"""The settings that only trajectories have."""
ROOMS = "rooms"
"""The environment that is built in, and that makes its own episodes."""
PLACES = 3
"""Places that a step takes in a sequence: return-to-go, observation, action."""
MOST_STEPS = 2**18
"""Most steps that a model reads at once."""
MOST_EPISODES = 100_000
"""Most episodes that an environment makes for one split: about a minute of work, and 1 GB."""

# The kinds of task, by name, and their layouts.

PAIRS = "pairs"
LABELLED = "labelled"
EQUAL_LENGTHS = ("copy", "reverse", "sort")
"""The tasks whose answers have as many tokens as their sources."""
LABEL = "label"
TAGS = "tags"
"""The task that tags words, and its layout."""
REGRESSION = "regression"
"""The task that predicts numbers, of texts or of rows of features."""
NUMBERS = ("feature-numbers", "text-numbers")
LAYOUTS = {
    "encoder-decoder": Layout(encoder=True, decoder=True),
    "encoder": Layout(encoder=True, blanks=True),
    LABEL: Layout(encoder=True, head="classify"),
    TAGS: Layout(encoder=True, head="tag"),
    NUMBERS[0]: Layout(encoder=True, head="regress", tokens=False),
    NUMBERS[1]: Layout(encoder=True, head="regress"),
    "decoder": Layout(decoder=True),
    "masked": Layout(encoder=True, blanks=True),
    ACTIONS: Layout(decoder=True, head=ACTING, tokens=False),
}
PAIRED = next(iter(LAYOUTS))
SIZES = ("train_size", "dev_size", "test_size")
OF_FILES = ("json", "skip_empty")


@dataclass(frozen=True)
class Kind:
    """What the settings of `[data]` are for a kind of task. How it is learned and used is its `Task`."""

    reads: tuple[str, ...]
    """The settings that it reads, of those that not every task does."""
    layouts: tuple[str, ...] = ()
    """Its own layouts: they do not work with another task, nor it with others. Empty: those that no task has alone."""
    files: int = 0
    """The most files of a split; 0: it reads none that `data.train` names."""
    line: str = ""
    """What a line of its files is, where nothing is learned without them; empty: it makes its own data, or has others.
    """
    stored: str = ""
    """The class of what a run keeps in a tokenizer's place, as "module:Class", where its data are no text; the kind
    that its file names is that of the task."""


MADE = Kind(SIZES)
"""A task that makes its own pairs."""
KINDS: dict[str, Kind] = {
    **dict.fromkeys(EQUAL_LENGTHS, Kind(("symbols", "min_length", "max_length", *SIZES))),
    PAIRS: Kind(
        ("bleu_tokenizer", "bleu_order", "source_field", "target_field", "header", *OF_FILES),
        files=2,
        line="source, TAB, target",
    ),
    LABELLED: Kind(("text_column", "label_column", "header", *OF_FILES), (LABEL,), files=1, line="text, TAB, label"),
    TAGS: Kind(("text_column", "label_column", "header", *OF_FILES, *SIZES), (TAGS,), files=1),
    REGRESSION: Kind(
        ("text_column", "label_column", "header", *OF_FILES, *SIZES),
        NUMBERS,
        files=1,
        stored="glassformer.data.regression:Scale",
    ),
    TEXT: Kind((*TEXT_SETTINGS, "window", "dev_share", *OF_FILES)),
    TRAJECTORIES: Kind(
        (*TRAJECTORY_SETTINGS, "window", "dev_share", *SIZES),
        (ACTIONS,),
        files=1,
        stored="glassformer.data.trajectories.episodes:Spaces",
    ),
}
"""The kinds by `data.task`; every other task of `data/synthetic.py` is `MADE`."""

GROUPS = {
    ("symbols", "min_length", "max_length"): f"the tasks {', '.join(EQUAL_LENGTHS)}",
    SIZES: "the tasks that make their own pairs",
    ("header",): "the tasks that read pairs, labels, tags or numbers from files",
    OF_FILES: "the tasks that read texts, pairs, labels, tags or numbers from files",
}
"""A phrase for the tasks that read these settings, where it says more than their names."""


def readers(setting: str) -> str:
    """A phrase for the tasks that read a setting."""
    found = next((phrase for names, phrase in GROUPS.items() if setting in names), None)
    return found or " and ".join(f"data.task={name!r}" for name, kind in KINDS.items() if setting in kind.reads)


def unused(kind: Kind) -> list[str]:
    """The settings that a kind of task does not read."""
    every = dict.fromkeys(name for each in (*KINDS.values(), MADE) for name in each.reads)
    return [name for name in every if name not in kind.reads]
