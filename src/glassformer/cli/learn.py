"""`glassformer learn`: the course in the terminal."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.check import seconds
from glassformer.cli.help import width
from glassformer.cli.terminal import Keys, say
from glassformer.learn.browser import write_page
from glassformer.learn.checking import LIMIT, Checker, in_new_process, warmed
from glassformer.learn.course import FURTHER, OURS, Chapter, questions, read_course
from glassformer.learn.pages import section, whole, write_notebook
from glassformer.learn.report import (
    Checked,
    as_json,
    counted,
    following,
    listing,
    minutes_told,
    share_done,
    verdict_lines,
)
from glassformer.learn.source import read_source
from glassformer.learn.teaching import as_csv, complaints, grades
from glassformer.learn.workspace import Workspace, workspace
from glassformer.proof.check.property import wrapped

ACTIONS = (
    "watch", "check", "hint", "solution", "reset", "explain", "open", "finish", "quiz", "report", "grade", "test",
)  # fmt: skip
NEEDS_EXERCISE = ("hint", "solution")


def run(arguments: Arguments) -> int:
    """Do the one thing that the flags ask for. Errors: `ConfigError` for two at once, or a number that is not there."""
    options = arguments.options
    requested = [name for name in ACTIONS if name in options]
    if len(requested) > 1:
        raise ConfigError(f"Give one of --{requested[0]} and --{requested[1]}.")
    action = requested[0] if requested else "begin" if arguments.target else "overview"
    if arguments.more and action != "grade":
        raise ConfigError(
            f"`glassformer learn` takes one chapter or exercise; got {arguments.target!r} and {arguments.more[0]!r}. "
            "To check several files, add --grade; to work in another folder, --into FOLDER."
        )
    if action in NEEDS_EXERCISE and not arguments.target:
        raise ConfigError(f"--{action} needs an exercise: glassformer learn 1.2 --{action}.")
    given = options.get("course", arguments.target if action == "test" else None)
    course = read_course(Path(given).resolve() if given else OURS)
    if action == "test":
        found = list(complaints(course, say=say))
        print(*found, f"{course.title}: {len(found) or 'no'} complaints.", sep="\n")
        return 3 if found else 0
    if action != "grade":
        course = course.holding(arguments.target or "")
    if course.before is not None and arguments.target == FURTHER:
        arguments = replace(arguments, target=None)
        action = "overview" if action == "begin" else action
    place = workspace(course, Path(options["into"]) if "into" in options else None)
    return DO[action](place, arguments)


def put(text: str, margin: str = "") -> None:
    """Print a paragraph that is not wider than the terminal."""
    print(*wrapped(text, margin, columns()), sep="\n")


def to_type(arguments: Arguments, words: str) -> str:
    """Return what to type next, for the same folder."""
    into = arguments.options.get("into")
    return f"glassformer learn {words}" + (f" --into {into}" if into else "")


def columns() -> int:
    """Return the width of the terminal, from 40."""
    return min(max(width(), 40), 100)


def plain(arguments: Arguments) -> bool:
    """Whether to print without clearing the screen and without bars."""
    marked = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return "plain" in arguments.options or marked or not sys.stdout.isatty()


def checker(place: Workspace, arguments: Arguments, warm: bool = False) -> Checker:
    """Return what checks the learner's file."""
    limit = seconds(arguments.options.get("limit", str(LIMIT)))
    return Checker(place.course, place.path, limit, warmed() if warm else in_new_process)


