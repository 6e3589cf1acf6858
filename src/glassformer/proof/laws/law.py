"""A law of `glassformer verify`, its setting and verdict, distances between answers, and the laws of our own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from glassformer.base.errors import GlassformerError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.flex import NARROWEST, obstacle
from glassformer.nn.mask import Mask
from glassformer.nn.positions import POSITIONS
from glassformer.nn.rules import ATTEND
from glassformer.nn.transformer import Transformer

EPSILONS = 8192
"""How many machine epsilons (torch.finfo.eps) two computations of the same value may differ by: 1.8e-12 in float64."""


class Setting(NamedTuple):
    """The device and dtype in which laws are tested."""

    device: torch.device
    dtype: torch.dtype
    notebooks: Path | None = None
    """The folder of the five notebooks."""

    @property
    def bound(self) -> float:
        """The largest error that still counts as equal."""
        return EPSILONS * torch.finfo(self.dtype).eps


class NotHere(GlassformerError):
    """Raised when a law cannot be tested on this machine. The message says what is missing."""


class Law(NamedTuple):
    """One claim. `errors` tests it and yields the error of each case; a NaN breaks the law."""

    group: str
    claim: str
    errors: Callable[[Setting], Iterator[float]]
    exact: bool = False
    """Whether the answers must be bitwise equal."""
    narrow: bool = False
    """Whether the other side always computes in float32. The bound is then that of float32."""


class Verdict(NamedTuple):
    """The result of testing one law."""

    group: str
    claim: str
    cases: int
    worst: float
    bound: float
    missing: str | None = None
    """Why the law was not tested, if it was not."""

    @property
    def holds(self) -> bool:
        """Whether every case stayed within the bound. A law that was not tested counts as holding."""
        return self.missing is not None or (self.cases > 0 and self.worst <= self.bound)


def judge(law: Law, setting: Setting) -> Verdict:
    """Test a law on all its cases."""
    wide = setting._replace(dtype=torch.float32) if law.narrow else setting
    bound = 0.0 if law.exact else max(setting.bound, wide.bound)
    torch.manual_seed(0)
    try:
        errors = list(law.errors(setting))
    except NotHere as missing:
        return Verdict(law.group, law.claim, 0, 0.0, bound, str(missing))
    worst = math.inf if any(math.isnan(each) for each in errors) else max(errors, default=math.inf)
    return Verdict(law.group, law.claim, len(errors), worst, bound)


def apart(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference, relative to the larger of 1 and the expected value.

    Infinite for unequal shapes.
    """
    if ours.shape != theirs.shape:
        return math.inf
    if not ours.numel():
        return 0.0
    wide = torch.float64 if ours.device.type != "mps" else torch.float32
    mine, other = ours.detach().to(wide), theirs.detach().to(wide)
    return ((mine - other).abs() / other.abs().clamp(min=1)).max().item()


