"""The course in a notebook: `from glassformer import learn`, then `learn.check(attention)`.

Every call gives a value that a notebook shows and that prints as text. Importing this imports no torch.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from glassformer import __version__
from glassformer.base.errors import GlassformerError
from glassformer.base.figures import matplotlib
from glassformer.learn.course import Exercise, read_course
from glassformer.learn.report import Shown, Status, verdict_shown
from glassformer.learn.source import definition, read_source, replace, source_of
from glassformer.learn.workspace import Workspace, workspace

if TYPE_CHECKING:
    from glassformer.lens.shapes import Shapes

_modules: dict[bytes, Any] = {}
"""Files that were imported here, by their text and that of what they import."""
_checked: dict[tuple[bytes, str], bool] = {}
"""Whether an exercise is done, by the text of the learner's file and its number."""


def _here(requested: str = "") -> Workspace:
    """Return the learner's folder, with the course that has the exercise or the name that is asked for."""
    return workspace(read_course().holding(requested))


def status() -> Status:
    """Return versions, device and progress in this folder.

    >>> from glassformer import learn
    >>> print(learn.status())  # doctest: +ELLIPSIS
    glassformer ..., torch ...
    """
    import torch

    from glassformer.learn.checking import Checker

    place = _here()
    found = [Checker(each.course, each.path).check(each.course.exercises) for each in place.with_further]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor alone"
    return Status(place, found, f"glassformer {__version__}, torch {torch.__version__}, {device}")


def mine(name: str, exercise: str = "") -> Any:
    """Return the learner's function or class `name` if it passes, else ours, so that a chapter runs in any state.

    It passes if the first exercise that asks for it is done, or the one named; on a further page also what it uses of
    the first file. Prints which of the two it is. Errors: `ConfigError` for a name that no exercise asks for.

    >>> import torch
    >>> from glassformer import learn
    >>> learn.mine("softmax")(torch.zeros(4))  # doctest: +ELLIPSIS
    softmax: ...
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    place = _here(name)
    requested = place.course.exercise(exercise) if exercise else place.course.named(name)[0]
    needed = [(place, requested.id)]
    if place.course.before is not None:  # parts of the two files meet in one model
        first = Workspace(place.course.before, place.folder)
        needed = [*((first, first.course.named(each)[0].id) for each in requested.uses), *needed]
    failing = next((number for at, number in needed if not (at.path.is_file() and _passes(at, number))), None)
    print(f"{name}: {'yours' if failing is None else f'ours, until yours passes exercise {failing}'}")
    return getattr(_imported(place.path if failing is None else _ours(place.course.folder)), name)


def _text(path: Path) -> bytes:
    """Return the text of a file and of those that it imports from beside."""
    source = read_source(path)
    with suppress(GlassformerError):
        return b"".join([source.data, *(each.read_bytes() for each in source.beside)])
    return source.data


def _passes(place: Workspace, number: str) -> bool:
    """Whether an exercise is done in the learner's file; one run of the file decides all exercises."""
    from glassformer.learn.checking import Checker

    data = _text(place.path)
    if (data, number) not in _checked:
        found = Checker(place.course, place.path).check(place.course.exercises)
        for each in place.course.exercises:
            verdict = found.verdicts.get(each.id)
            _checked[data, each.id] = verdict is not None and verdict.done
    return _checked[data, number]


@cache
def _ours(folder: Path) -> Path:
    """Return a file with the solutions of the course in `folder`, beside what it imports."""
    course = read_course(folder)
    return course.write(Path(mkdtemp(prefix="glassformer-")), course.solution_file())


def _imported(path: Path) -> Any:
    """Return the module of a file, imported once, with the files beside that it imports from as they are now."""
    from glassformer.proof.check.examine import load

    text = _text(path)
    if text not in _modules:
        beside = {each.stem: _imported(each) for each in read_source(path).beside}
        others = {name: sys.modules[name] for name in beside if name in sys.modules}
        sys.modules.update(beside)  # one module for each text: a class is the same wherever `mine` gives it
        try:
            _modules[text] = load(path)
        finally:
            for name in beside:
                del sys.modules[name]
            sys.modules.update(others)
    return _modules[text]


def check(thing: Any, exercise: str = "") -> Shown:
    """Check a function or class of this notebook, or, given a number such as "1.2", that exercise in the file.

    Without a number it is the first exercise of this name that is not done. What else an exercise asks for is taken
    from beside `thing`. Never raises for what the learner's code does.

    >>> from glassformer import learn
    >>> def softmax(scores, dim=-1):
    ...     return scores.exp() / scores.exp().sum()
    >>> learn.check(softmax)  # doctest: +ELLIPSIS
    1.1 Softmax
      FAILS...
    """
    name = thing if isinstance(thing, str) else str(getattr(thing, "__name__", type(thing).__name__))
    place = _here(exercise or name)
    try:
        if isinstance(thing, str):
            return _in_file(place, place.course.exercise(thing))
        return _in_notebook(place, thing, exercise)
    except GlassformerError as error:
        return Shown(str(error))


