"""Checks one part of a learner's code, or all parts of a file, in this process."""

from __future__ import annotations

import ast
import faulthandler
import importlib.util
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from glassformer.base.errors import DataError
from glassformer.base.registry import suggestion
from glassformer.base.runtime import without_fused_layers
from glassformer.proof.check.attention import ALIBI, BLOCKWISE_ATTENTION, LINEAR_ATTENTION, Function, Windowed
from glassformer.proof.check.block import Block, Stack
from glassformer.proof.check.calling import is_size, means, required
from glassformer.proof.check.classifier import Classifying, States
from glassformer.proof.check.decoder_block import Decoder
from glassformer.proof.check.encoder_decoder import Translator
from glassformer.proof.check.file import DOCUMENTED, HOME, definitions, tree_of
from glassformer.proof.check.labels import ACCURACY, POOL, SHIFT_RIGHT, Loss, Shift
from glassformer.proof.check.language_model import Greedy, Network, Translate
from glassformer.proof.check.looking import HEAD_SCORE, Maps, Reversing, Silencing
from glassformer.proof.check.mask import CAUSAL_MASK, DOCUMENT_MASK, PADDING_MASK, Positions
from glassformer.proof.check.measures import Gap, Influence
from glassformer.proof.check.multi_head import SELF_ATTENTION, MultiHead
from glassformer.proof.check.positions import Encoding, Rotary, Table
from glassformer.proof.check.property import (
    CrashError,
    LeftOut,
    NotWrittenError,
    Outcome,
    Piece,
    Report,
    SignatureError,
    Subject,
    crash_of,
    error_text,
    examine,
)
from glassformer.proof.check.recomputed import Recomputed
from glassformer.proof.check.small_parts import MERGE_HEADS, SPLIT_HEADS, Embedding, FeedForward, Norm, Softmax
from glassformer.proof.check.tasks import EXACT, INTERLEAVE, RETURNS_TO_GO, Batch, Example
from glassformer.proof.check.token_encoder import Coder, Predicted, Started
from glassformer.proof.check.training import HalfStep, Scoring, Stepping

ENDED = "its code ends the program (SystemExit) while it is"


