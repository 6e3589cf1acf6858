"""The configuration of a model: frozen dataclasses, checked when made, with the same structure as the model.

The sentence beneath a setting is also what `--help` says of it. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from glassformer.base.contradictions import MODEL, STACK, ignored, refuse
from glassformer.base.errors import ConfigError
from glassformer.base.registry import suggestion
from glassformer.base.schemes import MOST_PLACES, MOST_WIDE, Pattern, RelativeConfig, RotaryConfig
from glassformer.base.settings import Flat, annotations_of, built, check, flat, like, parse, rule_of, setting
from glassformer.nn.outputs import Lm, Output, output_from_dict, output_to_dict

__all__ = ["ModelConfig", "StackConfig"]

MOST_TAPS = 64
"""Upper bound for tokens that a short convolution reads: attention is for those farther away, at less cost."""

ADDED = ("sinusoidal", "sinusoidal_halves", "learned")
"""Position schemes that act before the first block, so that all blocks have them or none."""
EXAMPLE = "Try layers='2::3 window=none positions=none; 0 feed_forward=plain'."
NUMBERS = re.compile(r"-?\d+|(-?\d*):(-?\d*)(?::(-?\d*))?")


@dataclass(frozen=True)
class StackConfig:
    """One stack of blocks: an encoder, or a decoder (causal; it reads the encoder's memory if there is an encoder).

    `max_len` counts positions. Errors: `ConfigError` for values that contradict each other. Names (`norm`,
    `activation`, `positions`, `attention_rule`, ...) are looked up later, when the stack is built.

    >>> from glassformer import StackConfig
    >>> StackConfig(d_model=32, n_heads=4).head_width
    8
    """

    d_model: int = setting(256, 1, MOST_WIDE)
    """Width of the residual stream (hidden size)."""
    n_heads: int = setting(4, 1, MOST_WIDE, varies=True)
    """Attention heads; must divide d_model."""
    n_kv_heads: int | None = setting(None, 1, MOST_WIDE, kw_only=True, varies=True)
    """Key/value heads (grouped-query attention; 1: multi-query); unset: n_heads."""
    d_head: int | None = setting(None, 1, MOST_WIDE, kw_only=True, varies=True)
    """Width of a head; unset: d_model / n_heads."""
    n_layers: int = setting(3, 1, MOST_WIDE)
    """Blocks (layers) in each stack."""
    d_ff: int = setting(1024, 1, MOST_WIDE, varies=True)
    """Hidden width of the feed-forward branch."""
    n_features: int | None = setting(None, 1, MOST_WIDE, recipe=False)
    """Numbers of each vector that the stack reads; None: it reads tokens."""
    n_segments: int | None = setting(None, 1, MOST_WIDE, recipe=False)
    """Number of segment embeddings (BERT: 2); None: no segments."""
    dropout: float = setting(0.1, 0.0, below=1.0, advice="0.1")
    """Dropout probability, for the embedding and the output of each branch."""
    attention_dropout: float = setting(0.0, 0.0, below=1.0, advice="0.1")
    """Dropout probability of attention weights; above 0 no fused kernel for CPUs can be used."""
    feed_forward_dropout: float = setting(0.0, 0.0, below=1.0, advice="0.1")
    """Dropout probability between the two linear maps of the feed-forward; the paper has none there."""
    token_dropout: float = setting(0.0, 0.0, below=1.0, advice="0.1")
    """Word dropout: probability that the embedding at a place is zeroed, each place by itself."""
    norm: str = setting("layer", known="glassformer.nn.norm:NORMS")
    """Normalisation: layer (LayerNorm), rms (RMSNorm) or none."""
    norm_eps: float = setting(1e-5, above=0.0, advice="1e-5")
    """What a norm adds to the variance before its square root."""
    norm_placement: str = setting("pre", known="glassformer.nn.block:PLACEMENTS")
    """Norm placement: pre (before the branch), post (after the sum), output (after the branch) or sandwich (pre and
    output)."""
    final_norm: bool | None = setting(None, recipe=False)
    """Whether a norm follows the last block; None: depends on the placement (post: no, all others: yes)."""
    qk_norm: str = setting("none", known="glassformer.nn.norm:NORMS")
    """QK-norm of a head's queries and keys: none, rms or layer."""
    bias: bool = True
    """Biases in the linear maps of attention and feed-forward; Llama and T5 have none."""
    parallel_branches: bool = False
    """Attention and feed-forward of a block both read its input, as in GPT-J and GPT-NeoX, not one after another."""
    residual_scale: float = setting(1.0, above=0.0, advice="1.0, which scales nothing")
    """Factor of x in the residual sum x + branch(x); deepnorm uses its own."""
    stochastic_depth: float = setting(0.0, 0.0, below=1.0, advice="0.1")
    """Stochastic depth: chance that a sequence skips a branch of the last block, falling linearly towards the first."""
    convolution: int = setting(1, 1, MOST_TAPS, varies=True)
    """Short causal convolution before attention and feed-forward: tokens that it reads, the own included; 1: none."""
    activation: str = setting("relu", known="glassformer.nn.feed_forward:ACTIVATIONS")
    """Activation of the feed-forward: relu, gelu, gelu_tanh, silu, relu_squared, sigmoid or identity."""
    feed_forward: str = setting("plain", known="glassformer.nn.feed_forward:FEED_FORWARDS", varies=True)
    """Feed-forward: plain, gated (GLU; with silu: SwiGLU) or experts (mixture of experts, MoE)."""
    n_experts: int | None = setting(None, 1, MOST_WIDE, varies=True)
    """MoE: experts in each feed-forward branch, each d_ff wide."""
    experts_per_token: int = setting(2, 1, MOST_WIDE, varies=True)
    """MoE: experts that each token is routed to (top-k)."""
    expert: str = setting("plain", known="glassformer.nn.feed_forward:EXPERTS", varies=True)
    """MoE: whether an expert is plain or gated."""
    balance_loss: float = setting(0.01, 0.0, advice="0.01")
    """MoE: weight of the load-balancing loss."""
    router_z_loss: float = setting(0.0, 0.0, advice="0.01")
    """MoE: weight of the z-loss, which keeps its logits small."""
    positions: str = setting("sinusoidal", known="glassformer.nn.positions:POSITIONS", varies=True)
    """Position encoding: sinusoidal, sinusoidal_halves (sines first), learned, rotary (RoPE), alibi, t5, shaw, none."""
    embedding_norm: bool = False
    """Norm after the embedding and its positions, before the first block, as in BERT and BART."""
    rotary: RotaryConfig = field(default_factory=RotaryConfig)
    relative: RelativeConfig = field(default_factory=RelativeConfig)
    max_len: int | None = setting(None, 1, MOST_PLACES)
    """Longest sequence accepted, in tokens; unset: no limit (learned positions need one)."""
    causal: bool = setting(False, recipe=False)
    """Whether a query reads no key behind it."""
    attention_rule: str = setting("softmax", known="glassformer.nn.rules:RULES")
    """What attention computes: softmax, softmax_plus_one (1 more in the denominator), sigmoid, softcap or linear."""
    attention: str = "auto"
    """Attention backend: auto, reference, matmul, sdpa, sparse or flex; linear has auto, reference and sums."""
    attention_scale: float | None = setting(None, above=0.0, advice="1.0, or remove it to get 1 / sqrt(head width)")
    """Factor of the attention scores; unset: 1/sqrt(head width). T5 has 1.0."""
    softcap: float = setting(50.0, above=0.0, why=", as the bound on the scores")
    """Bound on the scores of attention_rule softcap, by tanh."""
    window: int | None = like(Pattern, "window")
    dilation: int = like(Pattern, "dilation")
    global_tokens: int = like(Pattern, "global_tokens")
    sinks: int = like(Pattern, "sinks")
    stride: int | None = like(Pattern, "stride")
    block: int | None = like(Pattern, "block")
    summary: int = like(Pattern, "summary")
    layers: str = ""
    """Blocks that differ, as "2::3 window=none positions=none; 0 feed_forward=plain": their numbers, and their own
    settings."""

    def __post_init__(self) -> None:
        check(self)
        _ = self.pattern  # refuses settings of a pattern that contradict each other
        refuse(self, STACK)
        if self.positions == "rotary":
            self.rotary.width(self.head_width)
        if self.positions == "t5":
            self.relative.sides(self.causal)
        if self.layers:
            blocks_of(self)  # refuses blocks that are not there, or cannot be so

    @property
    def routing(self) -> dict[str, Any]:
        """The settings that only a mixture of experts needs; empty for other feed-forwards."""
        names = ("n_experts", "experts_per_token", "expert")
        return {} if self.n_experts is None else {name: getattr(self, name) for name in names}

    @property
    def pattern(self) -> Pattern | None:
        """The sparse pattern of the settings; None if every key may be read. Errors: `ConfigError`."""
        names = (field.name for field in fields(Pattern))
        pattern = Pattern(**{name: getattr(self, name) for name in names})
        return None if pattern.reads_everything else pattern

    @property
    def head_width(self) -> int:
        """K, the width of one head."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """G, the number of key/value heads."""
        return self.n_kv_heads if self.n_kv_heads is not None else self.n_heads


@lru_cache(maxsize=64)
def blocks_of(config: StackConfig) -> tuple[StackConfig, ...]:
    """The settings of each block. Errors: `ConfigError` for blocks that are not there, or cannot be so.

    `layers` has parts with a semicolon between them, each the numbers of blocks as Python counts and slices them
    (several with commas), and what these have differently.
    """
    blocks, named = [replace(config, layers="")] * config.n_layers, dict[int, str]()
    for part in config.layers.split(";") if config.layers.strip() else ():
        words = part.split()
        if len(words) < 2:
            raise ConfigError(f"layers must be blocks and what they have differently; got {part.strip()!r}. {EXAMPLE}")
        changes = dict[Flat, object]()
        for each, value in (change_of(type(config), word) for word in words[1:]):
            if each in changes:
                raise ConfigError(f"layers may set {each.name} once for a block; got {part.strip()!r}. Remove one.")
            changes[each] = value
        for i in chosen(words[0], config.n_layers):
            if i in named:
                raise ConfigError(
                    f"layers may name a block once, but block {i} is in {named[i]!r} and in {part.strip()!r}. Put all "
                    "that it has differently into one part."
                )
            named[i] = part.strip()
            try:
                blocks[i] = changed(blocks[i], changes)
            except ConfigError as error:
                raise ConfigError(f"layers={part.strip()!r} makes block {i} impossible: {error}") from None
    return tuple(blocks)


def chosen(text: str, n_layers: int) -> list[int]:
    """The blocks that "0", "-1", "2::3" or several of these with commas name. Errors: `ConfigError`."""
    found: list[int] = []
    for each in text.split(","):
        match = NUMBERS.fullmatch(each)
        numbers = [int(bound) if bound else None for bound in match.groups()] if match else []
        if match is None or (":" in each and numbers[2] == 0):
            raise ConfigError(f"layers must name blocks as 0, -1 or 2::3; got {each!r}. {EXAMPLE}")
        all_blocks = range(n_layers)
        if ":" in each:
            named = list(all_blocks[slice(*numbers)])
        else:
            named = [all_blocks[int(each)]] if -n_layers <= int(each) < n_layers else []
        if not named:
            raise ConfigError(
                f"layers must name blocks that are there, 0 to {n_layers - 1}; got {each!r}. Change it, or n_layers."
            )
        found += named
    return found


def change_of(kind: type[StackConfig], word: str) -> tuple[Flat, object]:
    """A setting that blocks may have differently, and its value. Errors: `ConfigError`."""
    name, equals, text = word.rstrip(",").partition("=")
    known = {each.name: each for each in flat(kind) if rule_of(each.kind, each.path[-1]).varies}
    if not equals or name not in known:
        raise ConfigError(
            f"layers: {name!r} is nothing that blocks may have differently. {suggestion(name, known)} {EXAMPLE}"
        )
    found = known[name]
    try:
        return found, parse(annotations_of(found.kind)[found.path[-1]], text)
    except ValueError:
        raise ConfigError(f"layers: {name} cannot be {text!r}. Give a number, or none to unset it.") from None


def changed(config: StackConfig, changes: dict[Flat, object]) -> StackConfig:
    """The settings of a block: those of the stack, without what it no longer reads, and its own."""
    values: dict[tuple[str, ...], Any] = {each.path: value for each, value in changes.items()}
    for chooser in ("feed_forward", "positions"):
        if (chooser,) in values:
            for name in ignored(STACK, chooser, values[chooser,]):
                part = getattr(config, name.split(".")[0]) if "." in name else config
                values.setdefault(tuple(name.split(".")), getattr(type(part), name.split(".")[-1]))
    if values.get(("feed_forward",), "experts") != "experts":
        values.setdefault(("n_experts",), None)
    own = {path[0]: value for path, value in values.items() if len(path) == 1}
    for name in {path[0] for path in values if len(path) > 1}:
        inside = {path[1]: value for path, value in values.items() if path[0] == name}
        own[name] = replace(getattr(config, name), **inside)
    made = replace(config, **own)
    if made.positions != config.positions and {made.positions, config.positions} & {*ADDED}:
        raise ConfigError(
            f"positions={config.positions!r} and positions={made.positions!r} cannot differ between blocks, as "
            f"{', '.join(ADDED)} are added to the embedding, which all blocks read. Try positions='rotary' in the "
            "stack, with positions=none in these blocks."
        )
    if made.attention_rule == "linear" and made.head_width != config.head_width:
        raise ConfigError(
            "Linear attention decodes from a state of one size, so that heads cannot be of different width; got "
            f"{config.head_width} and {made.head_width}. Give d_head={config.head_width}."
        )
    return made


# DeepNorm: a larger residual and branches with smaller initial weights, so that deep post-norm stacks train.


class DeepNorm(NamedTuple):
    """The constants of one stack (Wang et al. 2022, DeepNet, figure 2)."""

    alpha: float
    """Multiplies x in norm(alpha x + branch(x))."""
    beta: float
    """Multiplies the initial weights of value, output and feed-forward maps, but not of query and key."""


def deepnorm(encoder_layers: int, decoder_layers: int) -> tuple[DeepNorm, DeepNorm]:
    """The constants (alpha, beta) of the encoder and of the decoder; those of a side with 0 layers mean nothing.

    One stack of N layers: (2N)^(1/4), (8N)^(-1/4). N encoder and M decoder layers: encoder 0.81 (N^4 M)^(1/16),
    0.87 (N^4 M)^(-1/16); decoder (3M)^(1/4), (12M)^(-1/4).
    """
    N, M = encoder_layers, decoder_layers
    if N and M:
        both = float(N**4 * M) ** (1 / 16)
        return DeepNorm(0.81 * both, 0.87 / both), DeepNorm((3 * M) ** 0.25, (12 * M) ** -0.25)
    alone = DeepNorm((2 * (N + M)) ** 0.25, (8 * (N + M)) ** -0.25)
    return alone, alone


@dataclass(frozen=True)
class ModelConfig:
    """A whole model: an encoder, a decoder or both, and a head over `vocab_size` tokens, labels or numbers.

    >>> from glassformer import ModelConfig, StackConfig
    >>> stack = StackConfig(d_model=32, n_heads=4, n_layers=2, d_ff=64)
    >>> ModelConfig(vocab_size=50, encoder=stack, decoder=stack).decoder.causal
    True
    """

    vocab_size: int | None = setting(None, 1, MOST_WIDE, recipe=False)
    """Tokens that the model reads or writes; None: neither."""
    encoder: StackConfig | None = setting(None, recipe=False)
    decoder: StackConfig | None = setting(None, recipe=False)
    source_vocab_size: int | None = setting(None, 1, MOST_WIDE, recipe=False)
    """Tokens of the source; None: source and target share one vocabulary."""
    tie_embeddings: bool = setting(True, after="max_len")
    """Weight tying: the head uses the target embedding matrix."""
    share_embeddings: bool = True
    """One embedding matrix for source and target, where they share a vocabulary."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(d_model), as in the paper."""
    scale_head: bool = False
    """Divide the inputs of a tied head by sqrt(d_model), as in T5."""
    head_bias: bool = setting(False, recipe=False)
    """Whether the head adds a bias to the score of each token."""
    silent: str = ""
    """Token ids that the head never predicts, with commas: the special tokens that an imported model lacks."""
    head: Output = field(default_factory=Lm)
    init: str = setting("xavier", known="glassformer.nn.initialize:INITS")
    """Weight initialisation: xavier, normal (GPT-2's), or zero: normal, but each branch adds nothing at first."""
    deepnorm: bool = setting(False, after="residual_scale")
    """DeepNorm: an enlarged residual and smaller initial weights, for deep post-norm stacks."""

    def __post_init__(self) -> None:
        check(self)
        refuse(self, MODEL)
        if self.decoder and not self.decoder.causal:
            object.__setattr__(self, "decoder", replace(self.decoder, causal=True))

    @property
    def silent_ids(self) -> tuple[int, ...]:
        """The ids that the head never predicts."""
        return tuple(map(int, self.silent.split(","))) if self.silent else ()

    @property
    def reads_tokens(self) -> bool:
        """Whether at least one stack reads tokens."""
        return any(each is not None and each.n_features is None for each in (self.encoder, self.decoder))

    @property
    def deepnorm_constants(self) -> tuple[DeepNorm, DeepNorm]:
        """DeepNorm's constants for the encoder and the decoder, whether `deepnorm` is set or not."""
        return deepnorm(*(0 if stack is None else stack.n_layers for stack in (self.encoder, self.decoder)))

    @property
    def built_stacks(self) -> tuple[StackConfig | None, StackConfig | None]:
        """Encoder and decoder as they are built: with `deepnorm`, its alpha is their `residual_scale`."""
        if not self.deepnorm:
            return self.encoder, self.decoder
        encoder, decoder = (
            stack and replace(stack, residual_scale=constants.alpha)
            for stack, constants in zip((self.encoder, self.decoder), self.deepnorm_constants, strict=True)
        )
        return encoder, decoder

    @property
    def stack(self) -> StackConfig:
        """The stack whose vectors the head reads: the decoder if there is one, else the encoder."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def one_vocabulary(self) -> bool:
        """Whether source and target share one vocabulary."""
        return self.source_vocab_size in (None, self.vocab_size)

    @property
    def shares_embeddings(self) -> bool:
        """Whether encoder and decoder share one embedding matrix."""
        stacks = (self.encoder, self.decoder)
        read_tokens = all(each is not None and each.n_features is None for each in stacks)
        return read_tokens and self.share_embeddings and self.one_vocabulary

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values, as stored in `config.json`."""
        return asdict(self) | {"head": output_to_dict(self.head)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`. Errors: `ConfigError` for an unknown key, with the most similar known one."""
        known = dict(values)
        for side in ("encoder", "decoder"):
            if known.get(side) is not None:
                known[side] = built(StackConfig, known[side], side)
        if known.get("deepnorm") is True:
            known |= _without_alpha(known.get("encoder"), known.get("decoder"))
        if known.get("head") is not None:
            known["head"] = output_from_dict(known["head"])
        return built(cls, known, "model")


def _without_alpha(encoder: StackConfig | None, decoder: StackConfig | None) -> dict[str, StackConfig | None]:
    """Remove DeepNorm's alpha from the stacks: old checkpoints stored it as the `residual_scale` that users set."""
    stacks = {"encoder": encoder, "decoder": decoder}
    constants = deepnorm(*(stack.n_layers if stack else 0 for stack in stacks.values()))
    return {
        side: replace(stack, residual_scale=1.0) if stack and stack.residual_scale == own.alpha else stack
        for (side, stack), own in zip(stacks.items(), constants, strict=True)
    }
