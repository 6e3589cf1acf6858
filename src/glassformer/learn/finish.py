"""Graduation: the learner's file is proved equal to the library, learns two tasks, and becomes a run."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from glassformer.base.errors import DataError
from glassformer.data.dataset import Tokenizers
from glassformer.learn.carry import CLOSE, SIZES, Learner, Reading, compare, read
from glassformer.learn.experiments import GRADUATION
from glassformer.learn.report import Checked, minutes_told
from glassformer.learn.workspace import Workspace
from glassformer.lens.picture import Picture, cross_attention_picture
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.calling import scramble
from glassformer.proof.check.examine import load
from glassformer.proof.check.file import DOCUMENTED, names_in
from glassformer.proof.check.file import check as check_file
from glassformer.proof.check.property import as_text
from glassformer.store.checkpoint import save
from glassformer.store.files import write_text_atomically
from glassformer.store.folders import step_folder
from glassformer.train.loop import train_steps
from glassformer.train.objective import OBJECTIVES
from glassformer.train.recipe import Recipe, dumps_recipe, load_recipe, override
from glassformer.train.run.beginning import optimizer_of, prepare

TASKS = ("copy", "reverse")
STEPS = 450
EXAMPLE = "a b c d e f g h"
ENOUGH = 0.99
"""Share of held-out answers that must be right as a whole."""
PLACES = {
    "embedding": "2.5 Embedding, 2.7 Positions as a module", "self_attention": "1.6 Several heads, 2.1 The mask",
    "cross_attention": "3.4 Reading another sequence, 5.4 Padding changes nothing", "feed_forward": "1.7 Feed-forward",
    "norm": "1.8 The block, 4.1 Norm first", "head": "5.3 The transformer",
}  # fmt: skip
"""From a part of ours to the exercises that are about it."""
Say = Callable[[str], None]


class Trained(NamedTuple):
    """A task that was learned: recipe, the learner's weights in our model, losses, and the share of whole answers."""

    recipe: Recipe
    model: Transformer
    tokenizers: Tokenizers
    losses: list[float]
    exact: float
    picture: Picture
    """The sharpest head of the cross-attention on one example."""


class Graduate(NamedTuple):
    """What the diploma says beside what was measured: a name, the exercises that are done, and their minutes."""

    name: str = ""
    exercises: Sequence[str] = ()
    minutes: float = 0.0


def graduate(place: Workspace, found: Checked, quick: bool, name: str, say: Say) -> int:
    """Graduate with the course's file: its exercises are done, and its model passes. Returns the exit code."""
    open_ones = [
        each
        for each in place.course.exercises
        if not each.side and not each.experiment and found.verdicts[each.id].state not in ("done", "waits")
    ]
    if open_ones:
        say("Still open: " + ", ".join(each.label for each in open_ones) + ".")
        say("Graduation needs all exercises of the main path:  glassformer learn --watch")
        return 3
    done = [each.label for each in place.course.exercises if each.id in found.verdicts and found.verdicts[each.id].done]
    who = Graduate(name, done, sum(each.minutes for each in place.trails()[0].values()))
    return passed(vars(load(place.path))["Transformer"], place.folder / GRADUATION.parent, who, quick, say)


def graduate_file(path: Path, folder: Path, quick: bool, name: str, say: Say, limit: float) -> int:
    """Graduate with any file that holds an encoder-decoder, under whatever name `check` knows. Returns the exit code.

    Errors: `DataError` for a file without one, or one that cannot be run.
    """
    names = DOCUMENTED["Transformer"].aliases
    if not {*names_in(path)} & {"Transformer", *names}:
        raise DataError(f"{path} has no encoder-decoder: a class called Transformer, or {', '.join(names)}.")
    report = check_file(path, ["Transformer"], limit)
    piece = report.pieces[0]
    if not piece.holds:
        say(as_text(report, 100))
        return 3
    return passed(vars(load(path))[piece.found_as], folder / "runs" / path.stem, Graduate(name), quick, say)


def passed(kind: Any, run: Path, who: Graduate, quick: bool, say: Say) -> int:
    """Read, carry, compare, train, and write the run and the diploma beside its folder. Returns the exit code."""
    reading = proved(kind, say)
    if reading is None:
        return 3
    results: dict[str, Trained] = {}
    for task in TASKS[:1] if quick else TASKS:
        results[task] = learned(kind, reading, task, say)
    failed = [task for task, each in results.items() if each.exact < ENOUGH]
    write_run(run, results[[*results][-1]], say)
    figures = {task: {"exact_match": each.exact, "last_loss": each.losses[-1]} for task, each in results.items()}
    plain = {"passed": not failed and not quick, "reading": reading.sentence(), "tasks": figures}
    write_text_atomically(run / GRADUATION.name, json.dumps(plain, indent=1) + "\n")
    if failed:
        say(f"Not learned well enough: {', '.join(failed)}; {ENOUGH:.0%} of the answers must be right.")
        return 3
    path = run.parents[1] / "diploma.html"
    write_text_atomically(path, diploma(who, reading, results))
    say(f"\nYou have built a transformer. {path} says so." + " (--quick: one task; all of them pass 5.7.)" * quick)
    for command in ("explore", "heads", "evaluate"):
        say(f"  glassformer {command} {run}")
    say(f"  echo '{EXAMPLE}' | glassformer translate {run}")
    return 0