def all_apart(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """Return the largest `apart` over two sequences of tensors."""
    return max((apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def weighted(output: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """Return a sum with distinct weights, so that no gradient cancels. Its size is of the order of 1."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    return (output * weights).sum() / output.numel() ** 0.5


def gradients(output: Float[Tensor, "..."], module: nn.Module) -> dict[str, Tensor]:
    """Return the gradient of `weighted(output)` by parameter name."""
    named = {name: each for name, each in module.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(weighted(output), list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


def same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Return the largest difference between gradients of the same names. Infinite if the names differ."""
    if ours.keys() != theirs.keys():
        return math.inf
    return all_apart(ours.values(), (theirs[name] for name in ours))


# Small random models and padded batches to test laws on.

VOCAB = 11
PADDINGS = ("right", "left", "holes")
"""Where the padding of a row may be; "holes": between its tokens."""
Module = TypeVar("Module", bound=nn.Module)


def stack(**settings: Any) -> StackConfig:
    """Return a config of two blocks with four heads of width four and no dropout, changed by `settings`."""
    small: dict[str, Any] = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "dropout": 0.0, "max_len": 24}
    return StackConfig(**(small | settings))


def model(setting: Setting, shape: str, *, own: dict[str, Any] | None = None, **settings: Any) -> Transformer:
    """Return a random model of a shape ("encoder", "decoder", "encoder-decoder").

    `own` are settings of the whole model.
    """
    whole: dict[str, Any] = {"vocab_size": VOCAB} | {side: stack(**settings) for side in shape.split("-")}
    return scramble(Transformer(ModelConfig(**(whole | (own or {})))), setting).eval()


def scramble(module: Module, setting: Setting) -> Module:
    """Move the module to the setting's device and dtype, and draw every parameter from a normal distribution.

    Its standard deviation is 0.4. Zeros and ones would hide mistakes.
    """
    module = module.to(setting.device, setting.dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64).mul(0.4))
    return module


def normal(setting: Setting, *shape: int) -> Tensor:
    """Return normal random numbers that require a gradient."""
    return torch.randn(*shape, dtype=torch.float64).to(setting.device, setting.dtype).requires_grad_()


def tokens(setting: Setting, *shape: int) -> Int[Tensor, "..."]:
    """Return random ids."""
    return torch.randint(VOCAB, shape).to(setting.device)


def padded(
    setting: Setting, rows: Sequence[Tensor], width: int, where: str
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Put rows of ids into one tensor, padded as `where` says (see `PADDINGS`), and return it with its keep mask.

    Padding holds random ids, since no result may depend on them.
    """
    keep = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, ids in zip(keep, rows, strict=True):
        n = len(ids)
        places = {"right": torch.arange(n), "left": torch.arange(width - n, width), "holes": torch.randperm(width)[:n]}
        row[places[where]] = True
    held = torch.randint(VOCAB, keep.shape)
    held[keep] = torch.cat([ids.cpu() for ids in rows])
    return held.to(setting.device), keep.to(setting.device)


# --- laws that need no other library: backends, causality, padding, batch-mates and the cache

B, H, K, S = 3, 4, 5, 7


def backends(setting: Setting) -> Iterator[float]:
    """Value and gradients of each backend against the equation written out, over masks and grouped heads."""
    keep = torch.rand(B, S) < 0.6
    keep[-1] = False  # the last sequence is only padding: its queries read nothing
    rules = itertools.product((True, False), (None, 3), (None, keep.to(setting.device)), (4, 2, 1), (1, 4, S))
    for causal, window, kept, G, T in rules:
        q, k, v = normal(setting, B, H, T, K), normal(setting, B, G, S, K), normal(setting, B, G, S, K)
        mask = Mask(causal=causal, window=window, keep=kept)
        for rule, backend_of in ATTEND.items():
            if rule == "linear" and window is not None:
                continue  # it keeps sums over keys, from which no key can be removed
            answers: list[list[Tensor]] = []
            for name, attend in backend_of.items():
                if name == "flex":
                    continue  # see the law below: flex has no gradients on a CPU
                output = attend(q, k, v, mask, scale=K**-0.5)
                answers.append([output, *torch.autograd.grad(weighted(output), [q, k, v])])
            specified = answers[list(backend_of).index("reference")]
            yield max(all_apart(answer, specified) for answer in answers)


def flex(setting: Setting) -> Iterator[float]:
    """FlexAttention against the equation: its value, and its gradients where torch supports them."""
    device, K = setting.device, NARROWEST
    here = setting if device.type == "cpu" else setting._replace(dtype=torch.float32)
    learns = obstacle(device.type, K, here.dtype, learns=True) is None
    keep = torch.rand(B, S) < 0.6
    keep[-1] = False
    documents = torch.randint(2, (B, S)).to(device)
    rules = itertools.product((True, False), (None, keep.to(device)), (None, documents), (1, S))
    for causal, kept, owned, T in rules:  # few, because each kind of mask compiles a kernel
        G, window = (4, 3) if causal else (2, None)
        q, k, v = normal(here, B, H, T, K), normal(here, B, G, S, K), normal(here, B, G, S, K)
        mask, answers = Mask(causal=causal, window=window, keep=kept, documents=owned), list[list[Tensor]]()
        for name in ("flex", "reference"):
            with torch.set_grad_enabled(learns):
                output = ATTEND["softmax"][name](q, k, v, mask, scale=K**-0.5)
            answers.append([output, *(torch.autograd.grad(weighted(output), [q, k, v]) if learns else ())])
        yield all_apart(*answers)


def causality(setting: Setting) -> Iterator[float]:
    """Changing a token leaves all earlier logits bitwise the same."""
    for positions, shape in itertools.product(POSITIONS, ("decoder", "encoder-decoder")):
        network, ids = causal_model(setting, shape, positions), tokens(setting, 2, 8)
        source = {"source": tokens(setting, 2, 5)} if shape != "decoder" else {}
        logits = network(ids, **source)
        for place in (1, 4, 7):
            changed = ids.clone()
            changed[:, place] = (changed[:, place] + 1) % VOCAB
            yield apart(network(changed, **source)[:, :place], logits[:, :place])


def padding(setting: Setting) -> Iterator[float]:
    """Each row of a padded batch gets the same output as alone."""
    for positions, where in itertools.product(POSITIONS, PADDINGS):
        network = causal_model(setting, "encoder-decoder", positions)
        rows, sources = ([tokens(setting, n) for n in lengths] for lengths in ((6, 2, 4), (1, 5, 3)))
        (ids, keep), (source, source_keep) = padded(setting, rows, 8, where), padded(setting, sources, 7, where)
        together = network(ids, keep=keep, source=source, source_keep=source_keep)
        alone = [network(row[None], source=read[None])[0] for row, read in zip(rows, sources, strict=True)]
        yield all_apart((answer[real] for answer, real in zip(together, keep, strict=True)), alone)


def cache(setting: Setting) -> Iterator[float]:
    """Piece by piece through either kind of cache gives the logits of one forward pass."""
    for positions, shape in itertools.product(POSITIONS, ("decoder", "encoder-decoder")):
        network, ids = causal_model(setting, shape, positions), tokens(setting, 2, 8)
        source = {"memory": network.encode(tokens(setting, 2, 5))} if shape != "decoder" else {}
        whole = network(ids, **source)
        for capacity in (None, 10):
            held = network.new_cache(capacity)
            steps = [network(part, cache=held, **source) for part in ids.split([3, 1, 1, 2, 1], dim=1)]
            yield apart(torch.cat(steps, dim=1), whole)


def causal_model(setting: Setting, shape: str, positions: str) -> Transformer:
    """Return a model that generates from left to right."""
    return model(setting, shape, positions=positions)


OURS = [
    Law("attention", "every backend gives the value and the gradients of its equation", backends),
    Law("attention", "flex gives the value of its equation, and on an accelerator the gradients", flex, narrow=True),
    Law("masks", "no later token changes an earlier logit", causality, exact=True),
    Law("masks", "padding and other rows of the batch change nothing", padding),
    Law("decoding", "the cache gives the same as one forward pass", cache),
]
