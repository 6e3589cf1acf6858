"""The command `glassformer`: runs a verb, and turns an error into one message and an exit code."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from glassformer import __version__
from glassformer.base.cache_folder import OUT_OF_DISK
from glassformer.base.errors import ConfigError, GlassformerError, RecipeError, is_out_of_memory
from glassformer.base.launched import NAMES, launched
from glassformer.base.processors import check_environment, shorten_waits
from glassformer.cli.verbs import LINE_VERBS, VERBS

REQUIRED = {
    **{
        each: each
        for each in ("docutils", "jaxtyping", "numpy", "rich", "sacrebleu", "safetensors", "tokenizers", "torch")
    },
    "markdown_it": "markdown-it-py",
}
"""The packages that glassformer cannot work without: the name that is imported, and the one that is installed."""
TOGETHER = ("train", "resume")
"""The verbs that several processes of torchrun run together."""
SHARED = {
    "resume": ("train", "run_resume"),
    "translate": ("lines", "run"),
    "import": ("export", "run_import"),
    "verify": ("doctor", "run_verify"),
}
"""Module and function of the verbs that stand in the module of another one."""
BROKEN_PIPE = 128 + 13
"""The exit code of a program that SIGPIPE ended: the reader of our output went away before the end."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. `words` is what follows the name of the program."""
    words = list(sys.argv[1:] if words is None else words)
    # a stream that the caller closed (`<&-`, `>&-`) becomes /dev/null
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return attempt(words)
    except BrokenPipeError:
        # The interpreter flushes both streams again when it exits, and would report the broken pipe again.
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        return BROKEN_PIPE


def attempt(words: list[str]) -> int:
    """Run the command line, and report errors that a user can understand. Only a bug of ours is raised."""
    try:
        code = dispatch(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as stop:
        return complain("Stopped.", getattr(stop, "exit_code", 130))
    except Exception as error:
        known = explained(error, words)
        if known is None or debugging(words):
            raise
        return complain(*known)


def works_here(words: Sequence[str]) -> bool:
    """Whether this process does what the command asks: of several that torchrun started, one, unless they train.

    That one then works as if it were alone.
    """
    trains = bool({*words[:1]} & {*TOGETHER}) and not {"-h", "--help"} & {*words}
    if trains or (place := launched()).count == 1:
        return True
    if place.first:
        print(
            f"torchrun started {place.count} processes, but only {' and '.join(TOGETHER)} use several; this runs once, "
            "in the first of them.",
            file=sys.stderr,
        )
        for name in NAMES:
            os.environ.pop(name, None)
    return place.first


def dispatch(words: list[str]) -> int:
    """Run the verb that comes first. Errors: `ConfigError` if it does not exist."""
    if not works_here(words):
        return 0
    if not words or words[0] in ("-h", "--help"):
        from glassformer.cli.help import overview

        print(overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name, *rest = words
    if name in ("-V", "--version"):
        print(f"glassformer {__version__}")
        return 0
    if name not in VERBS:
        nearest = get_close_matches(name, VERBS, n=1, cutoff=0.5)
        hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"There is no verb {name!r}. {hint}Verbs: {', '.join(VERBS)}. See glassformer --help.")
    return run_verb(name, rest)


def run_verb(name: str, words: list[str]) -> int:
    """Run a verb, or print its help. Its module is imported only when it is used."""
    verb = VERBS[name]
    from glassformer.cli.arguments import asks_for_help, read_arguments, usage

    if asks_for_help(verb, words):
        from glassformer.cli.help import verb_help

        print(verb_help(name, next((word for word in words[:1] if not word.startswith("-")), None)))
        return 0
    arguments = read_arguments(name, verb, words)
    if verb.target and arguments.target is None and not verb.optional:
        from glassformer.train.recipe import known_recipes

        examples = {"RECIPE": f"a recipe ({', '.join(known_recipes())}, or a .toml file)", "RUN": "a run folder"}
        examples |= {"FILE": "a Python file", "FOLDER": "a folder that Hugging Face's transformers saved"}
        examples |= {"RUN|PRESET": "a run folder or a preset such as gpt2"}
        examples |= {"list|show|fetch": "list, show NAME or fetch NAME"}
        raise ConfigError(f"`glassformer {name}` needs {examples[verb.target]}. {usage(name, verb)}")
    check_environment()  # both before a verb imports torch
    shorten_waits()
    from glassformer.cli.terminal import notes_to, say
    from glassformer.fast import put_on_decoding

    with notes_to(say), put_on_decoding():
        if name in LINE_VERBS:
            from glassformer.cli.lines import run_line_verb

            return run_line_verb(LINE_VERBS[name], arguments)
        module, function = SHARED.get(name, (name, "run"))
        return getattr(import_module(f"glassformer.cli.{module}"), function)(arguments)


def explained(error: Exception, words: Sequence[str]) -> tuple[str, int] | None:
    """Return the message for the user and the exit code, or None for a bug of ours, which needs a traceback.

    `words` are those of the command line, whose flags the message names.
    """
    if isinstance(error, GlassformerError):
        return in_flags(error, words), error.exit_code
    if isinstance(error, ModuleNotFoundError) and error.name in REQUIRED:
        return (
            f"The package {(package := REQUIRED[error.name])} is needed, but it is not installed. Install it: "
            f"{shlex.quote(sys.executable)} -m pip install {package}. In a clone of glassformer, "
            "`pip install .` installs all that is needed."
        ), 2
    if is_out_of_memory(error):
        return (
            f"Memory ran out ({(str(error) or 'no more available').splitlines()[0][:200]}). Any of these helps: "
            "a smaller --training.batch-tokens; --training.accumulate 2 (half the memory; without dropout "
            "the same gradients, with dropout other random masks); "
            "a smaller --model.d-model or --model.n-layers; when scoring, a smaller --decode.batch-size; "
            "when translating, a smaller --batch-size."
        ), 5
    if isinstance(error, OSError) and error.errno in OUT_OF_DISK:
        place = "write to another place" if error.filename is None else "choose another folder with --out"
        return f"The disk is full: {error}. Free some space, or {place}.", 5
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return (
            f"A file or folder name is too long for this system: {str(error.filename)[:60]!r}... Give a shorter one.",
            2,
        )
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        return f"{error.filename} cannot be used: {error.strerror}. Choose one that you may read and write.", 2
    return None


def in_flags(error: GlassformerError, words: Sequence[str]) -> str:
    """Return the message of an error, with flags for settings, except where it is about a recipe file."""
    if isinstance(error, RecipeError) or not words or words[0] not in VERBS:
        return str(error)
    from glassformer.cli.arguments import as_typed

    setting = error.setting if isinstance(error, ConfigError) else None
    return as_typed(str(error), VERBS[words[0]], words[1:], setting)


def debugging(words: Sequence[str]) -> bool:
    """Whether the user wants to see tracebacks."""
    return "--debug" in words or os.environ.get("GLASSFORMER_DEBUG", "0") not in ("", "0")


def complain(message: str, code: int) -> int:
    """Print an error to standard error and return the exit code.

    If torchrun started several processes, every process but the first also names itself.
    """
    number = os.environ.get("RANK", "0")
    who = "glassformer" if number == "0" or os.environ.get("WORLD_SIZE") == "1" else f"glassformer [process {number}]"
    print(f"{who}: {message}", file=sys.stderr)
    return code