def _in_file(place: Workspace, exercise: Exercise) -> Shown:
    """Check one exercise in the learner's file, in a process of its own."""
    from glassformer.learn.checking import Checker

    if not place.path.is_file():
        return Shown(f"There is no {place.path.name} here yet; `glassformer learn {exercise.chapter}` makes it.")
    found = Checker(place.course, place.path).check([exercise])
    return verdict_shown(exercise, found.verdicts[exercise.id]) if not found.problem else Shown(found.problem)


def _in_notebook(place: Workspace, thing: Any, number: str) -> Shown:
    """Check a function or class here, in this process, beside whatever the notebook defines."""
    from glassformer.learn.judge import judge

    name = str(getattr(thing, "__name__", type(thing).__name__))
    methods = [each for each in vars(thing).values() if inspect.isfunction(each)] if inspect.isclass(thing) else [thing]
    around: dict[str, Any] = next((inspect.unwrap(each).__globals__ for each in methods), {})
    lines = linecache.getlines(_text_file(thing))
    source = source_of("".join(lines)) if lines else None
    requested = [place.course.exercise(number)] if number else place.course.named(name)
    for each in requested:
        verdict = judge(place.course, each, {**around, name: thing}, source)
        if not verdict.done or each is requested[-1]:
            return verdict_shown(each, verdict)
    raise AssertionError("`named` gives at least one exercise")


def keep(thing: Any) -> Shown:
    """Write a function or class of this notebook into the learner's file, in the place of its stub or old version.

    The old file is kept in .learn/backup. If it needs names that the file lacks, nothing is written. The exercise is
    then checked in the file, in a process of its own.

    >>> from contextlib import chdir
    >>> from tempfile import TemporaryDirectory
    >>> from glassformer import learn
    >>> with TemporaryDirectory() as folder, chdir(folder):
    ...     learn.keep(learn.mine("softmax"))  # doctest: +ELLIPSIS
    softmax: ours, until yours passes exercise 1.1
    1.1 Softmax
      done...
    """
    name = str(getattr(thing, "__name__", type(thing).__name__))
    place = _here(name)
    try:
        exercise = place.course.named(name)[0]
        file = read_source(place.path)
        cell = source_of("".join(linecache.getlines(_text_file(thing))))
        text = definition(cell.text, name)
        if not text:
            return Shown(f"The text of {name} cannot be found; define it in a cell of this notebook.")
        lacking = [each for each in cell.used(name) if each not in file.names and each != name]
        if lacking:
            names = ", ".join(lacking)
            return Shown(f"{name} needs {names}, which {place.path.name} lacks; nothing was written. Keep those first.")
        replace(file, place.backups, name, text)
        return _in_file(place, exercise)
    except GlassformerError as error:
        return Shown(str(error))


def _text_file(thing: Any) -> str:
    """Return the name under which the text of a thing's cell or file is known."""
    from glassformer.proof.check.examine import file_of

    return file_of(thing) or ""


def hint(exercise: str) -> Shown:
    """Return the next hint of an exercise; there are three.

    >>> from glassformer import learn
    >>> learn.hint("1.1")  # doctest: +ELLIPSIS
    Hint ...
    """
    place = _here(exercise)
    requested = place.course.exercise(exercise)
    trails, _ = place.trails()
    level = min(trails[exercise].hints if exercise in trails else 0, 2)
    if place.begun:
        place.note(exercise, hints=level + 1)
    return Shown(f"Hint {level + 1} of 3: {requested.hints[level]}")


def shapes(module: Any, *inputs: Any, **named: Any) -> Shapes:
    """Return the shapes that pass through a module, as a table; see `shapes_of`.

    >>> import torch
    >>> from glassformer import learn
    >>> learn.shapes(torch.nn.Linear(2, 3), torch.zeros(1, 2))
    module  in      out     parameters  purpose
    Linear  [1, 2]  [1, 3]           9  a learned map
    """
    from glassformer.lens.shapes import shapes_of

    return shapes_of(module, *inputs, **named)


def diagram(module: Any, *inputs: Any, levels: int = 3, **named: Any) -> Any:
    """Return a drawing of a module with the shapes that passed, to so many levels; see `plot_architecture`.

    >>> import torch
    >>> from glassformer import learn
    >>> learn.diagram(torch.nn.Linear(2, 3), torch.zeros(1, 2)).axes[0].get_title()
    'Linear: 9 parameters'
    """
    from glassformer.lens.plot import plot_architecture

    figure = plot_architecture(module, *inputs, levels=levels, **named)
    pyplot = matplotlib("pyplot")
    if "IPython" in sys.modules and not pyplot.get_fignums():
        pyplot.switch_backend(pyplot.get_backend())  # a notebook shows no figure until its backend is loaded
    return figure
