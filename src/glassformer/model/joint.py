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


class Joint(Transformer):
    """A `Transformer` to whoever decodes or scores; its logits are the logarithms of the mean probabilities.

    Its vectors are those of all members side by side, [B, T, sum of their widths], which its head takes apart. The
    members may differ in all but their vocabularies and the kind of stacks; the shortest `max_len` is that of all.
    Nothing is copied. It is not made for training: a gradient reaches all members at once.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer
    >>> from glassformer.model.joint import Joint
    >>> stacks = [StackConfig(d_model=d, n_heads=4, n_layers=2, d_ff=64, causal=True) for d in (32, 48)]
    >>> joint = Joint([Transformer(ModelConfig(vocab_size=50, decoder=stack)) for stack in stacks])
    >>> joint(torch.tensor([[1, 7, 8]])).exp().sum(-1).allclose(torch.ones(1, 3))
    True
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        """Errors: `ConfigError` for members that cannot write together."""
        nn.Module.__init__(self)  # no weights of its own
        check_members(members)
        self._members = nn.ModuleList(members)
        first, configs = members[0], [each.config for each in members]
        encoder, decoder = (shortest([getattr(each, side) for each in configs]) for side in ("encoder", "decoder"))
        self.config = replace(first.config, encoder=encoder, decoder=decoder)
        self.encoder, self.decoder = first.encoder, first.decoder  # asked for which of them there are, never called
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
        memories = [None] * len(self.members) if memory is None else memory.split(self._memory_widths(), dim=-1)
        caches = [None] * len(self.members) if cache is None else cast(JointCache, cache).members
        apart = zip(self.members, memories, caches, strict=True)
        found = [each.hidden(tokens, **told, memory=its, cache=own) for each, its, own in apart]
        if isinstance(cache, JointCache):
            cache.count()
        return torch.cat(found, dim=-1)

    def _memory_widths(self) -> list[int]:
        return [each.config.encoder.d_model for each in self.members if each.config.encoder is not None]

    def new_cache(self, capacity: int | None = None, *, whole: bool = False) -> Cache:
        """An empty cache for each member. Errors: as `Transformer.new_cache`."""
        return JointCache([each.new_cache(capacity, whole=whole) for each in self.members])

    def new_slots(self, most_rows: int) -> Slots | StateSlots:
        """Errors: `ConfigError`, always: rows that come and go while others go on are of one model."""
        raise ConfigError(
            f"Texts that come and go while others are written are of one model; this is a committee of "
            f"{len(self.members)}. Write them with generate() or answers(), or serve one member."
        )


class MeanHead(nn.Module):
    """Vectors of all members side by side to the logarithm of the mean of their probabilities."""

    def __init__(self, members: Sequence[Transformer]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(each.head for each in members)
        self.widths = [each.config.stack.d_model for each in members]

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """The logits, in float32 or wider."""
        scores = [head(part) for head, part in zip(self.heads, x.split(self.widths, dim=-1), strict=True)]
        log_p = [each.to(torch.promote_types(each.dtype, torch.float32)).log_softmax(-1) for each in scores]
        return torch.stack(log_p).logsumexp(0) - math.log(len(log_p))


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
        if not isinstance(config, ModelConfig):
            raise ConfigError(f"A committee is made of Transformers; member {place} (from 0) is {came(each)}.")
        if not isinstance(config.head, Lm):
            raise ConfigError(
                f"A committee that writes is made of models with head=Lm(); member {place} (from 0) has head "
                f"{config.head.kind!r}. See committee_probabilities() for classifiers."
            )
        parameter = next(each.parameters())
        kinds.append(
            {
                "stacks": "encoder-decoder" if config.encoder and config.decoder else "one stack",
                "causal": config.stack.causal,
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
