"""A part of the model, which refuses a wrong argument by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, wraps
from itertools import takewhile
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import torch
from jaxtyping import TypeCheckError
from torch import nn

from glassformer.base.errors import ArgumentError, ConfigError, GlassformerError
from glassformer.base.registry import suggestion
from glassformer.base.runtime import autocast_dtype
from glassformer.base.shapes import Tensor
from glassformer.base.typed import came, expect, in_words, is_of, remedy

FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch and Python raise for what they cannot read."""
NUMBERS = {"Float": ("floats", "float"), "Int": ("whole numbers", "long"), "Bool": ("True or False", "bool")}
"""What the kinds of tensors hold, and the name of a dtype for it."""
EXAMPLES = {
    "attend": 'ATTEND["softmax"]["auto"]',
    "activation": "torch.relu",
    "norm": "lambda: nn.LayerNorm(d_model)",
    "members": "[one, other]",
    "LayerCache": "model.new_cache().layers[0]",
}
"""What to give for an argument, or of a class."""
KEEP = (
    "Give keep=, boolean [B, T] and True at real tokens; whether it reads later tokens is said in its config (causal)."
)
Function = TypeVar("Function", bound=Callable[..., Any])
Given = Mapping[str, Any]


class Part(nn.Module):
    """A module that refuses a wrong argument by its name: one that is not what its annotation says.

    What it is made with is looked at first. What it is called with is looked at after torch or Python failed on it, so
    a right call costs nothing; of a part within others, the outermost names its own argument.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)

    def __call__(self, *args: Any, **given: Any) -> Any:
        """As torch's own, which calls either of the same two."""
        try:
            return (self._compiled_call_impl or self._call_impl)(*args, **given)
        except FAILURES as error:
            explain(error, type(self).forward, (self, *args), given)
            raise


def explained(function: Function) -> Function:
    """Let a function, or another method of a part, name its wrong arguments as the call of a part does."""

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except FAILURES as error:
            explain(error, function, args, given)
            raise

    return cast(Function, call)


def checked(function: Function) -> Function:
    """Let a method look at its arguments first: as annotated, whole numbers at least 1, probabilities up to 1."""

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        for name, value, hint in arguments(function, args, given):
            wrong = misfit(name, value, hint, {})
            if wrong is None and int in kinds_of(hint) and "." not in name and value is not None and value < 1:
                wrong = f"be a whole number of at least 1; got {value}. Try {name}=8."
            if wrong is None and ("dropout" in name or name == "stochastic_depth") and not 0.0 <= (value or 0.0) <= 1.0:
                wrong = f"be from 0 to 1; got {value}. Try {name}=0.1."
            if wrong is not None:
                raise ConfigError(f"{name} of {type(args[0]).__name__} must {wrong}")
        return function(*args, **given)

    return cast(Function, call)


def explain(error: Exception, function: Callable[..., Any], args: tuple[Any, ...], given: Given) -> None:
    """Raise `ArgumentError` for a name that is no argument's, or the first argument that is not as it should be.

    It should be as annotated, and like the weights or the first tensor. An error of ours that says more is left as it
    is, and so is a wrong shape in our tests.
    """
    plain = not isinstance(error, GlassformerError | TypeCheckError) or isinstance(error, ArgumentError)
    if torch.compiler.is_compiling() or not plain:
        return
    owner, sizes, weights, found = function.__name__, {}, [], [*arguments(function, args, given)]
    if args and isinstance(part := args[0], nn.Module):
        owner, sizes = type(part).__name__, sizes_of(part)
        weights = [("its weights", each) for each in part.parameters() if each.is_floating_point()]
    known = [name for name in annotated(function)[0].parameters if name != "self"]
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None and not takes_any_name(function):
        way = KEEP if "mask" in unknown and "keep" in known else suggestion(unknown, known)
        raise ArgumentError(f"{owner} takes no argument {unknown!r}. {way}") from error
    beside = weights or [(name, value) for name, value, _ in found if isinstance(value, Tensor)][:1]
    for name, value, hint in found:
        wrong = misfit(name, value, hint, sizes)
        if wrong is None and isinstance(value, Tensor):
            wrong = apart(name, value, "device", beside) or apart(name, value, "dtype", beside)
        if wrong is not None:
            raise ArgumentError(f"{name} of {owner} must {wrong}") from error


