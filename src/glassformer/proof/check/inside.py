"""The process that runs a learner's file: it imports the file, tests it, and writes the report."""

from __future__ import annotations

import faulthandler
import importlib.util
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from glassformer.base.errors import DataError
from glassformer.base.registry import suggestion
from glassformer.proof.check.signatures import DOCUMENTED, HOME
from glassformer.proof.check.subjects import SUBJECTS
from glassformer.proof.check.table import CrashError, SignatureError, crash_of, examine, told

ENDED = "its code ends the program (SystemExit) while it is"


def load(path: Path) -> ModuleType:
    """Import the learner's file. Errors: `DataError` with the learner's own line for whatever it raises."""
    spec = importlib.util.spec_from_file_location("learner", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["learner"] = module  # dataclasses and others look up their module there
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        raise DataError(
            f"{ENDED} imported. Put code that is only for running the file under `if __name__ == '__main__':`."
        ) from None
    except Exception as error:
        raise DataError(
            f"importing it raised {told(error)}. It must be importable without arguments or input."
        ) from None
    return module


def chosen(only: Sequence[str]) -> tuple[set[str], set[str]]:
    """Split `only` into kinds of code and properties. Errors: `DataError` for a name that is neither."""
    known = {each.name for subject in SUBJECTS.values() for each in subject.properties}
    for name in only:
        if name not in known and name not in HOME:
            raise DataError(f"--only {name}: there is no such property. {suggestion(name, [*known, *SUBJECTS])}")
    return {HOME[name] for name in only if name in HOME}, {name for name in only if name in known}


def report_on(path: Path, names: Sequence[str], only: Sequence[str] = ()) -> dict[str, Any]:
    """Return the `pieces` of the file that were checked, and what was `left_out` with the reason.

    Errors: `DataError`.
    """
    kinds, properties = chosen(only)
    module = load(path)
    pieces: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    for found in names:
        name, thing = HOME[found], getattr(module, found, None)
        if kinds and name not in kinds:
            continue
        if reason := unfit(name, thing):
            left_out.append({"name": found, "why": reason})
            continue
        piece = piece_of(name, thing, properties)
        if piece["properties"] or piece["problem"]:
            pieces.append({"name": name, "found_as": found, **piece})
    if not pieces:
        why = "; ".join(f"{each['name']}: {each['why']}" for each in left_out)
        raise DataError(f"nothing is left to check ({why or 'nothing in it has what --only asks for'}).")
    return {"pieces": pieces, "left_out": left_out}


def unfit(name: str, thing: Any) -> str | None:
    """Return why an object with a known name is not the learner's own or not of the known kind; None if it is fine."""
    if not callable(thing):
        return "it is not a function or class"
    if str(getattr(thing, "__module__", "")).split(".")[0] in ("torch", "glassformer"):
        return f"it is imported from {thing.__module__}"
    if name == "TransformerEncoder" and "vocab" in str(inspect.signature(thing)):
        return f"it reads tokens; the documented signature is {DOCUMENTED[name].signature}"
    return None


def piece_of(name: str, thing: Any, properties: set[str]) -> dict[str, Any]:
    """Return the outcome of each property, or the problem that prevented all tests."""
    try:
        outcomes = examine(SUBJECTS[name], thing, properties)
    except SignatureError as found:
        problem = f"The signature must be {DOCUMENTED[name].signature}; found {found}."
    except CrashError as crash:
        problem = f"On plain input it raises {crash_of(crash)}."
    except SystemExit:
        problem = f"{ENDED[0].upper()}{ENDED[1:]} called."
    except Exception as error:  # what it gives no probe foresaw; the other pieces are probed all the same
        problem = f"What it returns cannot be compared: {told(error)}."
    else:
        return {"problem": None, "properties": [asdict(each) for each in outcomes]}
    return {"problem": problem, "properties": []}


def main(words: Sequence[str]) -> None:
    """Check a file. The words are: file, output folder, seconds, names in the file, names asked for."""
    path, out, limit, names, only = words
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.path.append(str(Path(path).parent))  # for imports of modules in the same folder
    with (Path(out) / "stack.txt").open("w") as stack:
        faulthandler.dump_traceback_later(float(limit), exit=True, file=stack)
        try:
            found = {"problem": None, **report_on(Path(path), names.split(","), list(filter(None, only.split(","))))}
        except DataError as error:
            found = {"problem": str(error)}
        faulthandler.cancel_dump_traceback_later()
    (Path(out) / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
