"""The site's pages, gathered in a folder for Sphinx: `python docs/generate.py FOLDER`; `make docs` does both.

What stands in the repository is plain Markdown that reads well in a repository's viewer: docs/, the chapters of the
course, the changelog. Here links between these places become links between pages, a link to a file of the code leads
to a page that shows the file, and the lists of docs/index.md become the navigation. The pages of reference are written
from the tables that the code reads; nothing that is generated is kept.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import glassformer
from glassformer.cli.arguments import setting_lines
from glassformer.cli.help import EXITS, FIGURES, flag_line, verb_help
from glassformer.cli.verbs import COMMON, SECTIONS, VERBS
from glassformer.learn.course import Course, questions, read_course
from glassformer.learn.pages import CHECKED, as_notebook, folded_hints
from glassformer.proof.check.examine import SUBJECTS
from glassformer.proof.check.file import DOCUMENTED
from glassformer.proof.check.property import Mistake, Subject
from glassformer.proof.doctor import PROBES
from glassformer.train.breaks import BREAKS
from glassformer.train.recipe import Recipe

ROOT = Path(__file__).resolve().parents[1]
COURSES = [each for each in (read_course(), read_course().further) if each]
"""The five chapters, and the further pages."""
EXERCISES = {each.id: each for course in COURSES for each in course.exercises}
SOLUTIONS = {number: text for course in COURSES for number, text in course.solutions.items()}
FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s:]+)\)")
QUIET = "---\norphan: true\nnosearch: true\n---\n\n"
"""The head of a page that is reached by links alone."""

API = {
    "model": (
        "The model and its parts",
        "ModelConfig StackConfig Transformer Block Residual Attention FeedForward Mask preset PRESETS ATTEND NORMS "
        "POSITIONS recompute",
    ),
    "training": ("Data, training and checkpoints", "Tokenizer Batch train_steps Schedule Update save load"),
    "decoding": ("Decoding", "generate answer"),
    "looking": (
        "Looking inside",
        "observe sharpest_head heat_map plot_attention plot_positions trace read_trace diagnose diagnose_run silence",
    ),
    "course": (
        "The course and its checks",
        "learn.status learn.mine learn.check learn.hint learn.shapes learn.diagram learn.keep",
    ),
}
"""The pages of the Python reference: file, title, and the public names on it."""


# --- pages of the repository


def chapters(course: Course) -> list[tuple[Path, str]]:
    """The chapters of a course that are written: file, and number with title."""
    folder = ROOT / "src/glassformer" / course.folder.relative_to(Path(glassformer.__file__).parent) / "chapters"
    named = [(folder / each.page, f"{each.number}. {each.title}") for each in course.chapters if each.page]
    return [each for each in named if each[0].is_file()]


def gathered() -> dict[str, str]:
    """From each file of the repository that is a page of the site to the page's name."""
    names = {f"docs/{path.name}": path.stem for path in sorted((ROOT / "docs").glob("*.md"))}
    for course in COURSES:
        names |= {path.relative_to(ROOT).as_posix(): f"learn/{path.stem}" for path, _ in chapters(course)}
    return names | {f"{name}.md": name.lower() for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")}


def mapped(text: str, change: Callable[[str], str]) -> str:
    """Return a text with `change` applied to what stands outside fenced blocks."""
    parts, end = [], 0
    for fence in FENCED.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


class Site:
    """The pages as they are gathered; `shown` are the files of the code that a page links to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = gathered()
        self.shown: dict[str, str] = {}
        self.written: set[Path] = set()

    def write(self, name: str, text: str) -> None:
        """Write a page, unless it is there with this text, so that Sphinx reads again only what changed."""
        path = self.folder / f"{name}.md"
        self.written.add(path)
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def linked(self, text: str, origin: str, name: str) -> str:
        """Return a file's text as the page `name`: its links lead to pages."""

        def target(found: re.Match[str]) -> str:
            path, _, anchor = found[1].partition("#")
            place = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
            if not path or origin == place:
                return found[0]
            if place == "README.md":
                to = "index"
            elif place in self.pages:
                to = self.pages[place]
            elif place.startswith("docs/") and (ROOT / place).suffix in (".png", ".svg"):
                return f"]({posixpath.relpath(place.removeprefix('docs/'), posixpath.dirname(name) or '.')})"
            else:
                to = self.shown.setdefault(place, f"source/{place}")
            return f"]({posixpath.relpath(to, posixpath.dirname(name) or '.')}.md{'#' * bool(anchor)}{anchor})"

        # A page that is linked by the name of its file gets its title there.
        return mapped(text, lambda prose: re.sub(r"\[[\w/]+\.md\]\(", "[](", LINK.sub(target, prose)))

    def gather(self) -> None:
        """Write the pages that stand in the repository, and those that show a file that they link to."""
        for origin, name in self.pages.items():
            original = (ROOT / origin).read_text("utf-8")
            text = original.replace(":tags: [check]\n", ":tags: [remove-cell]\n")
            text = with_places(text) if name == "from_the_notebooks" else text
            text = self.linked(text, origin, name)
            text = with_navigation(text) if name == "index" else text
            if name.startswith("learn/"):
                text = self.with_notebook(with_folds(text), name, as_notebook(original))
            self.write(name, text)
        for kind in ("pictures", "studies"):
            shutil.copytree(ROOT / "docs" / kind, self.folder / kind, dirs_exist_ok=True)
        for place, name in sorted(self.shown.items()):
            self.write(name, source_page(place))

    def with_notebook(self, text: str, name: str, notebook: str) -> str:
        """Return a chapter with a link to its notebook, which is written beside it."""
        path = (self.folder / name).with_name(f"chapter-{posixpath.basename(name).partition('-')[0].upper()}.ipynb")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook, "utf-8")
        link = f"{{download}}`This page as a notebook <{path.name}>`"
        return re.sub(r"^# .*\n", lambda title: f"{title[0]}\n{link}\n", text, count=1, flags=re.M)

    def clear(self) -> None:
        """Remove pages that are no more."""
        for path in self.folder.rglob("*.md"):
            if path not in self.written:
                path.unlink()


