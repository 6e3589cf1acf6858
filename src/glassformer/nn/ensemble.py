"""An ensemble: models that decode together, by the mean of their probabilities at each step.

p(token | before) = 1/M Σ p_m(token | before), over the M members (Lakshminarayanan et al. 2017, section 2.4; for
translation, Sutskever et al. 2014, table 1). Every member reads all tokens that the ensemble has written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.base.typed import came
from glassformer.nn.cache import Cache
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.observe import Evaluation
from glassformer.nn.outputs import Lm
from glassformer.nn.slots import Slots, StateSlots
from glassformer.nn.transformer import Transformer

SIDES = ("encoder", "decoder")


class Ensemble(Transformer):
    """An ensemble that can be used as a `Transformer` to decode or score; softmax(logits) is the mean probability.

    Its vectors are those of all members side by side, [B, T, sum of their widths], which its head splits again. Members
    may differ in all that `check_members` does not compare; the shortest `max_len` holds for all. Nothing is copied.
    Members run in evaluation mode: it is not for training and has no checkpoint of its own.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer
    >>> from glassformer.nn.ensemble import Ensemble
    >>> stacks = [StackConfig(d_model=d, n_heads=4, n_layers=2, d_ff=64, causal=True) for d in (32, 48)]
    >>> ensemble = Ensemble([Transformer(ModelConfig(vocab_size=50, decoder=stack)) for stack in stacks])
    >>> ensemble(torch.tensor([[1, 7, 8]])).shape
    torch.Size([1, 3, 50])
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        """Errors: `ConfigError` for members that cannot decode together."""
        nn.Module.__init__(self)  # skips Transformer.__init__: it has no weights of its own
        check_members(members)
        self._members = nn.ModuleList(members)
        first, configs = members[0], [each.config for each in members]
        encoder, decoder = (shortest([getattr(each, side) for each in configs]) for side in SIDES)
        self.config = replace(first.config, encoder=encoder, decoder=decoder)
        for side in SIDES:  # only tested for None, never called; via __dict__, so as not to register them as submodules
            self.__dict__[side] = getattr(first, side)
        self.head = MeanHead(members)
        self._evaluation = Evaluation(*members)

    @property
    def members(self) -> list[Transformer]:
        """The member models, in the order given."""
        return [cast(Transformer, each) for each in self._members]

    def encode(
        self, source: Int[Tensor, "B S"] | Float[Tensor, "B S I"], keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """Return the memories of all members, side by side."""
        with self._evaluation:
            return torch.cat([each.encode(source, keep) for each in self.members], dim=-1)

    def hidden(
        self,
        tokens: Int[Tensor, "B T"] | Float[Tensor, "B T J"],
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        cache: Cache | None = None,
        **given: Any,
    ) -> Float[Tensor, "B T D"]:
        """Return the last vectors of all members, side by side; arguments as for `Transformer.hidden`."""
        apart = zip(self.members, self._memories(memory), self._caches(cache), strict=True)
        with self._evaluation:
            found = [each.hidden(tokens, **given, memory=its, cache=own) for each, its, own in apart]
        if isinstance(cache, EnsembleCache):
            cache.count()
        return torch.cat(found, dim=-1)

    def _memories(self, memory: Float[Tensor, "B S D"] | None) -> Sequence[Tensor | None]:
        """Split the memory for the members; models of one stack get it whole and refuse it."""
        if memory is None or self.encoder is None or self.decoder is None:
            return [memory] * len(self.members)
        return memory.split([each.config.encoder.d_model for each in self.members if each.config.encoder], dim=-1)

    def _caches(self, cache: Cache | None) -> Sequence[Cache | None]:
        """The cache of each member."""
        if cache is None:
            return [None] * len(self.members)
        if not isinstance(cache, EnsembleCache):
            raise ConfigError(
                f"An ensemble needs a cache for each member; got one {came(cache)}. Use new_cache() of the ensemble."
            )
        return cache.members

    def new_cache(self, capacity: int | None = None, *, whole: bool = False) -> Cache:
        """Make an empty cache for each member. Errors: as `Transformer.new_cache`."""
        return EnsembleCache([each.new_cache(capacity, whole=whole) for each in self.members])

    def new_slots(self, most_rows: int) -> Slots | StateSlots:
        """Always raises `ConfigError`: continuous batching works with one model only."""
        raise ConfigError(
            f"Continuous batching needs a single model; got an ensemble of {len(self.members)}. Use "
            "generate() or answers(), or serve one member."
        )


def members_of(model: Transformer) -> list[Transformer]:
    """The members of an ensemble, or the model itself if it is none."""
    return model.members if isinstance(model, Ensemble) else [model]


def refuse_ensemble(model: object, what: str, instead: str) -> None:
    """Raise `ConfigError` for an ensemble where a single model is needed."""
    if isinstance(model, Ensemble):
        raise ConfigError(f"{what} needs a single model; got an ensemble of {len(model.members)}. {instead}")


class MeanHead(nn.Module):
    """Turns the members' vectors into logits whose softmax is the mean of the members' probabilities.

    The free constant in logits is chosen so that one member alone keeps its own, as penalties that multiply them need.
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        super().__init__()
        self.heads = [each.head for each in members]  # a plain list: their parameters belong to the members
        self.widths = [each.config.stack.d_model for each in members]
        self.n_tokens = members[0].config.vocab_size or 0

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Return the logits, in float32 or wider."""
        log_p: Tensor | None = None
        wholes: list[Tensor] = []
        for head, part in zip(self.heads, x.split(self.widths, dim=-1), strict=True):
            scores = head(part)
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
            wholes.append(scores.logsumexp(-1, keepdim=True))
            scores = scores - wholes[-1]
            log_p = scores if log_p is None else torch.logaddexp(log_p, scores)
        assert log_p is not None, "an ensemble has a member"
        return log_p + (sum(wholes) / len(wholes) - math.log(len(wholes)))


class EnsembleCache(Cache):
    """The caches of all members; all were given the same tokens, but a rolling cache may have dropped some."""

    def __init__(self, members: Sequence[Cache]) -> None:
        super().__init__(0)
        self.capacity = members[0].capacity
        self.members = members

    def count(self) -> None:
        """Updates the length from the members' caches."""
        self.length = max(each.length for each in self.members)

    def check_takes_back(self) -> None:
        """Raises `ConfigError` if tokens cannot be removed from the cache of each member."""
        for each in self.members:
            each.check_takes_back()

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        self.check_takes_back()
        for each in self.members:
            each.truncate(length)
        self.count()

    def take_back(self, lengths: Int[Tensor, " B"]) -> None:
        """Keeps only the first `lengths[row]` tokens of each row."""
        self.check_takes_back()
        for each in self.members:
            each.take_back(lengths)
        self.count()

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        for each in self.members:
            each.select(rows)


def check_members(members: Sequence[Transformer]) -> None:
    """Raise `ConfigError` for models that cannot decode together, with the place (from 0) of the first misfit."""
    if not members:
        raise ConfigError("An ensemble needs at least one member; got none. Give the models.")
    kinds: list[dict[str, object]] = []
    for place, each in enumerate(members):
        config = getattr(each, "config", None)
        if not isinstance(config, ModelConfig) or isinstance(each, Ensemble):
            what = "an ensemble itself" if isinstance(each, Ensemble) else came(each)
            raise ConfigError(
                f"The members of an ensemble must be Transformers; member {place} (counted from 0) is "
                f"{what}. Give single models, as in Ensemble([one, other])."
            )
        if not isinstance(config.head, Lm):
            raise ConfigError(
                f"The members of an ensemble that writes must have head=Lm(); member {place} (counted "
                f"from 0) has head {config.head.kind!r}. For classifiers, use ensemble_probabilities()."
            )
        parameter, stacks = next(each.parameters()), [getattr(config, side) for side in SIDES]
        kinds.append(
            {
                "stacks": " and ".join(side for side in SIDES if getattr(config, side)),
                "causal": config.stack.causal,
                "n_features": [stack and stack.n_features for stack in stacks],
                "n_segments": [stack and stack.n_segments for stack in stacks],
                "vocab_size": config.vocab_size,
                "source vocab_size": config.source_vocab_size or config.vocab_size,
                "device": parameter.device,
                "dtype": parameter.dtype,
            }
        )
    for place, kind in enumerate(kinds):
        for name, value in kind.items():
            if value != kinds[0][name]:
                raise ConfigError(
                    "The members of an ensemble write one text together, so they must have the same "
                    f"{name}; member {place} (counted from 0) has {value}, the first {kinds[0][name]}. Leave that "
                    "member out, or use models that agree."
                )


def shortest(stacks: Sequence[StackConfig | None]) -> StackConfig | None:
    """The first of these stacks, with the shortest `max_len` of all; None if the first is None."""
    limits = [each.max_len for each in stacks if each is not None and each.max_len is not None]
    return None if stacks[0] is None else replace(stacks[0], max_len=min(limits, default=None))
