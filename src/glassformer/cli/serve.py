"""`glassformer serve RUN`: answer requests over HTTP until a signal ends it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from glassformer.base.errors import ConfigError, install
from glassformer.base.typed import annotations_of, types_in
from glassformer.cli.arguments import Arguments, converted, flag_of
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.cli.terminal import say
from glassformer.cli.verbs import VERBS
from glassformer.decode.settings import BeamSettings
from glassformer.serve.settings import KEY, ServeConfig, open_socket
from glassformer.train.recipe import Recipe, override

NEEDED = ("h11", "starlette", "uvicorn")
INSTEAD = {
    "max_new_tokens": "--max-new-tokens sets the longest text that a client may ask for",
    "batch_size": "--rows sets how many texts are written together",
}
"""What replaces a decode setting in a server."""
MOST_KEY = 4096
"""The largest key file, in bytes."""


def run(arguments: Arguments) -> int:
    """Serve until a signal ends it, and log to standard error."""
    folder = existing_run(str(arguments.target))
    config = settings_of(arguments)
    recipe = decoding(recipe_of(folder), arguments)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f"glassformer serve needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f"installed. Install the extra: {install('serve')}."
        )
    found = open_socket(config)
    try:
        import torch  # after the checks, as this takes a second

        from glassformer.serve.app import listen
        from glassformer.serve.service import Service
        from glassformer.train.finished.loading import tell_decoding
        from glassformer.train.finished.writing import Writer

        writer = Writer(folder, recipe)
        torch.set_num_threads(writer.threads.number)
        tell_decoding(writer.loaded.model, recipe.decode, writer.threads.reason)
        service = Service(writer, folder.resolve().name, config, say, int((folder / "recipe.toml").stat().st_mtime))
        if recipe.decode.compile:
            service.warm_up()
        return listen(service, found)
    finally:
        found.close()


def decoding(recipe: Recipe, arguments: Arguments) -> Recipe:
    """Return the run's recipe with the decode settings that were given.

    Errors: `ConfigError` for a setting that clients choose, or that a server does not use.
    """
    for place in arguments.changes:
        section, name = place.split(".", 1)
        if name in VERBS["serve"].taken:
            continue
        flag = flag_of(section, name)
        if name in annotations_of(BeamSettings):
            raise ConfigError(
                f"A server writes token by token, without beam search. Remove {flag}; glassformer generate takes it."
            )
        instead = INSTEAD.get(name, "each request says how its tokens are chosen")
        raise ConfigError(f"serve takes no {flag}: {instead}. Remove it.")
    return override(recipe, arguments.changes)


def settings_of(arguments: Arguments) -> ServeConfig:
    """Return the server settings that were given. Errors: `ConfigError` naming the flag."""
    given: dict[str, object] = {}
    for name, kind in annotations_of(ServeConfig).items():
        flag = name.replace("_", "-")
        if (text := arguments.options.get(flag)) is not None:
            given[name] = converted(f"--{flag}", types_in(kind)[0], text)
    return ServeConfig(**given, key=key_of(arguments))  # pyright: ignore[reportArgumentType]


def key_of(arguments: Arguments) -> str | None:
    """Return the key from the file, else from the environment, or None if neither has one."""
    file = arguments.options.get("key-file")
    if file is None:
        return os.environ.get(KEY) or None
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MOST_KEY + 1)
        key = data.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--key-file names a file with one key in ASCII; {file} cannot be read: {error}.") from None
    if not key or len(data) > MOST_KEY:
        what = f"more than {MOST_KEY} bytes" if key else "no key"
        raise ConfigError(f"--key-file names a file with one key; {file} has {what}. Put only the key there.")
    return key
