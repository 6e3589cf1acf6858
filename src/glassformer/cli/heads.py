"""`glassformer heads RUN`: show what each attention head does, and what the model loses without it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.help import width
from glassformer.cli.runs import check_place, existing_run, in_use, run_folder
from glassformer.data.tokens.vocabulary import lacking
from glassformer.train.records import aligned

if TYPE_CHECKING:
    from glassformer.lens.ablate import Head
    from glassformer.lens.roles import Diagnosis
    from glassformer.lens.roles.diagnosis import Found, Opened
    from glassformer.lens.trace.make import Trace


MOST_PAIRS = 5
UNNEEDED = "unneeded"


def run(arguments: Arguments) -> int:
    """Print a table and sentences; with --checkpoints, roles over training; with --prune, write a run without heads."""
    folder = existing_run(str(arguments.target))
    options = arguments.options
    if "out" in options and "prune" not in options:
        raise ConfigError("--out names the run that --prune writes. Add --prune HEADS, or remove --out.")
    if "prune" in options and "checkpoints" in options:
        raise ConfigError("--prune writes a run, --checkpoints shows roles over training. Give only one of them.")
    if "attribute" in options or "patch" in options or "into" in options:
        return of_texts(folder, options)
    if "checkpoints" in options:
        return over_time(folder, "json" in options)
    out = run_folder(options.get("out"), folder.with_name(f"{folder.name}-pruned"))
    if "prune" in options:
        check_place(out)
        if in_use(out):
            raise ConfigError(f"{out} exists, and --prune overwrites nothing. Choose another with --out.")
    from glassformer.base.runtime import choose_threads
    from glassformer.lens.roles import diagnose
    from glassformer.lens.roles.diagnosis import open_run

    opened = open_run(folder)
    choose_threads(opened.recipe.decode.threads)
    requested = None if "prune" not in options else named(options["prune"], opened)
    probe = opened.probe()
    print(f"Probing {folder} with {probe.text}.", file=sys.stderr)
    diagnosis = diagnose(opened.loaded.model, probe)
    if requested is None:
        show(diagnosis, "json" in options)
        return 0
    return prune(folder, out, opened, diagnosis, requested, "json" in options)


def show(diagnosis: Diagnosis, as_json: bool) -> None:
    """Print the table, the sentences and the heads that attend alike, or all of it as JSON."""
    from glassformer.lens.ablate import head_id

    similar = [(head_id(*each.one), head_id(*each.other), each.divergence) for each in diagnosis.pairs]
    if as_json:
        record = {
            "probe": diagnosis.probe.name,
            "heads": diagnosis.to_json(),
            "sentences": diagnosis.sentences,
            "similar": similar,
        }
        print(json.dumps(record))
        return
    print(table(diagnosis.heads))
    print(f"\n{fill(legend(diagnosis), width())}\n")
    print(*(fill(each, width()) for each in diagnosis.sentences), sep="\n")
    if similar:
        shown = ", ".join(f"{one} and {other} ({apart:.3f})" for one, other, apart in similar[:MOST_PAIRS])
        more = f" and {len(similar) - MOST_PAIRS} more pairs" if len(similar) > MOST_PAIRS else ""
        print(f"Heads that read alike (divergence in bits): {shown}{more}.")


def table(heads: Sequence[Found]) -> str:
    """Return a table with a row for each head."""
    rows = [("head", "role", "score", "chance", "without it", "95 %", "mean", "gradient", "verdict")]
    for each in heads:
        zero, mean = each.zero, each.mean
        assert zero is not None
        assert mean is not None
        low, high = zero.interval
        chance = f"{each.measured.scores[each.label.role].chance:.2f}" if each.label.has_role else ""
        rows.append(
            (
                each.id,
                role(each),
                f"{each.label.score:.2f}",
                chance,
                f"{100 * zero.base:.1f} -> {100 * zero.value:.1f}",
                f"[{100 * low:.1f}, {100 * high:.1f}]",
                f"{100 * mean.value:.1f}",
                f"{each.gradient or 0.0:.2f}",
                each.verdict,
            )
        )
    return aligned(rows)


def role(found: Found) -> str:
    """Return the role of a head, marked if it holds only in part."""
    return f"{found.label.role}{', in part' if found.label.strength == 'partial' else ''}"


def legend(diagnosis: Diagnosis) -> str:
    """Explain the columns of the table."""
    effect = diagnosis.heads[0].zero
    assert effect is not None
    return (
        f"score: attention on the role's keys beyond chance, 1 at most. without it: {effect.metric.replace('_', ' ')} "
        f"in percent of {effect.n} sequences, with all heads and with this one giving nothing; 95 %: its interval; "
        "mean: the head gives its mean instead. gradient: importance by the loss's gradient, 1 at most in an attention."
    )


def over_time(folder: Path, as_json: bool) -> int:
    """Print the roles at each checkpoint: one column per checkpoint, one row per head."""
    from glassformer.lens.roles.diagnosis import over_checkpoints

    seen = list(over_checkpoints(folder))
    if as_json:
        print(json.dumps({"checkpoints": [{"step": step, "heads": found.to_json()} for step, found in seen]}))
        return 0
    rows = [("head", *(f"step {step}" for step, _ in seen))]
    for heads in zip(*(found.heads for _, found in seen), strict=True):
        rows.append((heads[0].id, *(f"{role(each)} {each.label.score:.2f}" for each in heads)))
    print(aligned(rows))
    return 0


def named(text: str, opened: Opened) -> list[Head] | None:
    """Return the heads that --prune names; an empty list stands for `unneeded`. Errors: `ConfigError`."""
    from glassformer.lens.ablate import all_heads, head_id

    if text == UNNEEDED:
        return []
    of = {head_id(*head): head for head in all_heads(opened.loaded.model)}
    wrong = [name for name in text.split(",") if name not in of]
    if wrong:
        raise ConfigError(
            f"--prune takes heads separated by commas, as in x.1.3,d.0.2, or `{UNNEEDED}`; got {wrong[0]!r}. "
            f"This run has {', '.join(of)}."
        )
    return [of[name] for name in dict.fromkeys(text.split(","))]


def prune(folder: Path, out: Path, opened: Opened, diagnosis: Diagnosis, requested: list[Head], as_json: bool) -> int:
    """Write a run without some heads, and print what that costs."""
    from glassformer.lens.ablate import head_id
    from glassformer.lens.prune import effect_on, spare, write_pruned
    from glassformer.lens.roles.diagnosis import effect_as_json, without

    model = opened.loaded.model
    heads, effect = (requested, effect_on(model, diagnosis, requested)) if requested else spare(model, diagnosis)
    ids = [head_id(*head) for head in heads]
    if effect is None:
        print(
            "No head is unneeded: without any one of them, the model may get worse. Nothing was written.",
            file=sys.stderr,
        )
        return 0
    written = write_pruned(folder, opened.loaded, heads, out)
    if as_json:
        print(json.dumps({"removed": ids, "effect": effect_as_json(effect, None), "checkpoint": str(written)}))
        return 0
    print(f"{len(ids)} of {len(diagnosis.heads)} heads removed: {', '.join(ids)}; {without(effect, 'them')}.")
    print(f"Written: {out}. Score it: glassformer evaluate {shlex.quote(str(out))}")
    return 0


# `glassformer heads RUN --attribute TEXT` and `--patch TEXT --into TEXT`: what heads do for one text, or for two.

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
    from glassformer.lens.roles.diagnosis import open_run
    from glassformer.lens.server.subject import layout_of
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
    attribution = made.header.get("attribution")
    if attribution is None:
        raise ConfigError(
            "--attribute needs logits that are a sum over the model's parts; its output head pools or maps the vectors."
        )
    names, terms = attribution["names"], made.buffers[attribution["buffer"]][1]
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
    from glassformer.lens.trace.make import patch_traces, patching_as_json

    model, (one, two) = traced(folder, text, other)
    patched = patching_as_json(patch_traces(model, one, two))
    if as_json:
        print(json.dumps(patched))
        return 0
    print(
        f"Log probability of the answer to the first text: {patched['one']:.3f}; behind the other: "
        f"{patched['other']:.3f}."
    )
    print("A patch brings back this share of the difference (1: all of it).\n")
    print(
        aligned([("head", "share"), *((each["id"], f"{each['effect']:.3f}") for each in patched["heads"][:MOST_PARTS])])
    )
    for stream in patched["streams"]:
        print(f"\n{stream['side']}, the stream at each token, behind so many blocks:")
        figures = [(str(depth), *(f"{each:.2f}" for each in row)) for depth, row in enumerate(stream["effects"])]
        print(aligned([("blocks", *tokens_of(one, stream["side"])), *figures]))
    return 0


def tokens_of(made: Trace, side: str) -> list[str]:
    """Return the tokens that a stack reads."""
    sequences = made.header["sequences"]
    if side == "decoder":
        return sequences["target"]["text"][:-1]
    return sequences["source"]["text"]
