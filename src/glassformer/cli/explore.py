"""`glassformer explore RUN`: inspect a model in the browser, or write the page to a single file."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from glassformer.base.errors import ConfigError, install
from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_runs, recipe_of
from glassformer.cli.terminal import say
from glassformer.store.files import write_text_atomically
from glassformer.train.tasks import task_of

if TYPE_CHECKING:
    from glassformer.lens.server.subject import Subject
    from glassformer.lens.trace.make import Trace

USUAL_PORT = 8642
PAGES, TITLE = (".html", ".htm"), b"<title>glassformer</title>"
"""What the name of a page ends with, and what stands near its beginning."""
INTO_A_FILE = ("checkpoints", "patch", "into")
"""Options that add to the file more than the run's examples."""


class More(NamedTuple):
    """What an exported file holds besides the run's examples. The file has no model that could be asked later."""

    checkpoints: bool = False
    """Whether to add the role of each head at each checkpoint."""
    patched: tuple[str, str] | None = None
    """Two texts, to add which parts of the model carry the difference between their answers."""


EXAMPLES_ALONE = More()


def more_of(options: Mapping[str, str]) -> More:
    """Read from the options what to add. Errors: `ConfigError` if one of the two texts is missing."""
    if ("patch" in options) != ("into" in options):
        raise ConfigError("Patching needs two texts: --patch TEXT --into TEXT. Give both.")
    return More("checkpoints" in options, (options["patch"], options["into"]) if "patch" in options else None)


def run(arguments: Arguments) -> int:
    """Serve the page of a run on this machine until Ctrl-C; with --export, write it to a file and exit."""
    folder, *_ = folders = existing_runs(arguments)
    beside = other_runs(folders)
    export = arguments.options.get("export")
    port = port_of(arguments.options.get("port"))
    if export is not None:
        if given := [name for name in ("port", "no-open") if name in arguments.options]:
            raise ConfigError(
                f"--export writes a file and serves nothing, so --{given[0]} would have no effect. Remove it."
            )
        return write_page(folder, Path(export), more_of(arguments.options), beside)
    if given := [name for name in INTO_A_FILE if name in arguments.options]:
        raise ConfigError(
            f"--{given[0]} adds to an exported file what the served page computes when you ask for it. Add "
            f"--export page.html, or remove --{given[0]}."
        )
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise ConfigError(
            f"To serve its page, explore needs {missing[0]}, which is not installed. Install the extra: "
            f"{install('explore')}. Or write the page to a file without it: add --export page.html."
        )
    return serve(folder, port, beside, opens="no-open" not in arguments.options)


def port_of(given: str | None) -> int | None:
    """Parse the port. Errors: `ConfigError` for anything but a number from 0 to 65535."""
    if given is not None and not (given.isascii() and given.isdecimal() and len(given) < 6 and int(given) < 65536):
        raise ConfigError(
            f"--port takes a whole number from 0 (any free port) to 65535; got {given[:40]!r}. Try --port 0."
        )
    return None if given is None else int(given)


