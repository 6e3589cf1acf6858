"""Several models that write as one, a committee: at each step a token has the mean of what they give it.

p(token | before) = 1/M Σ p_m(token | before), over the M members (Lakshminarayanan et al. 2017, section 2.4; of models
that translate Sutskever et al. 2014, table 1). Each member reads all that was written, whoever wanted it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Bool, Float, Int, Tensor
from glassformer.foundation.typed import came
from glassformer.model.config import ModelConfig, StackConfig
from glassformer.model.outputs import Lm
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache, Slots, StateSlots

SIDES = ("encoder", "decoder")


class Joint(Transformer):
    """A `Transformer` to whoever decodes or scores; the softmax of its logits is the mean of the probabilities.

    Its vectors are those of all members side by side, [B, T, sum of their widths], which its head takes apart. The
    members may differ in all but their vocabularies and which stacks they have; the shortest `max_len` is that of all.
    Nothing is copied. It is not made for training, and has no checkpoint of its own: its members do.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer
    >>> from glassformer.model.joint import Joint
    >>> stacks = [StackConfig(d_model=d, n_heads=4, n_layers=2, d_ff=64, causal=True) for d in (32, 48)]
    >>> joint = Joint([Transformer(ModelConfig(vocab_size=50, decoder=stack)) for stack in stacks])
    >>> joint(torch.tensor([[1, 7, 8]])).shape
    torch.Size([1, 3, 50])
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        """Errors: `ConfigError` for members that cannot write together."""
        nn.Module.__init__(self)  # no weights of its own
        if not isinstance(members, list | tuple):
            raise ConfigError(
                f"A committee is made from a list of models; got {came(members)}. Try Joint([one, other])."
            )
        check_members(members)
        self._members = nn.ModuleList(members)
        first, configs = members[0], [each.config for each in members]
        encoder, decoder = (shortest([getattr(each, side) for each in configs]) for side in SIDES)
        self.config = replace(first.config, encoder=encoder, decoder=decoder)
        for side in SIDES:  # asked whether they are there, never called: their names are the member's
            self.__dict__[side] = getattr(first, side)
        self.head = MeanHead(members)
        self.eval()

    @property
    def members(self) -> list[Transformer]:
        """The models, in the order given."""
        return [cast(Transformer, each) for each in self._members]

    def encode(
        self, source: Int[Tensor, "B S"] | Float[Tensor, "B S I"], keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """The memories of all members, side by side."""
        return torch.cat([each.encode(source, keep) for each in self.members], dim=-1)

    def hidden(
        self,
        tokens: Int[Tensor, "B T"] | Float[Tensor, "B T J"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        source: Int[Tensor, "B S"] | Float[Tensor, "B S I"] | None = None,
        source_keep: Bool[Tensor, "B S"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The last vectors of all members, side by side; as of a `Transformer`, with the cache of `new_cache`."""
        told = {"keep": keep, "source": source, "source_keep": source_keep, "segments": segments}
        told |= {"documents": documents, "prefix": prefix}
        apart = zip(self.members, self._memories(memory), self._caches(cache), strict=True)
        found = [each.hidden(tokens, **told, memory=its, cache=own) for each, its, own in apart]
        if isinstance(cache, JointCache):
            cache.count()
        return torch.cat(found, dim=-1)

    def _memories(self, memory: Float[Tensor, "B S D"] | None) -> Sequence[Tensor | None]:
        """What each member reads; one that has no encoder beside its decoder refuses it."""
        if memory is None or self.encoder is None or self.decoder is None:
            return [memory] * len(self.members)
        return memory.split([each.config.encoder.d_model for each in self.members if each.config.encoder], dim=-1)

    def _caches(self, cache: Cache | None) -> Sequence[Cache | None]:
        """Each member's own."""
        if cache is None:
            return [None] * len(self.members)
        if not isinstance(cache, JointCache):
            raise ConfigError(f"A committee has a cache for each member; got one {came(cache)}. Take new_cache().")
        return cache.members

    def new_cache(self, capacity: int | None = None, *, whole: bool = False) -> Cache:
        """An empty cache for each member. Errors: as `Transformer.new_cache`."""
        return JointCache([each.new_cache(capacity, whole=whole) for each in self.members])

    def new_slots(self, most_rows: int) -> Slots | StateSlots:
        """Errors: `ConfigError`, always: rows that come and go while others go on are of one model."""
        raise ConfigError(
            f"Texts that come and go while others are written are of one model; this is a committee of "
            f"{len(self.members)}. Write them with generate() or answers(), or serve one member."
        )


def members_of(model: Transformer) -> list[Transformer]:
    """The members of a committee, or the one model."""
    return model.members if isinstance(model, Joint) else [model]


def refuse_joint(model: object, what: str, instead: str) -> None:
    """Refuse a committee where one model is asked for. Errors: `ConfigError`."""
    if isinstance(model, Joint):
        raise ConfigError(f"{what} is of one model; got a committee of {len(model.members)}. {instead}")


class MeanHead(nn.Module):
    """Vectors of all members side by side to logits whose softmax is the mean of the members' probabilities.

    A constant is free in logits: here it makes those of one member its own, as penalties that multiply logits need it.
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        super().__init__()
        self.heads = [each.head for each in members]  # the members' own, which have their names there
        self.widths = [each.config.stack.d_model for each in members]
        self.n_tokens = members[0].config.vocab_size or 0

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """The logits, in float32 or wider."""
        log_p: Tensor | None = None
        wholes: list[Tensor] = []
        for head, part in zip(self.heads, x.split(self.widths, dim=-1), strict=True):
            scores = head(part)
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
            wholes.append(scores.logsumexp(-1, keepdim=True))
            scores = scores - wholes[-1]
            log_p = scores if log_p is None else torch.logaddexp(log_p, scores)
        assert log_p is not None, "a committee has a member"
        return log_p + (sum(wholes) / len(wholes) - math.log(len(wholes)))


class JointCache(Cache):
    """The caches of all members; each took in the same tokens, and may hold other ones of them."""

    def __init__(self, members: Sequence[Cache]) -> None:
        super().__init__(0, capacity=members[0].capacity)
        self.members = members

    def count(self) -> None:
        """Takes over how many tokens there are."""
        self.length = max(each.length for each in self.members)

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        for each in self.members:
            each.truncate(length)
        self.count()

    def take_back(self, lengths: Int[Tensor, " B"]) -> None:
        """Forgets of each row all but its first tokens."""
        for each in self.members:
            each.take_back(lengths)
        self.count()

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows of the batch, in the order given."""
        for each in self.members:
            each.select(rows)


def check_members(members: Sequence[Transformer]) -> None:
    """Refuse models that cannot write one text together. Errors: `ConfigError` naming the first such, from 0."""
    if not members:
        raise ConfigError("A committee has at least one member; got none. Give the models.")
    kinds: list[dict[str, object]] = []
    for place, each in enumerate(members):
        config = getattr(each, "config", None)
        if not isinstance(config, ModelConfig) or isinstance(each, Joint):
            what = "a committee itself" if isinstance(each, Joint) else came(each)
            raise ConfigError(f"A committee is made of Transformers; member {place} (from 0) is {what}.")
        if not isinstance(config.head, Lm):
            raise ConfigError(
                f"A committee that writes is made of models with head=Lm(); member {place} (from 0) has head "
                f"{config.head.kind!r}. See committee_probabilities() for classifiers."
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
                    f"The members of a committee write one text, step by step; member {place} (from 0) has {name} "
                    f"{value}, the first one {kinds[0][name]}. Leave it out, or make it alike."
                )


def shortest(stacks: Sequence[StackConfig | None]) -> StackConfig | None:
    """The first of these stacks, for texts as long as all of them take; none where there is none."""
    limits = [each.max_len for each in stacks if each is not None and each.max_len is not None]
    return None if stacks[0] is None else replace(stacks[0], max_len=min(limits, default=None))
