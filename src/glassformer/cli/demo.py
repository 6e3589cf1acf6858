"""`glassformer demo`: watch a model learn to reverse sequences, in about a minute."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING

from glassformer.cli.arguments import Arguments
from glassformer.cli.explore import EXAMPLES_ALONE, page_of
from glassformer.cli.help import width
from glassformer.cli.runs import RUNS, check_room, free_name, room_for, run_folder
from glassformer.train.recipe import Recipe, load_recipe, override
from glassformer.train.records import Evaluated, Event, Progress, Sample, printable

if TYPE_CHECKING:
    from glassformer.nn.transformer import Transformer
    from glassformer.train.run_data import RunData

PAGE = "explorer.html"
INTRODUCTION = """\
A transformer learns to write a sequence of letters backwards. Nobody tells it
how: it sees pairs such as
  a b c d e f g h  ->  h g f e d c b a
and is corrected, step by step. At first it guesses.
"""


def run(arguments: Arguments) -> int:
    """Train the recipe `reverse` in a fresh folder, so that an earlier demo is neither overwritten nor an obstacle."""
    recipe = load_recipe("reverse")
    recipe = override(recipe, {"training.evaluate_every": max(recipe.training.steps // 10, 1)})  # to see it half right
    usual = RUNS / recipe.name
    out = run_folder(arguments.options.get("out"), free_name(usual))
    check_room(out, overwrite=False)
    print(INTRODUCTION, flush=True)
    if "out" not in arguments.options and out != usual:
        print(f"{usual} exists and stays as it is; this run goes to {out}.\n", flush=True)
    return show(recipe, out)


def show(recipe: Recipe, out: Path) -> int:
    """Train, then show what was learned and what to type next."""
    from glassformer.cli.follow import Signals, follow  # here, as importing torch takes a second
    from glassformer.fast import for_training
    from glassformer.train.run.session import start

    seen: list[Evaluated] = []
    losses: list[float] = []

    def watch(event: Event) -> None:
        if isinstance(event, Evaluated):
            seen.append(event)
        if isinstance(event, Progress):
            losses.append(event.loss)

    with Signals() as signals:
        with room_for(out):
            session = start(recipe, out, speed=for_training)
        seen.append(untrained(session.model, session.prepared))
        code = follow(session, out, signals, watch)
    if code == 0:
        print(f"\nThe loss, from {losses[0]:.2f} to {losses[-1]:.4f}:  {curve(losses)}" if losses else "")
        story = [*map(scene, milestones(seen)), gaze(session.model, session.prepared), explorer(out)]
        print(*story, next_commands(out), sep="\n")
    return code


def milestones(seen: Sequence[Evaluated]) -> list[Evaluated]:
    """Return the first evaluation, the one in between that is closest to half right, and the last, if they exist."""
    between = sorted(seen[1:-1], key=lambda event: abs(float(event.metrics["exact_match"]) - 0.5))
    return [*seen[:1], *between[:1], *seen[1:][-1:]]


def scene(event: Evaluated) -> str:
    """Return what the model wrote at one evaluation, and the share of right answers."""
    when = f"After {event.step} steps" if event.step else "Before training"
    score = event.metrics.get("exact_match")
    title = f"{when}, {score:.1%} of the answers are right:" if isinstance(score, float) else f"{when}:"
    return "\n".join(
        [
            title,
            *(f"  {printable(each.source)}  ->  {printable(each.output) or '(nothing)'}" for each in event.samples),
            "",
        ]
    )


def curve(values: Sequence[float], width: int = 40) -> str:
    """Return a line of bars: `width` stretches of the values, each bar as high as the mean of its stretch."""
    cuts = [len(values) * index // width for index in range(width + 1)]
    means = [fmean(values[a:b]) for a, b in pairwise(cuts) if b > a]
    top = max(max(means), 1e-9)
    return "".join("▁▂▃▄▅▆▇█"[min(int(8 * mean / top), 7)] for mean in means)


def next_commands(out: Path) -> str:
    """Return commands that a newcomer can try next."""
    run = shlex.quote(str(out))
    return "\n".join(
        (
            "It is yours now. Three commands to go on with:",
            f"  glassformer explore {run}",
            f'  echo "f o r m a l i n" | glassformer translate {run}',
            f"  glassformer evaluate {run}",
        )
    )


def untrained(model: Transformer, prepared: RunData) -> Evaluated:
    """Return the answers to the first few dev sources, as an evaluation after 0 steps."""
    from glassformer.decode.answer import answer
    from glassformer.decode.filters import unwritten
    from glassformer.train.tasks.pairs import PairsData

    assert isinstance(prepared, PairsData)  # as the demo's recipe says
    pairs = prepared.dev.pairs[: prepared.recipe.training.samples]
    sources = [prepared.dev.encoded.source[index] for index in range(len(pairs))]
    found = answer(model, sources, never=unwritten())
    outputs = [prepared.tokenizers.target.decode(each.ids) for each in found]
    return Evaluated(0, {}, [Sample(*pair, output) for pair, output in zip(pairs, outputs, strict=True)])


def gaze(model: Transformer, prepared: RunData) -> str:
    """Show what the most decided head of the decoder reads while the model answers the first dev source."""
    from glassformer.lens.picture import cross_attention_picture
    from glassformer.train.tasks.pairs import PairsData

    assert isinstance(prepared, PairsData)
    picture = cross_attention_picture(model, prepared.tokenizers, prepared.dev.pairs[0].source)
    return "\n".join(
        (
            f"Where it looks: {picture.head}.",
            "A line for each letter it writes, a column for each letter it reads:",
            *(f"  {line}".rstrip() for line in picture.text.splitlines()),
            "",
        )
    )


def explorer(out: Path) -> str:
    """Write the page of the run into its folder; return a sentence about its heads, and where the page is."""
    found = [fill(each, width()) for each in page_of(out, out / PAGE, EXAMPLES_ALONE).sentences[:1]]
    return "\n".join([*found, f"Every head, step and number of it: open {out / PAGE} in a browser.", ""])
