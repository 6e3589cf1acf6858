"""Calls a learner's code, records what its linear maps receive and return, and recognises what it computed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Property,
    SignatureError,
    Subject,
    ask,
    law,
)

SPELLINGS = {
    "d_model": "d_model dim embed_dim emb_dim embedding_dim n_embd embed_size d_embed d_embedding model_dim width size "
    "features d_in normalized_shape norm_shape hidden_size hid_dim num_hiddens ffn_num_outputs emb_size ndim d",
    "d_out": "d_out",
    "n_heads": "n_heads num_heads heads h n_head nhead nheads head_count num_attention_heads",
    "d_ff": "d_ff dff ff_dim dim_feedforward hidden_dim d_hidden ffn_dim mlp_dim inner_dim n_inner d_inner "
    "intermediate_size ff_size feed_forward_dim d_feedforward pf_dim ffn_num_hiddens",
    "n_layers": "n_layers num_layers layers N n_layer depth num_blocks n_blocks num_encoder_layers n_encoder_layers",
    "decoder_layers": "n_decoder_layers num_decoder_layers",
    "max_len": "max_len max_length block_size context_length max_seq_len max_seq_length seq_len seq_length n_positions "
    "num_positions max_positions max_position_embeddings",
    "vocab_size": "vocab_size n_vocab vocabulary_size vocab num_embeddings ntoken ntokens n_tokens num_tokens d_vocab "
    "num_vocab",
    "source_vocab": "source_vocab src_vocab src_vocab_size source_vocab_size n_source vocab_src",
    "target_vocab": "target_vocab tgt_vocab tgt_vocab_size target_vocab_size trg_vocab n_target vocab_tgt "
    "trg_vocab_size",
    "dropout": "dropout p drop dropout_p drop_rate p_drop dropout_rate dropout_prob prob resid_pdrop attn_pdrop "
    "embd_pdrop hidden_dropout hidden_dropout_prob attention_dropout attention_probs_dropout_prob attn_dropout "
    "resid_dropout",
    "bias": "bias qkv_bias use_bias attn_bias",
    "expansion": "expansion forward_expansion mlp_ratio ff_mult",
    "eps": "eps epsilon variance_epsilon norm_eps",
    "length": "length n seq_len seq_length max_len max_length n_positions num_positions T positions",
    "mask": "mask attn_mask attention_mask src_mask source_mask keep allowed may_read readable",
    "target_mask": "target_mask tgt_mask trg_mask self_mask self_attn_mask self_attention_mask causal_mask "
    "look_ahead_mask decoder_mask x_mask",
    "memory_mask": "memory_mask src_mask source_mask memory_keep source_keep src_keep cross_mask cross_attn_mask "
    "encoder_mask enc_mask padding_mask src_padding_mask source_padding_mask memory_key_padding_mask "
    "encoder_attention_mask",
    "model": "model network net module m",
    "inputs": "inputs input x ids input_ids tokens source src xb",
    "targets": "targets target y labels label yb tgt",
    "optimizer": "optimizer optimiser opt optim",
    "clip": "clip max_norm clip_norm grad_clip max_grad_norm clip_value",
    "batches": "batches loader dataloader data_loader data dataset",
    "n_outputs": "n_outputs num_classes n_classes output_dim out_dim n_out n_labels num_labels",
}  # fmt: skip
"""From an argument's role to the names under which code of the field has it."""
CONFIGS = ("config", "cfg", "args", "conf", "hparams", "params")
"""Names of a single argument that holds all sizes as attributes, as in nanoGPT."""
PLACES = ("layer_id", "layer_idx", "layer_index")
"""Names of an argument beside it that says which block of a stack is made."""
NO_MASK = (
    "cache", "past", "dropout", "positions", "position_ids", "start_pos", "freqs_cis", "freqs", "cos", "sin",
    "need_weights", "key_padding_mask", "is_causal", "scale", "bias", "valid_lens",
)  # fmt: skip
USUAL: dict[str, Any] = {"dropout": 0.0, "bias": True, "device": "cpu", "expansion": 4, "max_len": 64}
"""What an argument that must be given gets, where it is none of the roles of a call."""


