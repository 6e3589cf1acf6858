"""`glassformer rollout RUN`: let a model of trajectories act in an environment, asked for returns."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments, whole_number
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.data.config import DataConfig
from glassformer.train.tasks import task_of
from glassformer.train.tasks.task import ROLLOUT

if TYPE_CHECKING:
    from glassformer.control.rollout import Agent, Played, World

MOST = 100_000
"""The most episodes for a return, and the most steps of one."""


def run(arguments: Arguments) -> int:
    """Play the episodes and print what they got."""
    folder = existing_run(str(arguments.target))
    recipe, given = recipe_of(folder), arguments.options
    data = recipe.data
    task_of(data).refuse_unfit(folder, ROLLOUT)
    environment = given.get("env")
    name = data.environment if environment is None else environment
    if not name:
        raise ConfigError(
            "A rollout needs an environment, and the recipe names none. Give one, such as --env CartPole-v1."
        )
    requested = [number("return", each) for each in arguments.lists.get("return", [])]
    episodes = whole_number("episodes", given.get("episodes", "10"), MOST, 10)
    temperature = number("temperature", given.get("temperature", "0"))
    if temperature < 0:
        raise ConfigError(f"--temperature must be at least 0; got {temperature:g}. Try --temperature 1.")
    seed = whole_number("seed", given.get("seed", "0"), 999_999_999, 0, least=0)
    out = target_of(given.get("save"))
    from glassformer.base.runtime import choose_threads
    from glassformer.control.rollout import as_episodes, play  # after the checks, as importing torch takes a second
    from glassformer.data.trajectories.episodes import npz_bytes
    from glassformer.store.files import write_bytes

    choose_threads(recipe.decode.threads)
    agent, make = agent_in(name, folder, data, temperature, unit_actions="unit-actions" in given)
    scales = agent.spaces.scales
    steps = whole_number("steps", given.get("steps", str(scales.longest)), MOST, scales.longest)
    played = list(play(agent, make, requested or dict.fromkeys(scales.returns), range(seed, seed + episodes), steps))
    if out is not None:
        write_bytes(out, npz_bytes(as_episodes(played)))
        print(f"Episodes: {out}", file=sys.stderr)
    rows = [figures_of(played[first : first + episodes]) for first in range(0, len(played), episodes)]
    if "json" in given:
        print(json.dumps({"environment": name, "rows": rows, "training": list(scales.returns)}))
    else:
        print(as_table(name, rows, scales.returns, data.discount))
    return 0


def agent_in(
    name: str, folder: Path, data: DataConfig, temperature: float, *, unit_actions: bool
) -> tuple[Agent, Callable[[], World]]:
    """Load the model of a run, and what makes the environment. Errors: `ConfigError` if it cannot act there so."""
    from glassformer.control.rollout import Agent, check_unit, check_world, worlds
    from glassformer.data.trajectories.episodes import Spaces
    from glassformer.store.checkpoint import load

    loaded, make = load(folder), worlds(name)
    spaces = loaded.tokenizers.target
    assert isinstance(spaces, Spaces), "a run on trajectories keeps its spaces"
    check_world(world := make(), spaces)
    if unit_actions:
        check_unit(world)
    world.close()
    if temperature and not spaces.entries:
        raise ConfigError("--temperature draws numbered actions, but the actions of this run are vectors. Remove it.")
    return Agent(loaded.model, spaces, data.window, data.discount, temperature, unit_actions), make


def number(flag: str, given: str) -> float:
    """Return the finite number that a flag was given. Errors: `ConfigError`."""
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"--{flag} takes a number; got {given[:40]!r}. Try --{flag} 1.")
    return value


def target_of(given: str | None) -> Path | None:
    """Return the file to write, if any. Errors: `ConfigError` for another kind of file and an impossible place."""
    if given is None:
        return None
    path = Path(given)
    if path.suffix.lower() != ".npz" or not path.parent.is_dir() or path.is_dir():
        raise ConfigError(
            f"--save takes the name of a file that ends in .npz, in a folder that exists; got {given!r}. Try --save "
            "episodes.npz."
        )
    return path


def figures_of(group: list[Played]) -> dict[str, float | int]:
    """Return the figures of the episodes that were asked for the same return."""
    got, best = [each.got for each in group], [each.best for each in group if each.best is not None]
    return {
        "asked": group[0].target_return,
        "got": sum(got) / len(got),
        "lowest": min(got),
        "highest": max(got),
        "steps": sum(len(each.rewards) for each in group) / len(group),
        "ended": sum(each.ended for each in group) / len(group),
        "n": len(group),
        **({"best": sum(best) / len(best)} if best else {}),
    }


def as_table(
    name: str, rows: list[dict[str, float | int]], training: tuple[float, float, float], discount: float
) -> str:
    """Return the figures as a table, and those of the training episodes below it."""
    lines = [f"{'asked for':>10} {'got, mean':>10} {'lowest':>10} {'highest':>10} {'steps':>8} {'ended':>7}"]
    for row in rows:
        numbers = " ".join(f"{row[key]:>10.2f}" for key in ("asked", "got", "lowest", "highest"))
        lines.append(f"{numbers} {row['steps']:>8.1f} {row['ended']:>6.0%}")
    lowest, mean, highest = training
    best = f"; the best possible mean is {rows[0]['best']:.2f}" if "best" in rows[0] else ""
    lines += [
        f"{name}, {rows[0]['n']} episodes for each return{best}. ended: by the environment, before the most steps.",
        f"training episodes: returns from {lowest:.2f} to {highest:.2f}, mean {mean:.2f}",
    ]
    if discount < 1:
        lines.append(f"All returns are discounted by {discount:g} a step, as in training (data.discount).")
    return "\n".join(lines)