def overview(place: Workspace, arguments: Arguments, ready: Checker | None = None) -> int:
    """Print chapters, progress and what is next; `ready` checks the file, if one is at hand that has begun."""
    course = place.course
    if not place.begun:
        print(f"{course.title}: {len(course.exercises)} exercises in {len(course.chapters)} chapters.\n")
        for each in course.chapters:
            print(f" {each.number} {each.title}{time_of(each)}")
        if course.further is not None:
            print(f"   and {len(course.further.chapters)} further pages: glassformer learn {FURTHER}")
        print(f"\nBegin with:  {to_type(arguments, course.chapters[0].number)}")
        return 0
    found = (ready or checker(place, arguments)).check(course.exercises)
    trails, remark = place.trails()
    ahead = following(course, found, trails)
    print(*listing(place, found, trails, ahead, columns(), plain(arguments)), sep="\n")
    if course.further is not None:
        begun = [share_done(checker(each, arguments).check(each.course.exercises)) for each in place.with_further[1:]]
        put("; ".join([f"and {len(course.further.chapters)} further pages: glassformer learn {FURTHER}", *begun]), " ")
    for text in filter(None, (remark, *found.remarks)):
        put(f"NOTE {text}", " ")
    if found.problem:
        put(f"could not run: {found.problem}", " ")
        return 0
    if stopped := next((each for each in found.verdicts.values() if each.state == "stopped"), None):
        put(f"{stopped.exercise} could not run: {stopped.why}", " ")
    done = sum(each.done for each in found.verdicts.values())
    held = f" What is done was checked again just now ({found.seconds:.1f} s)." if done else ""
    put(f"{place.path.name}: {lines_of(place.path)} lines.{held}", " ")
    words = "--finish" if ahead and ahead.experiment == "graduation" else "--watch"
    words = ahead.chapter if ahead and (course.before is not None or place.unopened(ahead.chapter)) else words
    last = f"Go on:  {to_type(arguments, words)}"
    print(f" {last}" if ahead else " All is done. Read ours: nn/ in the order of docs/architecture.md.")
    return 0


def lines_of(path: Path) -> int:
    """Return how many lines a file has; 0 if it is not there."""
    return len(path.read_bytes().splitlines()) if path.is_file() else 0


def begin(place: Workspace, arguments: Arguments) -> int:
    """Write the notebook of a chapter and append its stubs."""
    course, target = place.course, str(arguments.target)
    if "." in target and not target.endswith(".py"):
        opens = f"{to_type(arguments, course.exercise(target).chapter)} opens its chapter"
        raise ConfigError(f"{target} is an exercise. Add --explain, --watch, --check or --hint; {opens}.")
    chapter = course.chapter(target)
    lines = lines_of(place.path)
    added = place.add_stubs(chapter.number)
    put(f"Chapter {chapter.number}, {chapter.title}{time_of(chapter)}, in {place.folder}/")
    if (course.folder / "chapters" / chapter.page).is_file() and chapter.page:
        notebook, new = write_notebook(course, chapter, place.folder)
        lacking = [each for each in ("jupyterlab", "matplotlib") if find_spec(each) is None]
        how = f"new: jupyter lab {notebook}" if new else "is there already and stays as it is"
        put(f"{notebook.name:20} {how}", "  ")
        if lacking and new:
            put(f"{'':20} first: pip install {' '.join(lacking)}", "  ")
        put(f"{'':20} or read it here: {to_type(arguments, f'{chapter.number} --explain')}", "  ")
    exercises = course.within(chapter.number)
    waiting = {name: each for each in exercises for name in place.lacking(each)}
    where = f"appended below line {lines}; nothing above was touched" if lines else "in a new file"
    count = "1 stub" if len(added) == 1 else f"{len(added)} stubs"
    stubs = f"{count} {where}" if added else "has all names of this chapter already"
    if any(each.names for each in exercises) and (added or not waiting):
        put(f"{course.file:20} {stubs}", "  ")
    if waiting and course.before is not None:
        lacking = f"has no {', '.join(waiting)} yet; with them, type this again for the stubs"
        put(f"{course.before.file:20} {lacking}", "  ")
    needed = {course.exercise(need) for each in exercises for need in each.needs} - {*exercises}
    names = read_source(place.path).names
    if lacking := sorted({each.chapter for each in needed if not {*each.names} <= names}):
        each = f"chapter{'s' * (len(lacking) > 1)} {' and '.join(lacking)}"
        put(f"It goes on with parts of {each}, which your file lacks: begin there.")
    put("Exercises: " + " · ".join(each.label + " (side step)" * each.side for each in exercises))
    earlier = [each.names for each in course.exercises]
    again = [
        each.label
        for each in exercises
        if each.names and {*each.names} <= {name for names in earlier[: course.exercises.index(each)] for name in names}
    ]
    if added and again:
        put("Without a stub, because they go on with what you have: " + " · ".join(again))
    coded = [each.id for each in exercises if each.names]
    first = f"{coded[0]} " if coded and course.before is not None else ""
    if coded:
        put(f"Now open {place.path} in your editor, and leave this running beside it:")
    print(f"  {to_type(arguments, f'{first}--watch' if coded else f'{chapter.number} --explain')}")
    return 0


def time_of(chapter: Chapter) -> str:
    """Return how long a chapter takes, in brackets; nothing if its course does not say it."""
    return f" ({minutes_told(60 * chapter.hours)})" if chapter.hours else ""