@without_fused_layers()
def check_part(name: str, thing: object, only: Collection[str] = (), found_as: str = "") -> Piece:
    """Check one function or class against the properties of the subject `name`, or those named in `only`.

    Never raises for what the learner's code does: a problem that prevents all tests is part of the result.
    """
    place = found_as or getattr(thing, "__name__", name)
    problem, written, outcomes = None, not stub(thing), list[Outcome]()
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
        problem = f"What it returns cannot be compared: {error_text(error)}."
    file = file_of(thing)
    if fails := [each for each in outcomes if each.state == "fails"]:
        with suppress(Exception), Calls(file, place) as calls:  # again, as recording calls is slow
            examine(SUBJECTS[name], thing, only)
        for each in fails:
            each.line = calls.line(each.property, thing)
    return Piece(name, place, first_line(thing), problem, written, outcomes, Path(file).name if file else "")


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
    module = importlib.util.module_from_spec(spec)
    sys.modules["learner"] = module  # dataclasses and others look up their module there
    try:  # not by the loader: its bytecode of the second before would pass for a text of the same length
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except SystemExit:
        raise DataError(
            f"{ENDED} imported. Put code that is only for running the file under `if __name__ == '__main__':`."
        ) from None
    except Exception as error:
        raise DataError(
            f"importing it raised {error_text(error)}. It must be importable without arguments or input."
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
    if "*" in names:
        names = [*dict.fromkeys([*names, *(name for name in vars(module) if name in HOME)])]
    written = definitions(tree_of(path, path.read_bytes()).body)
    pieces: list[Piece] = []
    left_out: list[LeftOut] = []
    foreign: list[LeftOut] = []
    parts = [
        (found, subject_of(found, thing), thing) for found in names if (thing := vars(module).get(found)) is not None
    ]
    known, seen = {id(thing) for _, name, thing in parts if name}, set[tuple[int, str | None]]()
    for found, name, thing in parts:
        home = home_of(thing)
        again = (id(thing), name) in seen or (name is None and id(thing) in known)
        if again or (kinds and name not in kinds) or (name is None and home != "learner" and found not in written):
            continue
        seen.add((id(thing), name))
        if home and home.split(".")[0] in {"torch", "glassformer", *sys.stdlib_module_names}:
            foreign.append(LeftOut(found, f"it is imported from {home}"))
        elif reason := unknown(found) if name is None else unfit(name, thing):
            left_out.append(LeftOut(found, reason, first_line(thing) if home == "learner" else None))
        elif name:
            piece = check_part(name, thing, properties, found)
            if piece.properties or piece.problem or not piece.written:
                pieces.append(piece)
    if not pieces:
        why = "; ".join(f"{each.name}: {each.why}" for each in [*left_out, *foreign])
        raise DataError(f"nothing is left to check ({why or 'nothing in it has what --only asks for'}).")
    return Report(str(path), pieces, left_out)


def home_of(thing: object) -> str | None:
    """Return the module in which a function or class, or the function of a `partial`, is written; else None."""
    thing = thing.func if isinstance(thing, partial) else thing
    thing = inspect.unwrap(thing) if callable(thing) else None
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return None
    return getattr(thing, "__module__", None) or "torch"  # whose functions in C++ may not say it


def subject_of(found: str, thing: Any) -> str | None:
    """Return the subject that a name in a learner's file belongs to: by the name, or by the one that it had before.

    Where two fit, its arguments decide.
    """
    name = HOME.get(found) or HOME.get(getattr(thing, "__qualname__", ""))
    if not inspect.isclass(thing) or name is None:
        return name
    if name == "TransformerEncoder" and "vocab" in str(inspect.signature(thing)):
        return "TokenEncoder"
    if name == "SelfAttention" and any(means(each, "n_heads") for each in inspect.signature(thing).parameters):
        return "MultiHeadAttention"
    forward = [*inspect.signature(getattr(thing, "forward", thing)).parameters]
    if name == "DecoderBlock" and (len(forward) < 3 or means(forward[2], "mask")):  # self, x, then no memory
        return "TransformerBlock"
    return name


def unknown(found: str) -> str:
    """Say that no subject has this name, and which comes nearest."""
    near = get_close_matches(found, [*HOME], n=1, cutoff=0.5)
    return "no known part has this name" + (f"; the nearest is {near[0]}" if near else "")


def unfit(name: str, thing: Any) -> str | None:
    """Return why an object with a known name is not of the known kind; None if it is fine."""
    if not callable(thing):
        return "it is not a function or class"
    signature = DOCUMENTED[name].signature
    words = re.findall(r"\w+", signature)
    needed = required(thing) if inspect.isclass(thing) else []
    if parts := [each for each in needed if GIVEN_PART.search(each) and not is_size(each) and each not in words]:
        return f"it is given parts ({', '.join(parts)}) and no sizes; the documented signature is {signature}"
    return None


GIVEN_PART = re.compile(
    r"(attn|attention|feed_?forward|ffn|mlp|encoder|decoder|layer|block|embed|embedding|generator)$"
)
"""How names of arguments end under which code of the field is given modules that were made elsewhere."""


# --- the line that a failing property is about, from the torch functions that the learner's code calls

OPERATIONS = {
    "softmax": ("softmax", "exp", "sigmoid"),
    "scale": ("div", "truediv", "sqrt", "mul", "rmul", "scaled_dot_product_attention", "matmul", "einsum"),
    "parts": ("matmul", "einsum"),
    "weights": ("matmul", "einsum"),
    "lengths": ("view", "reshape"),
    "split": ("view", "reshape", "unflatten"),
    "merge": ("-view", "-reshape", "-flatten"),
    "mask": ("masked_fill", "masked_fill_", "where", "add", "mul", "softmax"),
    "fill": ("masked_fill", "masked_fill_", "where", "add", "mul"),
    "padding": ("masked_fill", "masked_fill_", "where", "add"),
    "empty-row": ("softmax",),
    "empty-gradient": ("softmax",),
    "float16": ("masked_fill", "masked_fill_", "where", "add", "mul"),
    "dropout": ("dropout",),
    "repeatable": ("dropout", "rand", "randn", "bernoulli"),
    "norm": ("layer_norm", "rms_norm"),
    "own-norm": ("-layer_norm", "-rms_norm"),
    "activation": ("relu", "relu_", "gelu", "silu", "linear"),
    "residual": ("add", "radd", "iadd"),
    "output": ("-linear",),
    "along": ("getitem", "add"),
    "entries": ("tril", "triu", "lt", "le", "ge", "gt", "eq"),
    "layout": ("sin", "cos"),
    "exponent": ("exp", "pow", "rpow"),
    "base": ("exp", "pow", "rpow"),
    "sign": ("exp", "pow", "rpow", "mul"),
    "start": ("arange",),
    "variance": ("std", "var", "sqrt", "rsqrt"),
    "mean": ("mean", "sum"),
    "factor": ("mul", "rmul", "div", "truediv", "embedding"),
}
"""From a property to the torch functions that decide it, the likeliest first; with a minus, the last call counts."""


class Calls(TorchFunctionMode):
    """While the context lasts, records which torch function each line of a part of the learner's file calls.

    What another part calls for it counts as the line that calls that part, which is checked for itself.
    """

    def __init__(self, file: str | None, part: str) -> None:
        super().__init__()
        self.file, self.others = file, HOME.keys() - {part}
        self.found: dict[tuple[str, int], None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the learner's line, and call the function."""
        frame, line = inspect.currentframe(), 0
        for _ in range(64):
            if frame is None:
                break
            if frame.f_code.co_filename == self.file:
                line = frame.f_lineno
                if frame.f_code.co_qualname.partition(".")[0] not in self.others:
                    break
            frame = frame.f_back
        idle = (kwargs or {}).get("training", args[2] if len(args) > 2 else True) is False  # dropout in evaluation
        if line and not idle:
            self.found.setdefault((getattr(func, "__name__", "").strip("_"), line))
        return func(*args, **(kwargs or {}))

    def line(self, name: str, thing: object) -> int | None:
        """Return the line for a property: that of a call which decides it, else where the learner's code begins."""
        for operation in OPERATIONS.get(name, ()):
            lines = [line for called, line in self.found if called == operation.strip("-_")]
            if lines:
                return lines[-1] if operation.startswith("-") else lines[0]
        return first_line(thing)


def file_of(thing: object) -> str | None:
    """Return the file in which a function, class or its methods are written. None for other things."""
    code = code_of(thing)
    return None if code is None else code.co_filename


def code_of(thing: object) -> Any:
    """Return the code of a function, or of a class's forward, constructor or any other method."""
    if inspect.isclass(thing):
        own = vars(thing)
        methods = [own.get(name) for name in ("forward", "__init__")]
        thing = next((each for each in [*methods, *own.values()] if inspect.isfunction(each) and in_a_file(each)), None)
    return getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None


def in_a_file(function: FunctionType) -> bool:
    """Whether a function was written, and not made of a text, as the constructor of a dataclass."""
    return inspect.unwrap(function).__code__.co_filename != "<string>"


def first_line(thing: object) -> int | None:
    """Return the line of a function's definition, or of a class's forward."""
    code = code_of(thing)
    if code is not None:
        return code.co_firstlineno
    try:
        return inspect.getsourcelines(thing)[1] if inspect.isclass(thing) else None
    except (OSError, TypeError):
        return None


# --- every kind of code that can be checked, by the name used in reports

KINDS: dict[str, type | Subject] = {
    "softmax": Softmax,
    "split_heads": SPLIT_HEADS,
    "merge_heads": MERGE_HEADS,
    "FeedForward": FeedForward,
    "LayerNorm": Norm,
    "TokenEmbedding": Embedding,
    "attention": Function,
    "SelfAttention": SELF_ATTENTION,
    "MultiHeadAttention": MultiHead,
    "positional_encoding": Table,
    "PositionalEncoding": Encoding,
    "apply_rotary": Rotary,
    "TransformerBlock": Block,
    "DecoderBlock": Decoder,
    "TransformerEncoder": Stack,
    "TokenEncoder": Coder,
    "Transformer": Translator,
    "LanguageModel": Network,
    "causal_mask": CAUSAL_MASK,
    "padding_mask": PADDING_MASK,
    "document_mask": DOCUMENT_MASK,
    "position_ids": Positions,
    "shift_labels": Shift,
    "shift_right": SHIFT_RIGHT,
    "cross_entropy": Loss,
    "accuracy": ACCURACY,
    "mean_pool": POOL,
    "exact_match": EXACT,
    "make_example": Example,
    "pad_batch": Batch,
    "train_step": Stepping,
    "evaluate": Scoring,
    "init_weights": Started,
    "predict_parameters": Predicted,
    "order_gap": Gap,
    "influence": Influence,
    "reversing_head": Reversing,
    "attention_maps": Maps,
    "head_score": HEAD_SCORE,
    "alibi_bias": ALIBI,
    "window_mask": Windowed,
    "linear_attention": LINEAR_ATTENTION,
    "blockwise_attention": BLOCKWISE_ATTENTION,
    "returns_to_go": RETURNS_TO_GO,
    "interleave": INTERLEAVE,
    "recomputed": Recomputed,
    "train_step_bf16": HalfStep,
    "Classifier": Classifying,
    "StateEncoder": States,
    "ablated": Silencing,
    "greedy_decode": Greedy,
    "greedy_translate": Translate,
}
"""To add a kind, add a line here and one in file.py; to add a property, give its class a law."""
SUBJECTS = {name: each if isinstance(each, Subject) else Subject.of(each) for name, each in KINDS.items()}


# --- the process that runs a learner's file


def main(words: Sequence[str]) -> None:
    """Check a file. The words are: file, output folder, seconds, names in the file, names asked for."""
    path, out, limit, names, only = words
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.path.append(str(Path(path).parent))  # for imports of modules in the same folder
    with (Path(out) / "stack.txt").open("w") as stack:
        faulthandler.dump_traceback_later(float(limit), exit=True, file=stack)
        found: dict[str, Any]
        try:
            found = check_file(Path(path), names.split(","), list(filter(None, only.split(",")))).as_json()
        except DataError as error:
            found = {"problem": str(error)}
        faulthandler.cancel_dump_traceback_later()
    (Path(out) / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
