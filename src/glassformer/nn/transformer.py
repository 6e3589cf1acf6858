"""The whole model: an encoder, a decoder or both, and a head."""

from __future__ import annotations

from glassformer.base.errors import ConfigError
from glassformer.base.part import Part, checked
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.base.tensors import check_read
from glassformer.nn.cache import Cache
from glassformer.nn.config import ModelConfig
from glassformer.nn.heads import HEADS, SequenceHead
from glassformer.nn.initialize import initialize
from glassformer.nn.new_cache import new_cache, new_slots
from glassformer.nn.slots import Slots, StateSlots
from glassformer.nn.stack import Stack


class Transformer(Part):
    """A transformer, from tokens or features to logits (Vaswani et al. 2017); its config says which parts it has.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer
    >>> stack = StackConfig(d_model=32, n_heads=4, n_layers=2, d_ff=64)
    >>> model = Transformer(ModelConfig(vocab_size=50, encoder=stack, decoder=stack))
    >>> model(torch.tensor([[1, 7, 8]]), source=torch.tensor([[5, 6, 7, 2]])).shape
    torch.Size([1, 3, 50])
    """

    rounds_cache = False
    """Whether new caches hold keys and values in 8 bits; `prepared` makes such models."""

    kernels: object = None
    """What decoding may use in place of plain torch (`decode/prepare.py`), if it was put on."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        scale, both = config.scale_embeddings, config.encoder is not None and config.decoder is not None
        self.encoder = self.decoder = None
        encoder, decoder = config.built_stacks
        if encoder is not None:
            source_size = config.source_vocab_size or config.vocab_size
            self.encoder = Stack(encoder, source_size, scale_embeddings=scale)
        if decoder is not None:
            self.decoder = Stack(decoder, config.vocab_size, reads_memory=both, scale_embeddings=scale)
        if self.encoder is not None and self.decoder is not None and config.shares_embeddings:
            self.encoder.embedding.weight = self.decoder.embedding.weight
        self.head = lookup(HEADS, config.head.kind, "head.kind")(config, self.reader.embedding)
        initialize(self.encoder, self.decoder, self.head, config)

    @property
    def reader(self) -> Stack:
        """The stack whose vectors the head reads: the decoder if there is one, else the encoder."""
        stack = self.decoder if self.decoder is not None else self.encoder
        assert stack is not None
        return stack

    def encode(
        self, source: Int[Tensor, "B S"] | Float[Tensor, "B S I"], keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """Return the encoder's output (the memory) for `hidden(..., memory=)`: encode once, then decode many steps."""
        if self.encoder is None or self.decoder is None:
            raise ConfigError("encode() belongs to an encoder-decoder; this model has one stack. Call hidden(tokens).")
        check_read("source", source, features=self.encoder.config.n_features is not None)
        return self.encoder(source, keep=keep)

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
        """Return the last vectors, before the head.

        `keep` and `source_keep` are True at real tokens; None means no padding. An encoder-decoder takes `source`, or
        the `memory` that `encode` made of it. With a cache, give only the new `tokens`. A stack with `n_features` reads
        vectors of that many numbers instead of ids. A stack with `n_segments` takes `segments`, the part of the text
        that each token belongs to (None: all to part 0). A model with one stack takes `documents`, which numbers the
        texts packed in a row so that none reads another; if causal, also `prefix`, the number of tokens at the start of
        each row that every token may read.
        """
        given = {"keep": keep, "segments": segments, "documents": documents, "prefix": prefix, "cache": cache}
        if self.decoder is None or self.encoder is None:
            if source is not None or memory is not None or source_keep is not None:
                raise ConfigError(
                    "source, source_keep and memory belong to an encoder-decoder; this model has one stack. "
                    "Give tokens and keep."
                )
            return self.reader(tokens, **given)
        if documents is not None or prefix is not None:
            raise ConfigError(
                "documents and prefix belong to a model of one stack; in an encoder-decoder the source is the prefix, "
                "and packed targets would read each other's sources. Remove them."
            )
        if (source is None) == (memory is None):
            got = "neither" if source is None else "both"
            raise ConfigError(
                f"An encoder-decoder needs exactly one of source= (token ids) and memory= (from encode()); got {got}. "
                "Give one."
            )
        if source is not None:
            check_read("source", source, features=self.encoder.config.n_features is not None)
            # not by `encode`: of a sharded model both gather the head's weights, and the inner one drops them again
            memory = self.encoder(source, keep=source_keep)
        return self.decoder(tokens, **given, memory=memory, memory_keep=source_keep)

    def forward(
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
    ) -> Float[Tensor, "B *T V"]:
        """Return the logits `head(hidden(...))`: [B, T, V], or [B, V] for a head with one output per sequence."""
        given = {"source": source, "source_keep": source_keep, "memory": memory, "segments": segments}
        x = self.hidden(tokens, keep=keep, documents=documents, prefix=prefix, cache=cache, **given)
        return self.head(x, keep) if isinstance(self.head, SequenceHead) else self.head(x)

    @checked
    def new_cache(self, capacity: int | None = None, *, whole: bool = False) -> Cache:
        """Make an empty cache for decoding: growing, or with constant shapes for `capacity` tokens.

        Linear attention gets a state of constant size instead. With windowed attention or short convolutions the cache
        drops what no later token will read, unless `whole` is set, which lets tokens be removed from the end
        (`truncate`).

        Errors: `ConfigError` for a model that is not causal, where later tokens would change earlier outputs.
        """
        if not self.config.stack.causal:
            raise ConfigError(
                "A cache needs a causal model, which writes from left to right; this one reads both ways. Give it all "
                "tokens at once, without a cache."
            )
        plain = type(self.reader) is Stack
        return new_cache(
            self.config.stack, len(self.reader.blocks), capacity, whole=whole, plain=plain, rounds=self.rounds_cache
        )

    @checked
    def new_slots(self, most_rows: int) -> Slots | StateSlots:
        """Make an empty cache for continuous batching, whose rows, at most `most_rows` at a time, join and leave.

        Errors: as `new_cache`.
        """
        return new_slots(self.new_cache(whole=True), len(self.reader.blocks), most_rows, rounds=self.rounds_cache)
