"""`glassformer explore RUN`: look into a model in the browser, or write the page as one file."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_run
from glassformer.foundation.errors import ConfigError

USUAL_PORT = 8642


def run(arguments: Arguments) -> int:
    """Serve the page of a run on this machine until Ctrl-C; with --export write it as a file and end."""
    folder = existing_run(str(arguments.target))
    export = arguments.options.get("export")
    port = port_of(arguments.options.get("port"))
    if export is not None:
        if given := [name for name in ("port", "no-open") if name in arguments.options]:
            raise ConfigError(f"--export writes a file and serves nothing. Leave --{given[0]} out.")
        return write_page(folder, Path(export))
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise ConfigError(
            f"explore serves its page with {missing[0]}, which is not installed: pip install 'glassformer[explore]'. "
            "Or write the page as a file, which needs nothing: add --export page.html."
        )
    return serve(folder, port, opens="no-open" not in arguments.options)


def port_of(given: str | None) -> int | None:
    """The port that was asked for. Errors: `ConfigError` for anything but 0 to 65535."""
    if given is not None and not (given.isascii() and given.isdecimal() and len(given) < 6 and int(given) < 65536):
        raise ConfigError(f"--port takes a number from 0 (any that is free) to 65535; got {given[:40]!r}.")
    return None if given is None else int(given)


def tell(text: str) -> None:
    """Words about the work, which are no output."""
    print(text, file=sys.stderr, flush=True)


def write_page(folder: Path, path: Path) -> int:
    """The page of a run as one file, with the traces of its examples. Errors: `ConfigError`: it cannot be written."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"would lie in {path.parent}, which is no folder"
        raise ConfigError(f"--export names the file to write; {path} {what}. Try --export page.html.")
    written = page_of(folder, path)
    print(f"{path}: {written.size / 1e6:.1f} MB, one file that any browser opens.")
    return 0


class Written(NamedTuple):
    """A page on the disk: its characters, and what it says of the model's heads."""

    size: int
    sentences: Sequence[str]


def page_of(folder: Path, path: Path) -> Written:
    """Write the page of a run, with the traces of its examples."""
    from glassformer.lens.page.bundle import standalone
    from glassformer.lens.server.run import subject_of

    subject = subject_of(folder, tell)
    traces = [subject.trace(source, gold).to_bytes() for source, gold in subject.examples]
    page = standalone(traces, subject.facts() | {"metrics": subject.lines(), "live": False})
    path.write_text(page, "utf-8")
    return Written(len(page), subject.sentences)


def serve(folder: Path, port: int | None, *, opens: bool) -> int:
    """Serve until Ctrl-C. Without a port that was asked for, the usual one, or any that is free."""
    from glassformer.lens.server.app import HOST, listen, make_app, make_server, new_token
    from glassformer.lens.server.run import subject_of

    try:
        listener = listen(USUAL_PORT if port is None else port)
    except ConfigError:
        if port is not None:
            raise
        listener = listen(0)
    with listener:
        chosen, token = listener.getsockname()[1], new_token()
        app = make_app(subject_of(folder, tell), token, chosen)
        address = f"http://{HOST}:{chosen}/#token={token}"
        print(f"{folder} is shown at {address}\nIt answers this machine alone, until Ctrl-C.", flush=True)
        if opens:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # the way to end it
            make_server(app).run(sockets=[listener])
    return 0