def proved(kind: Any, say: Say) -> Reading | None:
    """Say how the learner's model is built and whether it equals ours; None if it does not."""
    model = scramble(Learner(kind, SIZES))
    try:
        reading = read(model)
        say(reading.sentence())
        gaps = compare(model, reading)
    except DataError as error:
        say(f"Your model cannot be read: {error}")
        return None
    say(f"beside ours, with your weights: logits {gaps.values:.0e} apart, gradients {gaps.gradients:.0e}, ")
    say(f"each row alone and in a batch {gaps.alone:.0e} apart (all must be below {CLOSE:.0e}, in float64)")
    if not reading.config.scale_embeddings:
        say("FAILS: embeddings are not scaled (2.5 Embedding).")
        return None
    if gaps.equal:
        return reading
    part = next((each for each in PLACES if each in gaps.where), "head")
    if gaps.values >= CLOSE:
        say(f"FAILS: the first part that receives something else than ours is {gaps.where}. See {PLACES[part]}.")
    else:
        say("FAILS: the values agree, but the gradients or single rows do not. See 5.4 Padding changes nothing.")
    return None


def learned(kind: Any, reading: Reading, task: str, say: Say) -> Trained:
    """Let the library's loop train the learner's module on one task."""
    stack = reading.config.stack
    settings = {
        "encoder_layers": 2, "decoder_layers": 2, "norm_placement": stack.norm_placement,
        "activation": stack.activation, "tie_embeddings": False, "share_embeddings": False, "max_len": 64,
    }  # fmt: skip
    recipe = override(
        load_recipe(task), {"tokenizer.shared": False, **{f"model.{name}": each for name, each in settings.items()}}
    )
    training = replace(recipe.training, steps=STEPS, learning_rate=3e-3, precision="float32")
    recipe = replace(recipe, training=training, optimizer=replace(recipe.optimizer, name="adamw"))
    data = prepare(recipe)
    recipe, tokenizers = cast(Recipe, data.recipe), data.tokenizers
    sizes = {
        "source_vocab": tokenizers.source.vocab_size, "target_vocab": tokenizers.target.vocab_size,
        "d_model": recipe.model.d_model, "n_heads": recipe.model.n_heads, "n_layers": 2, "d_ff": recipe.model.d_ff,
        "max_len": 64,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        model = cast(Any, Learner(kind, sizes))
    losses: list[float] = []
    began = time.monotonic()
    steps = train_steps(
        model,
        (batch for _, batch in data.batches(0)),
        optimizer_of(model, recipe),
        recipe.training.rates,
        recipe.training.update,
        objective=OBJECTIVES["next_token"],
    )
    for report in steps:
        losses.append(report.loss)
        if report.number % (STEPS // 5) == 0:
            say(f"  {task}: update {report.number} of {STEPS}, loss {report.loss:.4f}")
    model.double().eval()
    found = read(model, sizes)
    assert compare(model, found, sizes).values < CLOSE, "the run must hold the model that was trained"
    trained = found.ours(model).float().eval()
    exact = float(data.dev.score(data.scoring(trained, OBJECTIVES["next_token"])).metrics["exact_match"])
    say(f"{task}: {exact:.1%} of held-out answers are right as a whole ({time.monotonic() - began:.0f} s)")
    return Trained(recipe, trained, tokenizers, losses, exact, cross_attention_picture(trained, tokenizers, EXAMPLE))


def write_run(run: Path, trained: Trained, say: Say) -> None:
    """Write the learner's weights as a run that every command opens."""
    write_text_atomically(run / "recipe.toml", dumps_recipe(trained.recipe))
    save(step_folder(run, STEPS), trained.model, trained.tokenizers, state={"trained_by": "glassformer learn --finish"})
    say(f"written: {run}")


STYLE = """
:root { color-scheme: light dark }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; font: 1.1rem/1.6 Georgia, serif }
pre { line-height: 1.2; overflow-x: auto }
svg { width: 100%; height: auto } polyline { fill: none; stroke: currentColor; stroke-width: 2 }
"""


def diploma(who: Graduate, reading: Reading, results: dict[str, Trained]) -> str:
    """Return the diploma as one HTML page without scripts, fonts or pictures from elsewhere."""
    name = f"<p><strong>{html.escape(who.name)}</strong></p>" if who.name else ""
    rows = "".join(
        f"<li>{html.escape(task)}: {each.exact:.1%} of held-out answers are right as a whole</li>"
        for task, each in results.items()
    )
    last = [*results.values()][-1]
    lines = "".join(f"<li>{html.escape(each)}</li>" for each in who.exercises)
    exercises = f"<h2>{len(who.exercises)} exercises</h2>\n<ul>{lines}</ul>\n" if lines else ""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>My transformer</title>'
    took = f" It took {minutes_told(who.minutes)}." if who.minutes >= 1 else ""
    return f"""<!doctype html>
<html lang="en"><head>{head}<style>{STYLE}</style></head><body><main>
<h1>A transformer of my own</h1>
{name}<p>This file was built part by part, and equals the library glassformer in values and gradients, to 1e-9 in
float64. {html.escape(reading.sentence().removeprefix("yours: ").capitalize())}.{took}</p>
<h2>What it learned</h2>
<ul>{rows}</ul>
{curve(last.losses)}
<h2>What it looks at</h2>
<p>{html.escape(last.picture.head)}: a line for each letter that it writes, a column for each letter that it reads.</p>
<pre tabindex="0">{html.escape(last.picture.text)}</pre>
{exercises}</main></body></html>
"""


def curve(losses: Sequence[float]) -> str:
    """Return the loss over training as a drawing."""
    top, n = max(losses), max(len(losses) - 1, 1)
    points = " ".join(f"{600 * i / n:.1f},{150 - 140 * each / top:.1f}" for i, each in enumerate(losses))
    text = f"The loss falls from {losses[0]:.2f} to {losses[-1]:.4f} in {len(losses)} updates."
    return (
        f'<svg viewBox="0 0 600 155" role="img"><title>{text}</title><polyline points="{points}"/></svg><p>{text}</p>'
    )
