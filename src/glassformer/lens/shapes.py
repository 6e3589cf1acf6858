"""Which shapes pass through each module of any model, what each module is for, and where the parameters are."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from glassformer.base.runtime import without_fused_layers
from glassformer.base.shapes import Tensor
from glassformer.base.typed import expect
from glassformer.nn.observe import Evaluation
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.train.records import aligned

COMPONENTS = {
    "norm": (r"norm", "keep numbers in range"),
    "positions": (r"position|sinus|rotary", "make order visible"),
    "embedding": (r"embed", "ids become vectors"),
    "feed-forward": (r"feed_?forward|ffn|mlp|\bff\b", "compute at each place"),
    "attention": (r"attention|attn", "fetch from other places"),
}
"""Each component: how the names of its modules and classes read, and its purpose. The innermost name decides."""
OUTPUT, OTHER = "output", "other"
PURPOSES = {
    "Linear": "a learned map",
    "Dropout": "drop numbers in training",
    "ReLU": "bend between two maps",
    "GELU": "bend between two maps",
    "Embedding": "a learned table",
}
HEAD = ("module", "in", "out", "parameters", "purpose")
BLOCK = r"(block|layer)$"
WHOLE = (
    (r"decoder_?(block|layer)$", "write: read itself and the source, compute"),
    (BLOCK, "fetch, then compute; keep what was there"),
    (r"decoder$", "write, reading itself and the source"),
    (r"encoder$", "understand the source"),
)
"""Modules that hold several components."""


class Row(NamedTuple):
    """One module that ran: its path ("" for the model), class, shapes, number of parameters, component and purpose."""

    name: str
    kind: str
    given: tuple[tuple[int, ...], ...]
    """The shapes of the tensors that came in."""
    gave: tuple[tuple[int, ...], ...]
    parameters: int
    """Of the module with all of its parts; a tensor that is used twice counts once."""
    component: str
    purpose: str
    sources: tuple[str, ...]
    """The modules whose output came in unchanged."""


class Shapes(NamedTuple):
    """What `shapes_of` found: a row for each module in the order in which they ran, and the parameters by component."""

    rows: list[Row]
    totals: dict[str, int]

    def __str__(self) -> str:
        """Return the rows as a table."""
        return aligned([HEAD, *self.cells("  ")], right=[HEAD.index("parameters")])

    __repr__ = __str__

    def down_to(self, levels: int) -> Shapes:
        """Leave out the rows that lie deeper than so many levels; level 0 is the model itself."""
        return self._replace(rows=[row for row in self.rows if level(row.name) <= levels])

    def _repr_html_(self) -> str:
        """Return the rows as a table for a notebook, with a heading for each column and each row."""
        head = "".join(f'<th scope="col">{each}</th>' for each in HEAD)
        lines = [[html.escape(text) for text in cells] for cells in self.cells("\u2003")]
        body = "".join(
            f'<tr><th scope="row" style="text-align: left; white-space: nowrap">{name}</th>'
            + "".join(f'<td style="text-align: left; white-space: nowrap">{text}</td>' for text in shapes)
            + f'<td style="text-align: left">{purpose}</td></tr>'
            for name, *shapes, purpose in lines
        )
        return f"<table><caption>Shapes</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def cells(self, inset: str) -> list[tuple[str, ...]]:
        """Return the texts of each row; parts that do nothing are left out."""
        found: list[tuple[str, ...]] = []
        for row in self.rows:
            if row.kind == "Identity":
                continue
            name = inset * level(row.name) + (short_name(row.name) or row.kind)
            came, went = ("  ".join(str([*shape]) for shape in shapes) for shapes in (row.given, row.gave))
            found.append((name, came, went, f"{row.parameters:,}", row.purpose))
        return found


def level(name: str) -> int:
    """Return how deep a module lies; "blocks.0" is one level.

    >>> level(""), level("0"), level("blocks.0"), level("blocks.0.attention")
    (0, 1, 1, 2)
    """
    pieces = name.split(".") if name else []
    return sum(not piece.isdigit() or place == 0 for place, piece in enumerate(pieces))


def short_name(name: str) -> str:
    """Return the last piece of a module's name, with the numbers behind it.

    >>> short_name("decoder.blocks.0"), short_name("decoder.blocks.0.norm")
    ('blocks.0', 'norm')
    """
    found = re.search(r"[^.]+(\.\d+)*$", name)
    return found[0] if found else ""


def shapes_of(module: nn.Module, *inputs: Any, **named: Any) -> Shapes:
    """Run a module once, in evaluation mode and without gradients, and note what passes through each of its parts.

    It may be any module of torch; it is left as it was. A part that runs several times has the shapes of its first run.
    A module on the device "meta" needs no memory.

    >>> print(shapes_of(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), torch.zeros(2, 8)))
    module      in       out      parameters  purpose
    Sequential  [2, 8]   [2, 8]          552
      0         [2, 8]   [2, 32]         288  a learned map
      1         [2, 32]  [2, 32]           0  bend between two maps
      2         [2, 32]  [2, 8]          264  a learned map
    """
    expect(module, nn.Module, "The argument of shapes_of()", "Give it the module, then its inputs.")
    began: dict[str, None] = {}
    passed: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    handles: list[Any] = []

    def watch(name: str, each: nn.Module) -> None:
        def enter(*_: Any) -> None:
            began.setdefault(name)

        def leave(_: nn.Module, given: tuple[Any, ...], more: dict[str, Any], gave: Any) -> None:
            passed.setdefault(name, ([*tensors((given, more))], [*tensors(gave)]))

        handles.append(each.register_forward_pre_hook(enter))
        handles.append(each.register_forward_hook(leave, with_kwargs=True))

    for name, each in module.named_modules():
        watch(name, each)
    try:
        with torch.no_grad(), Evaluation(module), without_fused_layers():
            module(*inputs, **named)
    finally:
        for handle in handles:
            handle.remove()
    return Shapes([row(module, name, passed) for name in began if name in passed], by_component(module))


def shapes_of_model(model: Transformer, rows: int = 2, length: int = 10) -> Shapes:
    """Return what passes through a model of the library that reads so many tokens; a source is two tokens longer."""
    device = next(model.parameters()).device

    def read(stack: Stack, places: int) -> Tensor:
        wide = stack.config.n_features
        shape = (rows, places) if wide is None else (rows, places, wide)
        return torch.zeros(shape, dtype=torch.long if wide is None else None, device=device)

    named = {} if model.encoder is None or model.decoder is None else {"source": read(model.encoder, length + 2)}
    return shapes_of(model, read(model.reader, length), **named)


def row(module: nn.Module, name: str, passed: Mapping[str, tuple[list[Tensor], list[Tensor]]]) -> Row:
    """Describe one module that ran. `passed` holds the tensors that went into and came out of each."""
    part = module.get_submodule(name)
    given, gave = passed[name]
    outer, component = name.rpartition(".")[0], component_of(module, name)
    first = not name or component_of(module, outer) != component
    whole = next((text for pattern, text in WHOLE if re.search(pattern, type(part).__name__.lower())), "")
    purpose = (COMPONENTS[component][1] if component in COMPONENTS else "") if first else ""
    if component == OUTPUT:
        purpose = "vectors become scores"
    sources = tuple(
        other
        for other, (_, made) in passed.items()
        if other != name and not name.startswith(f"{other}.") and any(x is y for x in given for y in made)
    )
    return Row(
        name,
        type(part).__name__,
        tuple(tuple(each.shape) for each in given),
        tuple(tuple(each.shape) for each in gave),
        sum(each.numel() for each in part.parameters()),
        component,
        purpose or whole or PURPOSES.get(type(part).__name__, ""),
        sources,
    )


def component_of(module: nn.Module, name: str) -> str:
    """Return which component a part belongs to: one of `COMPONENTS`, "output" for another linear map, or "other"."""
    pieces = name.split(".") if name else []
    for end in range(len(pieces), 0, -1):
        kind = type(module.get_submodule(".".join(pieces[:end]))).__name__.lower()
        if re.search(f"{BLOCK}|decoder|(?<!token)encoder", kind):
            continue
        for component, (pattern, _) in COMPONENTS.items():
            if re.search(pattern, f"{pieces[end - 1].lower()} {kind}"):
                return component
    inside = any(re.search(BLOCK, type(part).__name__.lower()) for part in above(module, pieces))
    if inside and isinstance(module.get_submodule(name), nn.Linear):
        return "feed-forward"  # as in torch's own blocks, whose two maps have no module around them
    named = pieces and re.search(r"output|head|logit|proj|vocab|generator", pieces[-1].lower())
    return OUTPUT if named and not inside else OTHER


def above(module: nn.Module, pieces: list[str]) -> list[nn.Module]:
    """Return the modules that contain a part."""
    return [module.get_submodule(".".join(pieces[:end])) for end in range(len(pieces))]


def by_component(module: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each component of any module, in the order of the model; nothing is run.

    >>> by_component(nn.TransformerEncoderLayer(8, 2, 32))
    {'attention': 288, 'feed-forward': 552, 'norm': 32}
    """
    totals: dict[str, int] = {}
    for name, parameter in module.named_parameters():
        component = component_of(module, name.rpartition(".")[0])
        totals[component] = totals.get(component, 0) + parameter.numel()
    return totals


def tensors(value: Any) -> Iterator[Tensor]:
    """Return the tensors within tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for each in value.values() for tensor in tensors(each))
    elif isinstance(value, tuple | list):
        yield from (tensor for each in value for tensor in tensors(each))
