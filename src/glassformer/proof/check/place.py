"""Finds the line of a learner's code that a failing property is about, from the torch functions that the code calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

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
    """While the context lasts, records which torch function each line of the learner's files calls."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files = files
        self.found: dict[tuple[str, int], None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the learner's line, and call the function."""
        frame: FrameType | None = inspect.currentframe()
        for _ in range(16):
            if frame is None or frame.f_code.co_filename in self.files:
                break
            frame = frame.f_back
        idle = (kwargs or {}).get("training", args[2] if len(args) > 2 else True) is False  # dropout in evaluation
        if frame is not None and frame.f_code.co_filename in self.files and not idle:
            self.found.setdefault((getattr(func, "__name__", "").strip("_"), frame.f_lineno))
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
        thing = next((each for each in [*methods, *own.values()] if inspect.isfunction(each)), None)
    return getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None


def first_line(thing: object) -> int | None:
    """Return the line of a function's definition, or of a class's forward."""
    code = code_of(thing)
    if code is not None:
        return code.co_firstlineno
    try:
        return inspect.getsourcelines(thing)[1] if inspect.isclass(thing) else None
    except (OSError, TypeError):
        return None
