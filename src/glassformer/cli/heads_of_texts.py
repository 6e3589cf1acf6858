"""`glassformer heads RUN --attribute TEXT` and `--patch TEXT --into TEXT`: what heads do for one text, or for two."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import ConfigError
from glassformer.cli.heads import aligned
from glassformer.data.tokens.vocabulary import lacking

if TYPE_CHECKING:
    from glassformer.lens.trace.value import Trace

ALONE = ("checkpoints", "prune", "out")
MOST_PARTS = 12


def of_texts(folder: Path, options: Mapping[str, Any]) -> int:
    """Print the attribution of one text, or the patching between two. Errors: `ConfigError` for conflicting options."""
    if others := [name for name in ALONE if name in options]:
        raise ConfigError(f"--attribute and --patch examine texts, --{others[0]} the run. Give only one of them.")
    if ("patch" in options) != ("into" in options):
        raise ConfigError("Patching needs two texts: --patch TEXT --into TEXT. Give both.")
    if "patch" in options and "attribute" in options:
        raise ConfigError("--attribute examines one text, --patch two. Give only one of them.")
    as_json = "json" in options
    if "attribute" in options:
        return attributed(folder, options["attribute"], as_json)
    return brought_back(folder, options["patch"], options["into"], as_json)


def traced(folder: Path, *texts: str) -> tuple[Any, list[Trace]]:
    """Return the model of a run and its traces of the texts, with a note for each that its vocabulary cannot read."""
    from glassformer.base.runtime import choose_threads
    from glassformer.lens.roles.run import open_run
    from glassformer.lens.server.run import layout_of
    from glassformer.lens.trace.make import trace

    opened = open_run(folder)
    choose_threads(opened.recipe.decode.threads)
    model, tokenizers = opened.loaded.model, opened.loaded.tokenizers
    layout = layout_of(opened.recipe, tokenizers)
    for text in texts:
        if parts := tokenizers.source.lacks(text):
            print(f"{text[:40]!r}: {lacking('it', parts)}.", file=sys.stderr)
    return model, [trace(model, tokenizers, text, layout=layout) for text in texts]


def attributed(folder: Path, text: str, as_json: bool) -> int:
    """Print a row for each part, a column for each generated token, and the logit that each column adds up to."""
    _, (made,) = traced(folder, text)
    told = made.header.get("attribution")
    if told is None:
        raise ConfigError(
            "--attribute needs logits that are a sum over the model's parts; its output head pools or maps the vectors."
        )
    names, terms = told["names"], made.buffers[told["buffer"]][1]
    steps = made.header["steps"]
    begun = len(steps) - len(made.output) if made.header["run"]["mode"] == "generate" else 0
    written = [made.header["vocab"][str(step["chosen"])] for step in steps[begun:]]
    terms = terms[:, begun:]
    if as_json:
        rows = {name: [float(each) for each in row] for name, row in zip(names, terms, strict=True)}
        print(json.dumps({"tokens": written, "terms": rows, "logits": [float(each) for each in terms.sum(0)]}))
        return 0
    rows = [("part", *written)]
    rows += [(name, *(f"{each:.2f}" for each in row)) for name, row in zip(names, terms, strict=True)]
    rows.append(("logit", *(f"{each:.2f}" for each in terms.sum(0))))
    print(aligned(rows))
    print("\nEach column adds up to the logit of its token; norms are frozen at what they saw (Elhage et al. 2021).")
    return 0


def brought_back(folder: Path, text: str, other: str, as_json: bool) -> int:
    """Print the heads and the positions of the residual streams that restore the first answer when patched."""
    from glassformer.lens.trace.pair import patch_traces, patching_as_json

    model, (one, two) = traced(folder, text, other)
    told = patching_as_json(patch_traces(model, one, two))
    if as_json:
        print(json.dumps(told))
        return 0
    print(f"Log probability of the answer to the first text: {told['one']:.3f}; behind the other: {told['other']:.3f}.")
    print("A patch brings back this share of the difference (1: all of it).\n")
    print(aligned([("head", "share"), *((each["id"], f"{each['effect']:.3f}") for each in told["heads"][:MOST_PARTS])]))
    for stream in told["streams"]:
        print(f"\n{stream['side']}, the stream at each token, behind so many blocks:")
        print(aligned([("blocks", *tokens_of(one, stream["side"])), *rows_of(stream["effects"])]))
    return 0


def rows_of(effects: Sequence[Sequence[float]]) -> list[tuple[str, ...]]:
    """Return a row of figures for each number of blocks."""
    return [(str(depth), *(f"{each:.2f}" for each in row)) for depth, row in enumerate(effects)]


def tokens_of(made: Trace, side: str) -> list[str]:
    """Return the tokens that a stack reads."""
    sequences = made.header["sequences"]
    if side == "decoder":
        return sequences["target"]["text"][:-1]
    return sequences["source"]["text"]
