"""Checks one part of a learner's code, or all parts of a file, in this process."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Collection, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from glassformer.base.errors import DataError
from glassformer.base.registry import suggestion
from glassformer.proof.check.calling import means, required
from glassformer.proof.check.place import Calls, file_of, first_line
from glassformer.proof.check.report import LeftOut, Piece, Report
from glassformer.proof.check.signatures import DOCUMENTED, HOME
from glassformer.proof.check.subjects import SUBJECTS
from glassformer.proof.check.table import (
    CrashError,
    NotWrittenError,
    Outcome,
    SignatureError,
    crash_of,
    examine,
    told,
)

ENDED = "its code ends the program (SystemExit) while it is"


def check_part(name: str, thing: object, only: Collection[str] = (), found_as: str = "") -> Piece:
    """Check one function or class against the properties of the subject `name`, or those named in `only`.

    Never raises for what the learner's code does: a problem that prevents all tests is part of the result.
    """
    place = found_as or getattr(thing, "__name__", name)
    file = file_of(thing)
    problem, written, outcomes = None, not stub(thing), list[Outcome]()
    with Calls({file} if file else set()) as calls:
        try:
            outcomes = examine(SUBJECTS[name], thing, only) if written else []
        except NotWrittenError:
            written = False
        except SignatureError as found:
            problem = f"The signature must be {DOCUMENTED[name].signature}; found {found}."
        except CrashError as crash:
            problem = f"On plain input it raises {crash_of(crash)}."
        except SystemExit:
            problem = f"{ENDED[0].upper()}{ENDED[1:]} called."
        except Exception as error:  # what it gives no probe foresaw; the other pieces are probed all the same
            problem = f"What it returns cannot be compared: {told(error)}."
    for each in outcomes:
        if each.state == "fails":
            each.line = calls.line(each.property, thing)
    return Piece(name, place, first_line(thing), problem, written, outcomes)


def stub(thing: object) -> bool:
    """Whether a function, or a class's forward, has no body but a docstring, `pass`, `...` or `NotImplementedError`."""
    function = vars(thing).get("forward") if inspect.isclass(thing) else thing
    if not inspect.isfunction(function):
        return False
    with suppress(OSError, SyntaxError, TypeError):
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if isinstance(node, ast.FunctionDef):
            return all(map(empty, node.body))
    return False


def empty(node: ast.stmt) -> bool:
    """Whether a statement does nothing, or says that it is not written."""
    if isinstance(node, ast.Raise):
        return node.exc is not None and "NotImplementedError" in ast.unparse(node.exc)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


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


def check_file(path: Path, names: Sequence[str], only: Sequence[str] = ()) -> Report:
    """Check the parts of a file, given the names that it defines or imports. Errors: `DataError`."""
    kinds, properties = chosen(only)
    module = load(path)
    pieces: list[Piece] = []
    left_out: list[LeftOut] = []
    for found in names:
        thing = getattr(module, found, None)
        name = subject_of(found, thing)
        if kinds and name not in kinds:
            continue
        reason = unknown(found) if name is None else unfit(name, thing)
        if name is None or reason is not None:
            left_out.append(LeftOut(found, reason or "", first_line(thing)))
            continue
        piece = check_part(name, thing, properties, found)
        if piece.properties or piece.problem or not piece.written:
            pieces.append(piece)
    if not pieces:
        why = "; ".join(f"{each.name}: {each.why}" for each in left_out)
        raise DataError(f"nothing is left to check ({why or 'nothing in it has what --only asks for'}).")
    return Report(str(path), pieces, left_out)


def subject_of(found: str, thing: Any) -> str | None:
    """Return the subject that a name in a learner's file belongs to, by its name and, where two fit, its arguments."""
    name = HOME.get(found)
    if not inspect.isclass(thing) or name is None:
        return name
    if name == "TransformerEncoder" and "vocab" in str(inspect.signature(thing)):
        return "TokenEncoder"
    forward = [*inspect.signature(getattr(thing, "forward", thing)).parameters]
    if name == "DecoderBlock" and (len(forward) < 3 or means(forward[2], "mask")):  # self, x, then no memory
        return "TransformerBlock"
    return name


def unknown(found: str) -> str:
    """Say that no subject has this name, and which comes nearest."""
    near = get_close_matches(found, [*HOME], n=1, cutoff=0.5)
    return "no known part has this name" + (f"; the nearest is {near[0]}" if near else "")


def unfit(name: str, thing: Any) -> str | None:
    """Return why an object with a known name is not the learner's own or not of the known kind; None if it is fine."""
    if not callable(thing):
        return "it is not a function or class"
    if str(getattr(thing, "__module__", "")).split(".")[0] in ("torch", "glassformer"):
        return f"it is imported from {thing.__module__}"
    signature = DOCUMENTED[name].signature
    needed = required(thing) if inspect.isclass(thing) else []
    if parts := [each for each in needed if each in MODULES and each not in signature]:
        return f"it is given parts ({', '.join(parts)}) and no sizes; the documented signature is {signature}"
    return None


MODULES = frozenset(
    [
        "layer",
        "self_attn",
        "src_attn",
        "cross_attn",
        "attn",
        "attention",
        "feed_forward",
        "encoder",
        "decoder",
        "src_embed",
        "tgt_embed",
        "generator",
        "encoder_layer",
        "decoder_layer",
        "block",
        "embedding",
    ]
)
"""Names of arguments under which code of the field is given modules that were made elsewhere."""