def source_page(place: str) -> str:
    """Return the page that shows a file of the code, or the names in a folder."""
    path = ROOT / place
    if path.is_dir():
        listed = sorted(each.name + "/" * each.is_dir() for each in path.iterdir() if each.name[0] not in "._")
        return f"{QUIET}# {place}/\n\n" + "".join(f"- `{each}`\n" for each in listed)
    language = {".py": "python", ".toml": "toml"}.get(path.suffix, "text")
    return f"{QUIET}# {place}\n\n``````{language}\n{path.read_text('utf-8')}``````\n"


def with_folds(text: str) -> str:
    """Return a chapter with folds below the check of each exercise: its hints, and a link to our solution.

    The check itself shows nothing: there is no learner here.
    """

    def below(found: re.Match[str]) -> str:
        exercise = EXERCISES[found[3]]
        folds = folded_hints(exercise)
        if exercise.id in SOLUTIONS:
            link = f"[Our solution of {exercise.id}](solution-{exercise.id.replace('.', '-')}.md)"
            folds += f"<details><summary>Done, or stuck for good?</summary>\n\n{link}\n\n</details>\n\n"
        return f"{found[1]}:tags: [remove-output]\n{found[2]}\n```\n\n{folds}"

    cell = rf"^(```\{{code-cell\}} ipython3\n)({CHECKED.pattern})\n```\n"
    return re.sub(cell, below, text, flags=re.M)


def with_places(text: str) -> str:
    """Return the table of the notebooks with a link at each step, exercise and further page that it names."""
    places: dict[str, str] = {}
    for path, title in (each for course in COURSES for each in chapters(course)):
        number, file = title.partition(".")[0], f"../{path.relative_to(ROOT).as_posix()}"
        places |= {f"step {number}.0": file, f"page {number}": file}
        for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text("utf-8")), re.M):
            found = re.match(r"(?:Exercise (\S+)|(\d+)\.) ", heading)
            if found:
                place = f"exercise {found[1]}" if found[1] else f"step {number}.{found[2]}"
                anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                places[place] = f"{file}#{anchor}"
    pattern = r"(?<=[|·] )(?:step|exercise|page) [\w.]+(?= [|·])"
    return re.sub(pattern, lambda found: f"[{found[0]}]({places[found[0]]})" if found[0] in places else found[0], text)