def check(place: Workspace, arguments: Arguments) -> int:
    """Check an exercise, a chapter or all, once."""
    requested = place.course.within(arguments.target) if arguments.target else [*place.course.exercises]
    found = checker(place, arguments).check(requested)
    if "json" in arguments.options:
        print(json.dumps(as_json(found)))
        return found.exit_code
    for text in found.remarks:
        put(f"NOTE {text}")
    if found.problem:
        put(f"could not run: {found.problem}")
        return 2
    shown = [
        each for each in requested if len(requested) < 3 or found.verdicts[each.id].state not in ("done", "not written")
    ]
    for each in shown:
        print(*verdict_lines(each, found.verdicts[each.id], columns(), every=True), "", sep="\n")
    put(f"{place.path}: {counted(list(found.verdicts.values()))} ({found.seconds:.1f} s).")
    return found.exit_code


def hint(place: Workspace, arguments: Arguments) -> int:
    """Print the next hint of an exercise."""
    exercise = place.course.exercise(str(arguments.target))
    seen = place.trails()[0].get(exercise.id)
    level = min(seen.hints if seen else 0, 2)
    print(f"Hint {level + 1} of 3: {exercise.hints[level]}")
    if place.begun:
        place.note(exercise.id, hints=level + 1)
    return 0


def solution(place: Workspace, arguments: Arguments, ready: Checker | None = None) -> int:
    """Print our solution; while the exercise is open, only after a yes. `ready` as in `overview`."""
    exercise = place.course.exercise(str(arguments.target))
    text = place.course.solutions.get(exercise.id)
    if text is None:
        print(f"{exercise.label} is an experiment: there is no code to show.")
        return 0
    verdict = (ready or checker(place, arguments)).check([exercise]).verdicts.get(exercise.id)
    seen = place.trails()[0].get(exercise.id)
    if (verdict is None or not verdict.done) and "yes" not in arguments.options:
        count = f"{seen.attempts if seen else 0} attempts, {seen.hints if seen else 0} of 3 hints seen"
        if not sys.stdin.isatty():
            print(f"{exercise.label} is still open ({count}). Add --yes to see our solution all the same.")
            return 3
        if input(f"{exercise.label} is still open ({count}). Show it? [y/N] ").strip().lower() not in ("y", "yes"):
            return 3
    print(text)
    if place.begun:
        place.note(exercise.id, solution=True)
    return 0


def reset(place: Workspace, arguments: Arguments) -> int:
    """Put a stub back, or a fresh notebook; the old text is in the backups."""
    target = str(arguments.target or "")
    if any(each.number == target for each in place.course.chapters):
        path, _ = write_notebook(place.course, place.course.chapter(target), place.folder, again=True)
        print(f"{path} is fresh; the old one is in {place.backups}/.")
        return 0
    exercise = place.course.exercise(target)
    names = place.reset(exercise)
    print(f"{', '.join(names)} in {place.path}: the stub again. What you had is in {place.backups}/.")
    return 0


def explain(place: Workspace, arguments: Arguments) -> int:
    """Print a chapter, or the step to an exercise."""
    target = arguments.target or place.course.chapters[0].number
    course = place.course
    is_chapter = any(each.number == target for each in course.chapters)
    text = whole(course, course.chapter(target)) if is_chapter else section(course, course.exercise(target))
    if plain(arguments):
        print(text)
    else:
        from rich.console import Console
        from rich.markdown import Markdown

        Console(width=columns()).print(Markdown(text))
    return 0


def open_page(place: Workspace, arguments: Arguments) -> int:
    """Write a chapter's page and show it in the browser."""
    target = arguments.target or place.course.chapters[0].number
    number = target if any(each.number == target for each in place.course.chapters) else target.partition(".")[0]
    path = write_page(place.course, place.course.chapter(number), place.folder, say)
    print(path)
    if sys.stdout.isatty():
        webbrowser.open(path.resolve().as_uri())
    return 0


def report(place: Workspace, arguments: Arguments) -> int:
    """Print attempts, hints and minutes of each exercise."""
    trails, remark = place.trails()
    if "json" in arguments.options:
        print(json.dumps({number: asdict(each) for number, each in trails.items()}))
        return 0
    print("exercise  attempts  hints  solution  minutes  done")
    for number, each in trails.items():
        seen = "seen" if each.solution else "no"
        print(f"{number:8}  {each.attempts:8}  {each.hints:5}  {seen:8}  {each.minutes:7.0f}  {each.done or 'no'}")
    print(f"In all {minutes_told(sum(each.minutes for each in trails.values()))}. Nothing leaves this machine.", remark)
    return 0