def other_runs(folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return name and folder of each run but the first. Where runs share a name, the folder serves as the name."""
    names = [folder.resolve().name for folder in folders]
    return [
        (str(folder) if names.count(name) > 1 else name, folder)
        for name, folder in zip(names[1:], folders[1:], strict=True)
    ]


def study_of(folder: Path) -> dict[str, Any] | None:
    """Return the finished arms of the study that a run belongs to, for the page to compare, or None without a study."""
    from glassformer.study.result import SHARES, result_from, splits
    from glassformer.train.recipe import load_recipe

    run = folder.resolve()
    path = run.parent.parent / "results.jsonl"
    if run.parent.name != "runs" or not path.is_file():
        return None
    lines = path.read_text("utf-8").splitlines()
    split = task_of(load_recipe(run / "recipe.toml").data).held_out
    results = [result_from(json.loads(line), f"{path}:{i}", split) for i, line in enumerate(lines, 1)]
    if not results:
        return None
    metric = results[0].metric
    arms = [
        {
            "values": each.values,
            "seed": each.seed,
            "figure": each.test[metric],
            "seconds": each.seconds,
            "data": each.data,
        }
        for each in results
    ]
    return {
        "name": path.parent.name,
        "metric": metric,
        "share": metric in SHARES,
        "split": splits(results),
        "n": results[0].test.get("n"),
        "arms": arms,
    }


def write_page(folder: Path, path: Path, more: More, beside: Sequence[tuple[str, Path]]) -> int:
    """Write the page of a run and the traces of its examples to one file.

    Errors: `ConfigError` if that is impossible.
    """
    refuse_foreign(path)
    written = page_of(folder, path, more, beside)
    added = (
        f" {written.added / 1e3:.1f} kB of it are what was asked for beside the run's examples." if any(more) else ""
    )
    print(f"{path}: {written.size / 1e6:.1f} MB, one file that any browser opens.{added}")
    return 0


def refuse_foreign(path: Path) -> None:
    """Raise `ConfigError` unless a page may be written here: a new file, or one that this command wrote before."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"would be in {path.parent}, which is not a folder"
        raise ConfigError(f"--export names a file to write; {path} {what}. Try --export page.html.")
    if path.suffix.lower() not in PAGES:
        raise ConfigError(f"--export writes a page, named .html; got {str(path)!r}. Try --export {path.stem}.html.")
    if path.exists():
        with path.open("rb") as file:
            ours = TITLE in file.read(1000)
        if not ours:
            raise ConfigError(
                f"--export replaces only pages that it wrote, and {path} is another file. Give another name, or delete "
                "that file first."
            )


class Written(NamedTuple):
    """An exported page: its length in characters, how many of them `More` added, and its sentences about the heads."""

    size: int
    added: int
    sentences: Sequence[str]


def page_of(folder: Path, path: Path, more: More, beside: Sequence[tuple[str, Path]] = ()) -> Written:
    """Write the page of a run, with the traces of its examples and what `more` asks for.

    Errors: `DataError` if the two texts cannot be compared.
    """
    from glassformer.lens.page.bundle import standalone
    from glassformer.lens.server.subject import History

    subject = subject_in(folder, beside)
    traces = [subject.trace(source, gold) for source, gold in subject.examples]
    facts = subject.facts() | {"metrics": subject.lines(), "beside": subject.beside(), "samples": subject.samples()}
    facts["live"] = False
    usual = len(standalone([made.to_bytes() for made in traces], facts)) if any(more) else None
    if more.checkpoints and subject.history is not None:
        say("Looking at each checkpoint.")
        facts["history"] = History(folder).whole()
    if more.patched is not None:
        pair, patching = between(subject, more.patched)
        facts["patches"] = [{"traces": [str(len(traces)), str(len(traces) + 1)], **patching}]
        traces += pair
    page = standalone([made.to_bytes() for made in traces], facts)
    write_text_atomically(path, page)
    return Written(len(page), 0 if usual is None else len(page) - usual, subject.sentences)


def subject_in(folder: Path, beside: Sequence[tuple[str, Path]]) -> Subject:
    """Load a run for the page; this process has the run's threads from now on."""
    from glassformer.base.runtime import choose_threads
    from glassformer.lens.server.subject import subject_of

    choose_threads(recipe_of(folder).decode.threads)
    return subject_of(folder, say, others=beside, study=study_of(folder))


def between(subject: Subject, texts: tuple[str, str]) -> tuple[list[Trace], dict[str, Any]]:
    """Return the traces of two texts, and which patches from the first restore its answer in a run on the second."""
    from glassformer.lens.trace.make import patch_traces, patching_as_json

    one, other = (subject.trace(text) for text in texts)
    return [one, other], patching_as_json(patch_traces(subject.model, one, other))


def serve(folder: Path, port: int | None, beside: Sequence[tuple[str, Path]], *, opens: bool) -> int:
    """Serve until Ctrl-C. If no port was asked for, use the usual one, or any free one if that is taken."""
    from glassformer.lens.server.app import HOST, listen, make_app, make_server, new_token
    from glassformer.lens.server.subject import History

    try:
        listeners = listen(USUAL_PORT if port is None else port)
    except ConfigError:
        if port is not None:
            raise
        listeners = listen(0)
    with ExitStack() as closing:
        listeners = [closing.enter_context(each) for each in listeners]
        chosen, token = listeners[0].getsockname()[1], new_token()
        subject = subject_in(folder, beside)
        app = make_app(subject, token)

        def end() -> None:
            app.state.api.ended.set()
            if isinstance(subject.history, History):
                subject.history.end()

        address = f"http://{HOST}:{chosen}/#token={token}"
        print(f"{folder} is shown at {address}\nIt answers this machine alone, until Ctrl-C.", flush=True)
        if opens:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # Ctrl-C is the normal way to end it
            make_server(app, end).run(sockets=listeners)
    return 0