def with_navigation(text: str) -> str:
    """Return the first page with a table of contents for each of its lists, which get further and generated pages."""
    further = {f"learn/{path.stem}": title for course in COURSES[1:] for path, title in chapters(course)}
    further["quiz"] = "The quiz"

    def contents(found: re.Match[str]) -> str:
        heading, body = found[1], found[2]
        extra = {"Learn": further, "Reference": {name: title for name, (title, _) in GENERATED.items()}}.get(
            heading, {}
        )
        body = body.rstrip() + "\n" + "".join(f"- [{title}]({name}.md)\n" for name, title in extra.items()) + "\n"
        pages = re.findall(r"\]\(([^)#]+)\.md\)", body)
        inner = "".join(f"{page}\n" for page in pages)
        return f"## {heading}\n{body}```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{inner}```\n\n"

    return re.sub(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", contents, text, flags=re.M | re.S)


# --- pages of reference, from the tables that the code reads


def row(*cells: str) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |\n"


def code(text: str) -> str:
    """Return a text as code."""
    return f"`{text}`"


def settings() -> Iterator[str]:
    """Yield the page of all settings of a recipe."""
    yield (
        "# Settings\n\nEach setting is declared once, in a dataclass. Its key stands in a recipe under `[section]`, "
        "and as a flag it is `--section.key`. In brackets: the default.\n\n"
    )
    for section in SECTIONS:
        yield f"## {section}\n\n| setting | meaning |\n| --- | --- |\n"
        for flag, meaning in setting_lines(section, Recipe("NAME")):
            yield row(code(flag), prose(meaning))
        yield "\n"


def prose(text: str) -> str:
    """Return a sentence of the code as Markdown that shows it as it is; flags, and what has backticks, are code."""

    def kept(found: re.Match[str]) -> str:
        return code(found[0]) if found[0].startswith("--") else found[0] if len(found[0]) > 1 else f"\\{found[0]}"

    return re.sub(r"`[^`]*`|(?<![^\s(])--[a-z][\w.-]*\w|[<>*_\[\]]", kept, text)


def commands() -> Iterator[str]:
    """Yield the page of all verbs."""
    yield f"# Command line\n\n`glassformer VERB [TARGET] [flags] [--section.key value]`. {EXITS}\n\n"
    yield "| every verb takes | meaning |\n| --- | --- |\n"
    yield "".join(row(code(flag), prose(meaning)) for flag, meaning in map(flag_line, COMMON))
    for name, verb in VERBS.items():
        first, *others = verb.about.split("\n\n")
        examples = verb_help(name, None).rpartition("Examples\n")[2]
        yield f"\n## glassformer {name}\n\n{prose(first)}\n\n```text\n"
        yield "".join(f"{line.strip()}\n" for line in examples.splitlines()) + "```\n"
        yield "".join(f"\n{prose(each)}\n" for each in others)
        tables = [("flag", [flag_line(each) for each in verb.options])]
        if name == "evaluate":
            tables.append(("figure", [*FIGURES]))
        for kind, lines in tables:
            if lines:
                yield f"\n| {kind} | meaning |\n| --- | --- |\n"
                yield "".join(row(code(each), prose(meaning)) for each, meaning in lines)
        if verb.sections:
            links = ", ".join(f"[{each}](settings.md#{each})" for each in verb.sections)
            yield f"\nSettings of the sections {links} are flags too.\n"


def taught(subject: str) -> str:
    """Return the exercises in which a subject is written."""
    found = [each.id for course in COURSES for each in course.exercises if subject in each.names]
    return ", ".join(found) or "none"


def mistakes_of(subject: Subject) -> Iterator[Mistake]:
    """Yield the mistakes in the modules whose functions test a subject."""
    tests = [subject.prepare, *(each.probe for each in subject.properties)]
    for module in dict.fromkeys(getattr(each, "func", each).__module__ for each in tests):
        yield from (value for value in vars(import_module(module)).values() if isinstance(value, Mistake))


def mistakes() -> Iterator[str]:
    """Yield the page of what `check` knows: subjects with their properties, then mistakes."""
    yield (
        "# Subjects and mistakes of check\n\n`glassformer check FILE` knows these functions and classes, and the "
        "exercises of `glassformer learn` ask for them. [Checking your own code](check.md) says how it is used.\n\n"
    )
    known: dict[str, tuple[Mistake, list[str]]] = {}
    for name, subject in SUBJECTS.items():
        documented = DOCUMENTED[name]
        yield f"## {name}\n\n`{documented.signature}`: {prose(documented.meaning)}\n\n"
        yield f"Exercises: {taught(name)}.\n\n| property | law |\n| --- | --- |\n"
        yield "".join(row(code(each.name), prose(each.law)) for each in subject.properties) + "\n"
        for mistake in mistakes_of(subject):
            known.setdefault(mistake.name, (mistake, []))[1].append(name)
    yield "## Mistakes\n\nEach is named like this by the checker, with the figures that show it.\n\n"
    for name in sorted(known):
        mistake, subjects = known[name]
        yield f"### {prose(name)}\n\n{prose(mistake.cause)}. Hint: {prose(mistake.hint)}\n\n"
        yield f"Looked for in: {', '.join(map(code, dict.fromkeys(subjects)))}.\n\n"


def probes() -> Iterator[str]:
    """Yield the page of the doctor's probes and of the mistakes that are made on purpose."""
    yield "# Probes and breaks\n\n[What is wrong with a run](doctor.md) says how they are used.\n\n## Probes\n\n"
    yield "| probe | law | after |\n| --- | --- | --- |\n"
    for probe in PROBES:
        yield row(code(probe.name), prose(probe.law), ", ".join(map(code, probe.needs)))
    yield "\n## Breaks\n\n| `--break` | what is broken | what to watch |\n| --- | --- | --- |\n"
    for name, each in BREAKS.items():
        yield row(code(name), prose(each.what), prose(each.symptom))


def api(group: str) -> Iterator[str]:
    """Yield one page of the Python reference: autodoc has classes and functions, and a table its module's docstring."""
    title, names = API[group]
    yield f"# {title}\n\n"
    for name in names.split():
        module, _, last = name.rpartition(".")
        home = f"glassformer.{module}" if module else "glassformer"
        value = getattr(import_module(home), last)
        if isinstance(value, dict):
            known = ", ".join(map(code, value))
            about = str(import_module(glassformer._HOMES[name]).__doc__)
            about = re.sub(r"^>>> .*", r"```pycon\n\g<0>```", about, flags=re.M | re.S)
            yield f"```{{eval-rst}}\n.. py:data:: glassformer.{name}\n```\n\n{about}\n\nNames: {known}.\n\n"
        else:
            kind = "class" if isinstance(value, type) else "function"
            members = "   :members:\n" * (kind == "class")
            yield f"```{{eval-rst}}\n.. auto{kind}:: {home}.{last}\n{members}```\n\n"


def quiz() -> Iterator[str]:
    """Yield the page of the questions, with their answers in folds."""
    yield (
        "# The quiz\n\nThe chapters answer these questions. `glassformer learn --quiz` asks them in the terminal and "
        "says how many you have right.\n"
    )
    for number, each in enumerate(questions(COURSES[0]), 1):
        yield f"\n{number}. {prose(each.question)}\n\n    <details><summary>Answer</summary>\n\n"
        yield f"    {prose(each.answer)} (chapter {each.source})\n\n    </details>\n"


def solution_pages() -> Iterator[tuple[str, str]]:
    """Yield name and text of each exercise's page with our solution; no search finds them."""
    for exercise in (each for course in COURSES for each in course.exercises if each.id in SOLUTIONS):
        head = f"{QUIET}# Our solution of {exercise.label}\n\n"
        yield f"learn/solution-{exercise.id.replace('.', '-')}", f"{head}```python\n{SOLUTIONS[exercise.id]}```\n"


GENERATED: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    **{f"api-{name}": (f"Python: {API[name][0].lower()}", lambda name=name: api(name)) for name in API},
    "commands": ("Command line", commands),
    "settings": ("Settings", settings),
    "mistakes": ("Subjects and mistakes of check", mistakes),
    "probes": ("Probes and breaks", probes),
}
"""The pages that the code's tables give: name, title, and what writes them."""


def main(folder: Path) -> None:
    """Write all pages into `folder`."""
    site = Site(folder)
    site.gather()
    for name, (_, write) in GENERATED.items():
        site.write(name, "".join(write()))
    site.write("quiz", "".join(quiz()))
    for name, text in solution_pages():
        site.write(name, text)
    site.clear()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