def grade(place: Workspace, arguments: Arguments) -> int:
    """Print a row for each file."""
    files = [Path(each) for each in (arguments.target, *arguments.more) if each]
    if not files:
        raise ConfigError("--grade needs files: glassformer learn --grade handed_in/*.py --csv.")
    limit = seconds(arguments.options.get("limit", "10"))
    rows = []
    for row in grades(place.course, files, limit, warmed()):
        say(f"{len(rows) + 1} of {len(files)}: {row.file}")
        rows.append(row)
    if "json" in arguments.options:
        print(json.dumps([asdict(row) for row in rows]))
    elif "csv" in arguments.options:
        print(as_csv(rows), end="")
    else:
        for row in rows:
            done = sum(state == "done" for state in row.states.values())
            print(f"{row.file}: {done} of {len(row.states)} done" + (f"; {row.first}" if row.first else ""))
    return 0 if all(row.ran for row in rows) else 2


def quiz(place: Workspace, arguments: Arguments) -> int:
    """Ask the 20 questions."""
    right = 0
    every = questions(place.course)
    for number, each in enumerate(every, 1):
        print(f"\n{number}. {each.question}")
        if not sys.stdin.isatty():
            continue
        given = input("   > ")
        correct = each.judged(given)
        right += correct
        print(f"   {'right' if correct else 'not quite'}: {each.answer} (chapter {each.source})")
    print(f"\n{right} of {len(every)}." if sys.stdin.isatty() else "\nAnswer them in a terminal.")
    return 0


def finish(place: Workspace, arguments: Arguments) -> int:
    """Graduate, with the course's file or with another one."""
    from glassformer.learn.finish import graduate, graduate_file

    quick, name = "quick" in arguments.options, arguments.options.get("name", "")
    try:
        if arguments.target:
            path, limit = Path(arguments.target), seconds(arguments.options.get("limit", str(LIMIT)))
            folder = Path(arguments.options["into"]) if "into" in arguments.options else path.parent
            return graduate_file(path, folder, quick, name, print, limit)
        found: Checked = checker(place, arguments).check(place.course.exercises)
        if found.problem:
            put(f"could not run: {found.problem}")
            return 2
        return graduate(place, found, quick, name, print)
    except KeyboardInterrupt:
        say("\nYour file is as it was. The same command begins graduation again.")
        raise


def watch(place: Workspace, arguments: Arguments) -> int:
    """Check at each save until q or Ctrl-C."""
    from glassformer.learn.watch import KEYS, watching

    first = place.course.within(arguments.target)[0] if arguments.target else place.course.exercises[0]
    if not place.path.is_file():
        print(f"There is no {place.path} yet. Begin with:  {to_type(arguments, first.chapter)}")
        return 2
    requested = first if arguments.target else None
    say("Starting (a few seconds, once) ...")
    ready = checker(place, arguments, warm=True)
    watched, screen = watching(place, ready, columns(), requested, sys.stdin.isatty())
    clear = "" if plain(arguments) else "\x1b[2J\x1b[H"
    print(clear + screen, flush=True)
    others: dict[str, Callable[[Workspace, Arguments], int]]
    others = {
        "hint": hint, "explain": explain, "open": open_page,
        "solution": partial(solution, ready=ready), "list": partial(overview, ready=ready),
    }  # fmt: skip
    with Keys() as keys:
        try:
            while True:
                key = keys.read(0.3)
                name = KEYS.get(key[:1].lower(), "")
                if name == "quit":
                    break
                if name in others:
                    with keys.paused():
                        others[name](place, Arguments(watched.at.id, options=arguments.options))
                elif key and (message := watched.press(key)) is not None:
                    print(clear + message, flush=True)
                if (message := watched.look()) is not None:
                    print(clear + message, flush=True)
        finally:
            watched.settle()
            if watched.unwritten:
                say(watched.unwritten)
    return 0


DO: dict[str, Callable[[Workspace, Arguments], int]] = {
    "overview": overview, "begin": begin, "watch": watch, "check": check, "hint": hint, "solution": solution,
    "reset": reset, "explain": explain, "open": open_page, "finish": finish, "quiz": quiz, "report": report,
    "grade": grade,
}  # fmt: skip
"""What each flag does; with none, `overview`, and with a chapter alone, `begin`."""