def required(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments without a default."""
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]


def accepts(function: Callable[..., Any], *names: str) -> bool:
    """Whether `function` can be called with this many positional arguments."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        return False
    return True


def refuse_unlike(function: Callable[..., Any], *names: str) -> None:
    """Raise `SignatureError` for a function that cannot be called with this many positional arguments."""
    if not accepts(function, *names):
        raise SignatureError(str(inspect.signature(function)))


def in_order(function: Callable[..., Any], *inputs: Any) -> Any:
    """Call a function with inputs in the documented order. Errors: `SignatureError`, `CrashError`."""
    refuse_unlike(function, *["x"] * len(inputs))
    return ask(function, *inputs)


def means(name: str, role: str) -> bool:
    """Whether an argument of this name usually has this role."""
    return name == role or name in SPELLINGS.get(role, "").split()


class Settings(dict[str, Any]):
    """Sizes by name, as attributes and as items."""

    def __getattr__(self, name: str) -> Any:
        """Return a setting. Errors: `AttributeError`, as any object."""
        if name in self:
            return self[name]
        raise AttributeError(f"the settings that glassformer check gives have no {name}")


def is_size(name: str) -> bool:
    """Whether an argument of this name is usually a number."""
    return any(means(name, role) for role in ("d_model", "n_heads", "d_ff", "n_layers", "max_len", "vocab_size"))


def arguments(
    function: Callable[..., Any], given: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments for a call.

    `given` maps roles in the documented order to values; `extra` are roles that the function may have too. If the names
    of all required arguments are known, every role is passed by name, else those of `given` in order. What `USUAL` has
    is given by name where it must be given. A single argument called `config` gets all sizes as attributes, beside the
    defaults of its own class. Errors: `SignatureError`.
    """
    values = {**given, **(extra or {})}
    if "d_model" in values:
        values["d_out"] = values["d_model"]
    names = [*inspect.signature(function).parameters]
    needed = required(function)
    config = next((name for name in needed if name in CONFIGS), None)
    if config is not None and all(name == config or name in PLACES for name in needed):
        sizes = {**USUAL, **values}
        named = {name: value for role, value in sizes.items() for name in (role, *SPELLINGS.get(role, "").split())}
        return (), {name: Settings(defaults_of(function) | named) if name == config else 0 for name in needed}
    found: dict[str, Any] = {}
    taken: set[str] = set()
    for name in names:
        role = next((each for each in values if each not in taken and means(name, each)), None)
        if role is not None:
            taken.add(role)
            found[name] = values[role]
    usual = {name: value for name in needed if name not in found for role, value in USUAL.items() if means(name, role)}
    if {*needed} <= {*found, *usual} and {*given} <= taken:
        return (), found | usual
    in_order = dict(zip((name for name in names if name not in usual), given.values(), strict=False))
    if usual and {*needed} <= {*in_order, *usual}:
        return (), in_order | usual
    if not usual and accepts(function, *given):
        return tuple(given.values()), {}
    raise SignatureError(str(inspect.signature(function)))


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of the settings in a function's file: a class, as nanoGPT's `GPTConfig`, or a dictionary."""
    written = inspect.unwrap(getattr(function, "__init__", function))
    found: dict[str, Any] = {}
    for name, each in getattr(written, "__globals__", {}).items():
        if re.search(r"config|cfg|args|hparams", name, re.IGNORECASE):
            own = vars(each) if inspect.isclass(each) else each if isinstance(each, dict) else {}
            found |= {key: value for key, value in own.items() if not str(key).startswith("_")}
    return found


def called(function: Callable[..., Any], given: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> Any:
    """Call a function with arguments by role. Errors: `SignatureError`, `CrashError`."""
    inputs, named = arguments(function, given, extra)
    return ask(lambda: function(*inputs, **named))


def built(kind: Any, given: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> nn.Module:
    """Return an instance of a learner's class, as its constructor leaves it. Errors: as `called`."""
    module = called(kind, given, extra)
    if not isinstance(module, nn.Module):
        raise SignatureError("a class that is not an nn.Module")
    if any(isinstance(each, nn.UninitializedParameter) for each in module.parameters()):
        raise SignatureError("layers that learn their widths from a first call (nn.LazyLinear); give nn.Linear both")
    with_masks_left_out(module)
    return module


def with_masks_left_out(module: nn.Module) -> None:
    """Let a module be called without the masks that its forward demands, which are None then."""
    if not inspect.ismethod(module.forward):
        return
    roles = ("mask", "target_mask", "memory_mask")
    masks = [name for name in required(module.forward)[1:] if any(means(name, role) for role in roles)]
    if masks:
        module.forward = partial(module.forward, **dict.fromkeys(masks))


def built_either(
    kind: Any, given: Mapping[str, Any], more: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> nn.Module:
    """Return an instance of a class that may take `more` by name, or must be given it after the others."""
    try:
        return built(kind, given, {**more, **(extra or {})})
    except SignatureError:
        return built(kind, {**given, **more}, extra)


def constructed(kind: Any, given: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> nn.Module:
    """Return an instance in float64 and evaluation mode, with random parameters. Errors: as `called`."""
    return scramble(built(kind, given, extra))


def scramble(module: nn.Module) -> nn.Module:
    """Return the module in float64 and evaluation mode with random parameters, as zeros and ones hide mistakes."""
    draw = torch.Generator().manual_seed(2)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype) * 0.4)
    return module


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of a module's parameters by name."""
    return {name: each.detach().clone() for name, each in module.named_parameters()}


def mask_argument(function: Callable[..., Any], inputs: int) -> str | None:
    """Return the name of the mask among the arguments after the first `inputs`, if there is one."""
    after = [*inspect.signature(function).parameters.values()][inputs:]
    named = [each.name for each in after if means(each.name, "mask")]
    if named:
        return named[0]
    free = [each.name for each in after if each.kind is each.POSITIONAL_OR_KEYWORD]
    return free[0] if free and free[0] not in NO_MASK else None


def forward_of(module: nn.Module, *inputs: str) -> Callable[..., Any]:
    """Return the module's forward. Errors: `SignatureError` if it cannot take these inputs by position."""
    if not accepts(module.forward, *inputs):
        raise SignatureError(f"forward{inspect.signature(module.forward)}")
    return module.forward


# --- what linear maps and norms receive and return


class Heard(NamedTuple):
    """One call of a submodule of the learner's module."""

    name: str
    module: nn.Module
    given: Tensor
    gave: Tensor

    @property
    def widths(self) -> tuple[int, int]:
        """The widths of input and output."""
        return self.given.shape[-1], self.gave.shape[-1]


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm, judging by the name of its class."""
    return "norm" in type(module).__name__.lower() and not any(
        "norm" in type(m).__name__.lower() for m in module.children()
    )


def is_heard(module: nn.Module) -> bool:
    """Whether a module is a linear map, a norm or torch's own attention."""
    return isinstance(module, nn.Linear | nn.MultiheadAttention) or is_norm(module)


@contextmanager
def listening(module: nn.Module, heeds: Callable[[nn.Module], bool] = is_heard) -> Generator[list[Heard]]:
    """Record, while the context lasts, every call of a part that `heeds` names, in order."""
    heard: list[Heard] = []

    def hook(name: str) -> Any:
        def note(part: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
            given = next((x for x in (*inputs, *named.values()) if isinstance(x, Tensor)), None)
            gave = answer[0] if isinstance(answer, tuple) else answer
            if given is not None and isinstance(gave, Tensor):
                heard.append(Heard(name, part, given.clone(), gave.clone()))  # later code may write in place

        return note

    with ExitStack() as hooks:
        for name, part in module.named_modules():
            if heeds(part):
                hooks.enter_context(part.register_forward_hook(hook(name), with_kwargs=True))
        yield heard


FILLER = re.compile(r"proj(ection)?s?|linear|lin|layer|dense|weights?|heads?|map|net|attn|fc|to_|_|\d|^w|w$")
ROLES = {
    "q": "q", "query": "q", "queries": "q",
    "k": "k", "key": "k", "keys": "k",
    "v": "v", "value": "v", "values": "v", "val": "v",
    "o": "o", "out": "o", "output": "o",
}  # fmt: skip


def role_of(name: str) -> str | None:
    """Return the role of a map by its name: `W_q`, `query`, `q_proj` and `to_q` are q.

    None if the name says nothing.
    """
    return ROLES.get(FILLER.sub("", name.rpartition(".")[2].lower()))


class Maps(NamedTuple):
    """The recorded linear maps of one attention."""

    projections: tuple[Heard, ...]
    """The maps for q, k and v, or one map for all three."""
    output: Heard | None
    named: bool
    """Whether q, k and v are known from names, and not just guessed from the order of the calls."""


def maps_of(heard: list[Heard], width: int) -> Maps | None:
    """Identify the calls. None if they are not those of one attention with q, k, v and output."""
    linear = [each for each in heard if isinstance(each.module, nn.Linear) and each.widths[0] == width]
    fused = [each for each in linear if each.widths[1] == 3 * width]
    square = [each for each in linear if each.widths[1] == width]
    if len(fused) == 1 and len(square) <= 1 and len(linear) == 1 + len(square):
        return Maps((fused[0],), square[0] if square else None, False)
    if fused or len(linear) != len(square) or len(square) not in (3, 4):
        return None
    by_role = {role_of(each.name): each for each in square}
    if all(role in by_role for role in "qkv"):
        return Maps(tuple(by_role[role] for role in "qkv"), by_role.get("o", rest(square, by_role)), True)
    return Maps(tuple(square[:3]), square[3] if len(square) == 4 else None, False)


def rest(square: list[Heard], by_role: dict[str | None, Heard]) -> Heard | None:
    """Return the first map that is not q, k or v, if there is one."""
    others = [each for each in square if all(each is not by_role[role] for role in "qkv")]
    return others[0] if others else None


# --- which computation the learner wrote: the known reading that gives the learner's numbers

TOLERANCE = 1e-6
"""Above float64 rounding from another order of operations, a fill such as 1e-9, and a softmax that is computed in
float32 as many do; far below any mistake."""
MOST_MISTAKES = 2
"""The most mistakes that are looked for at once."""


class Choice(NamedTuple):
    """One option for an aspect. `words` describe it in the evidence; without a mistake it is right."""

    value: Any
    words: str = ""
    mistake: Mistake | None = None


@dataclass(frozen=True)
class Reading:
    """One choice for each aspect, which together reproduce the output."""

    choices: dict[str, Choice]
    distance: float
    """Distance of the output from the nearest right reading."""
    residue: float
    """Distance of the output from this reading."""

    def value(self, aspect: str) -> Any:
        """Return the choice found for the aspect."""
        return self.choices[aspect].value

    def fault(self, aspect: str) -> Fault | None:
        """Return the mistake in one aspect, if there is one."""
        _, words, mistake = self.choices[aspect]
        if mistake is None:
            return None
        match = f"to {self.residue:.0e}" if self.residue else "to the last bit"
        off = (
            f"they are {self.distance:.2g} off"
            if self.distance < float("inf")
            else "there would be other numbers, or more or fewer of them"
        )
        evidence = f"With {words}, your numbers are reproduced {match}; as documented, {off}."
        return Fault(mistake, evidence)


def read(
    seen: Tensor,
    aspects: Mapping[str, Sequence[Choice]],
    compute: Callable[..., Tensor],
    tolerance: float = TOLERANCE,
) -> Reading | None:
    """Return the reading with the fewest mistakes that reproduces `seen`, or None if no known one does.

    `compute` takes the value of each aspect by name. Combinations that torch cannot compute (shapes) are skipped.
    """
    combinations = sorted(product(*aspects.values()), key=mistakes)
    nearest = float("inf")
    for choices in combinations:
        wrong = mistakes(choices)
        if wrong > MOST_MISTAKES:
            break
        try:
            gap = distance(seen, compute(**{name: each.value for name, each in zip(aspects, choices, strict=True)}))
        except (RuntimeError, IndexError):
            continue
        if wrong == 0:
            nearest = min(nearest, gap)
        if gap <= tolerance:
            return Reading(dict(zip(aspects, choices, strict=True)), nearest, gap)
    return None


def mistakes(choices: Sequence[Choice]) -> int:
    """Return how many choices are wrong."""
    return sum(each.mistake is not None for each in choices)


def distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference. Infinite for unequal shapes or a NaN."""
    if one.shape != other.shape:
        return float("inf")
    gap = (one.double() - other.double()).abs().max().item() if one.numel() else 0.0
    return gap if gap == gap else float("inf")


Form = TypeVar("Form")
Answer = TypeVar("Answer")


def in_some_form(forms: Sequence[Form], run: Callable[[Form], Answer]) -> Answer:
    """Return what `run` gives for the first form of a mask that the learner's code takes.

    Errors: `CrashError` if it takes none: the first that it raised, or one that says what came.
    """
    crash: CrashError | None = None
    for each in forms:
        try:
            return run(each)
        except CrashError as error:
            crash = crash or error
        except RuntimeError:  # an output that has another shape
            continue
    raise crash or CrashError("Every form of a mask gives an output of another shape.")


def aspect(way: str, law: str, name: str = "", needs: tuple[str, ...] = ("equation",)) -> Property:
    """Return the property that a learner's `reading` is right in the aspect `way`; it is called so unless named."""

    def probe(learner: Any) -> Fault | None:
        if learner.reading is None:
            raise NotTestedError("the computation was not recognised; see `equation`")
        return learner.reading.fault(way)

    return Property(name or way, law, probe, needs)


# --- what many kinds of code have in common


def drawn(*shape: int) -> Tensor:
    """Return random numbers that are the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)


FUTURE = Mistake(
    "queries read the future",
    "A later token changes an earlier logit, so in training the model can simply read the answer.",
    "Where does the causal mask enter, and is it given to every layer?",
)
RANDOM = Mistake(
    "dropout is active in evaluation",
    "Two calls with the same input give different output: something random runs although nothing is trained.",
    "Who tells your dropout whether the model is training?",
)


def repeated(run: Callable[[Any], Tensor]) -> Property:
    """Return the property that five runs of a learner's module give the same bits."""

    def probe(learner: Any) -> Fault | None:
        first, *others = (run(learner) for _ in range(5))
        gap = max(distance(each, first) for each in others)
        return Fault(RANDOM, f"Five calls with the same input differ by up to {gap:.2g}.") if gap > 0 else None

    return Property("repeatable", "In evaluation mode the same input gives the same output.", probe, ("shape",))


UNKNOWN = Mistake(
    "the result is not the documented one",
    "The numbers differ, and no mistake known here explains them.",
    "Take two tokens and compute the result by hand.",
)


def itself(way: Tensor) -> Tensor:
    """Return the result that a way gives, where a choice holds it."""
    return way


def shaped(seen: object, wanted: tuple[int, ...], mistake: Mistake, why: str = "") -> Fault | None:
    """Compare the shape of a result with the documented one."""
    return None if form(seen) == wanted else Fault(mistake, f"It is {form(seen)} and must be {wanted}{why}.")


def form(value: object) -> tuple[int, ...] | str:
    """Return the shape of a tensor; for anything else, the name of its type."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


class Computed:
    """What a learner's code gave, and its reading: which of the known ways gives the same numbers.

    If `loose`, the result may have another shape of as many numbers.
    """

    def __init__(
        self,
        seen: Any,
        aspects: Mapping[str, Sequence[Choice]],
        compute: Callable[..., Tensor],
        tolerance: float = 1e-6,
        loose: bool = False,
    ) -> None:
        self.wanted = compute(**{name: choices[0].value for name, choices in aspects.items()})
        seen = torch.tensor(float(seen), dtype=torch.float64) if isinstance(seen, float | int) else seen
        fits = loose and isinstance(seen, Tensor) and seen.numel() == self.wanted.numel()
        self.seen = seen.reshape(self.wanted.shape) if fits else seen
        self.reading = read(self.seen, aspects, compute, tolerance) if isinstance(seen, Tensor) else None

    @law("The result is the documented one.")
    def equation(self) -> Fault | None:
        if self.reading is not None:
            return None
        if not isinstance(self.seen, Tensor):
            return Fault(UNKNOWN, f"It returns {form(self.seen)}.")
        gap = distance(self.seen, self.wanted)
        return shaped(self.seen, (*self.wanted.shape,), UNKNOWN) or Fault(
            UNKNOWN, f"The largest difference is {gap:.2g}."
        )


def one_of(
    name: str,
    law: str,
    call: Callable[[Callable[..., Any]], Any],
    ways: Sequence[Choice],
    *more: Property,
    loose: bool = False,
) -> Subject:
    """Return the subject of functions for which `call` gives what one of the ways holds; the first is right."""
    return Subject(
        lambda function: Computed(call(function), {"way": ways}, itself, loose=loose),
        (Computed.equation, aspect("way", law, name=name), *more),
    )