@cache
def annotated(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature of a function, and what its annotations mean."""
    return inspect.signature(function), get_type_hints(function)


@cache
def takes_any_name(function: Callable[..., Any]) -> bool:
    """Whether a function has an argument such as `**given`."""
    return any(each.kind is each.VAR_KEYWORD for each in annotated(function)[0].parameters.values())


@cache
def fields_of(kind: type) -> dict[str, Any]:
    """The fields of a named tuple or dataclass and what their annotations mean; none of anything else."""
    return get_type_hints(kind) if hasattr(kind, "_fields") or is_dataclass(kind) else {}


def arguments(function: Callable[..., Any], args: tuple[Any, ...], given: Given) -> Iterator[tuple[str, Any, Any]]:
    """The arguments of a call, with their annotations and `fields_of` each; none if they do not bind."""
    signature, hints = annotated(function)
    try:
        bound = signature.bind(*args, **given).arguments
    except TypeError:  # Python's own names them
        return
    for name, value in bound.items():
        if name in hints:
            yield name, value, hints[name]
            yield from ((f"{name}.{each}", getattr(value, each), hint) for each, hint in fields_of(type(value)).items())


def kinds_of(hint: Any) -> list[Any]:
    """The classes that an annotation allows, without what is in their brackets."""
    return [get_origin(each) or each for each in (get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])]


def misfit(name: str, value: Any, hint: Any, sizes: dict[str, int]) -> str | None:
    """What an argument must be, what came and what to do; None if it is as annotated.

    `sizes` are those of letters in shapes, the same in all arguments; those of this one are added.
    """
    kinds = kinds_of(hint)
    if Any in kinds:
        return None
    shaped = [each for each in kinds if hasattr(each, "dim_str")]
    plain = tuple(each for each in kinds if each not in shaped)
    functions = [each for each in plain if "__call__" in vars(each) and not issubclass(each, nn.Module)]
    right = is_of(value, plain) and not (functions and isinstance(value, nn.Module))
    if right or any(fits(value, each, sizes) for each in shaped):
        return None
    words = [f"a tensor of {NUMBERS[each.dtype.__name__][0]} {shape_of(each, sizes)}" for each in shaped]
    words += ["a function" if each in functions else in_words(each) for each in plain]
    rule, got = f"be {' or '.join(words)}", came(value)
    if not shaped:
        known = [EXAMPLES[each] for each in (name, plain[0].__name__) if each in EXAMPLES]
        then = f"Try {name}={known[0]}." if known else remedy(name, value, plain)
    elif not isinstance(value, Tensor):
        then = "Use torch.tensor(...) for lists of numbers, torch.from_numpy(...) for arrays."
    else:
        got, kind = f"{value.dtype} of shape {list(value.shape)}", shaped[0]
        dtype = NUMBERS[kind.dtype.__name__][1]
        if fits(value.to("meta", getattr(torch, dtype)), kind, sizes):
            then = f"Give {name}.{dtype}()."
        elif value.ndim + 1 == len(kind.dim_str.split()) and kind.dim_str[0] == "B":
            then = f"For a batch of one row, give {name}[None]."
        else:
            then = (
                f"Give {'at least one position' if 0 in value.shape else 'that shape, or make the part for another'}."
            )
    return f"{rule}; got {got}. {then}"


def fits(value: Any, kind: Any, sizes: dict[str, int]) -> bool:
    """Whether a tensor has the dtype and shape that an annotation says, and a position; adds its sizes by letter."""
    if not isinstance(value, Tensor) or str(value.dtype).removeprefix("torch.") not in kind.dtypes:
        return False
    letters, more = kind.dim_str.split(), "*" in kind.dim_str
    if value.ndim < len(letters) - more or (value.ndim > len(letters) and not more):
        return False
    pairs = zip(reversed(letters), reversed(value.shape), strict=False)
    own = dict(takewhile(lambda pair: "*" not in pair[0], pairs))
    for letter, n in own.items():
        expected = sizes.get(letter.strip("#"), n)
        if (n != expected and not (n == 1 and "#" in letter)) or (n == 0 and letter in "TS"):
            return False
    sizes.update(own)
    return True


def shape_of(kind: Any, sizes: Mapping[str, int]) -> str:
    """A shape in letters, with numbers for those whose sizes are known."""
    letters = kind.dim_str.replace("#", "").split()
    names = ("..." if "*" in each else str(sizes.get(each, each)) for each in letters)
    return f"[{', '.join(names)}]"


def apart(name: str, value: Tensor, what: str, beside: Sequence[tuple[str, Tensor]]) -> str | None:
    """What the device or dtype of a tensor must be, as `misfit` says it; None if it is that of all those beside it."""
    (whose, first), own, got = beside[0], {getattr(each, what) for _, each in beside}, getattr(value, what)
    floats = first.is_floating_point() and value.is_floating_point() and "." not in name
    free = what == "dtype" and (not floats or autocast_dtype(value.device.type) is not None)
    if len(own) != 1 or got in own or free:
        return None
    one, other = (repr(str(each)) if what == "device" else str(each) for each in (*own, got))
    return (
        f"have the {what} of {whose}, {one}; got {other}. Give {name}.to({one}), or convert {whose} with .to({other})."
    )


def sizes_of(part: nn.Module) -> dict[str, int]:
    """The width D of the vectors that a part reads, where it is known: its `d_model`, or that of its own weight."""
    own = next(part.parameters(recurse=False), None)
    width = getattr(part, "d_model", None if own is None else own.shape[-1])
    return {} if width is None else {"D": width}


def same_width(owner: str, name: str, part: object, width: int | None) -> None:
    """Raise `ConfigError` unless what a user made for a part is a module, for vectors of this width."""
    expect(part, nn.Module, f"What {name} of {owner} makes", "Try nn.LayerNorm(d_model).")
    own = sizes_of(cast(nn.Module, part)).get("D", width)
    if width is not None and own != width:
        raise ConfigError(f"{name} of {owner} must be for vectors of {width} numbers; got one for {own}. Change one.")
