"""The course in a notebook: `from glassformer import learn`, then `learn.check(attention)`.

Every call gives a value that a notebook shows and that prints as text. Importing this imports no torch.
"""

from __future__ import annotations

import inspect
import linecache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from glassformer import __version__
from glassformer.base.errors import GlassformerError
from glassformer.learn.course import Exercise, read_course
from glassformer.learn.report import Shown, Status, verdict_shown
from glassformer.learn.source import source_of
from glassformer.learn.workspace import Workspace, workspace

if TYPE_CHECKING:
    from glassformer.lens.shapes import Shapes

_modules: dict[str, Any] = {}
"""Files that were imported here, by their text."""
_checked: dict[tuple[bytes, str], bool] = {}
"""Whether an exercise is done, by the text of the learner's file and its number."""


def _here() -> Workspace:
    return workspace(read_course())


def status() -> Status:
    """Return versions, device and progress in this folder."""
    import torch

    from glassformer.learn.checking import Checker

    place = _here()
    found = Checker(place.course, place.path).check(place.course.exercises)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor alone"
    return Status(place, found, f"glassformer {__version__}, torch {torch.__version__}, {device}")


def mine(name: str, exercise: str = "") -> Any:
    """Return the learner's function or class `name` if it passes, else ours, so that a chapter runs in any state.

    It passes if the first exercise that asks for it is done, or the one named. Prints which of the two it is. Errors:
    `ConfigError` for a name that no exercise asks for.
    """
    place = _here()
    asked = place.course.exercise(exercise) if exercise else place.course.named(name)[0]
    passed = place.path.is_file() and _passes(place, asked.id)
    text = place.path.read_text("utf-8") if passed else place.course.solution_file()
    print(f"{name}: {'yours' if passed else f'ours, until yours passes exercise {asked.id}'}")
    return getattr(_imported(text, place.path if passed else None), name)


def _passes(place: Workspace, number: str) -> bool:
    """Whether an exercise is done in the learner's file; one run of the file decides all exercises."""
    from glassformer.learn.checking import Checker

    data = place.path.read_bytes()
    if (data, number) not in _checked:
        found = Checker(place.course, place.path).check(place.course.exercises)
        for each in place.course.exercises:
            verdict = found.verdicts.get(each.id)
            _checked[data, each.id] = verdict is not None and verdict.done
    return _checked[data, number]


def _imported(text: str, path: Path | None) -> Any:
    """Return the module of a text, from its file or from one made for it, imported once."""
    from glassformer.proof.check.examine import load

    if text not in _modules:
        if path is None:
            path = Path(mkdtemp(prefix="glassformer-")) / "our_transformer.py"
            path.write_text(text, "utf-8")
        _modules[text] = load(path)
    return _modules[text]


def check(thing: Any, exercise: str = "") -> Shown:
    """Check a function or class for an exercise; by default the first exercise of its name that is not done.

    A text is the number of an exercise, as in `learn.check("1.2")`: what the learner's file has for it is checked. What
    else the exercise asks for is taken from beside `thing`. Never raises for what the learner's code does.
    """
    from glassformer.learn.judge import judge
    from glassformer.proof.check.place import code_of, file_of

    place = _here()
    try:
        if isinstance(thing, str):
            return _of_the_file(place, place.course.exercise(thing))
        name = exercise_name = str(getattr(thing, "__name__", ""))
        code = code_of(thing)
        function = vars(thing).get("forward", None) if inspect.isclass(thing) else thing
        around = dict(getattr(inspect.unwrap(function), "__globals__", {})) if function is not None else {}
        source = source_of("".join(linecache.getlines(file_of(thing) or ""))) if code is not None else None
        asked = [place.course.exercise(exercise)] if exercise else place.course.named(exercise_name)
        found = [judge(place.course, each, {**around, name: thing}, source) for each in asked[:1]]
        while found[-1].done and len(found) < len(asked):
            found.append(judge(place.course, asked[len(found)], {**around, name: thing}, source))
        return verdict_shown(place.course.exercise(found[-1].exercise), found[-1])
    except GlassformerError as error:
        return Shown(str(error))


def _of_the_file(place: Workspace, exercise: Exercise) -> Shown:
    """Check an exercise of the learner's file as it is now."""
    from glassformer.learn.checking import Checker

    if not place.path.is_file():
        return Shown(
            f"{exercise.id}: there is no {place.path.name} here yet. `glassformer learn {exercise.chapter}` makes it."
        )
    found = Checker(place.course, place.path).check([exercise])
    return Shown(found.problem) if found.problem else verdict_shown(exercise, found.verdicts[exercise.id])


def hint(exercise: str) -> Shown:
    """Return the next hint of an exercise; there are three."""
    place = _here()
    asked = place.course.exercise(exercise)
    trails, _ = place.trails()
    level = min(trails[exercise].hints if exercise in trails else 0, 2)
    if place.begun:
        place.note(exercise, hints=level + 1)
    return Shown(f"Hint {level + 1} of 3: {asked.hints[level]}")


def shapes(module: Any, *inputs: Any, **named: Any) -> Shapes:
    """Return the shapes that pass through a module, as a table; `down_to(1)` of it shows the outermost parts alone."""
    from glassformer.lens.shapes import shapes_of

    return shapes_of(module, *inputs, **named)


def diagram(module: Any, *inputs: Any, levels: int = 3, **named: Any) -> Any:
    """Return a drawing of a module, with the shapes that passed: a matplotlib figure, so many levels deep."""
    from glassformer.lens.plot import plot_architecture

    return plot_architecture(module, *inputs, levels=levels, **named)
