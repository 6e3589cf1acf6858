"""What contradicts what, as rows: the settings, when they are wrong together, the reason, and the remedy.

`refuse` reads a table. The rows see a config by the names of its settings alone, so that all tables stand here, except
that of the data, whose rows depend on kinds of tasks. Imports no torch.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# A row does not know the class of the config that it looks at.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from glassformer.base.errors import ConfigError, all_of


class Contradiction(NamedTuple):
    """A row: `reason` and `remedy` are formatted with `c`, the config, and `at`, the prefix of its settings' names."""

    settings: tuple[str, ...] | Callable[[Any], tuple[str, ...]]
    """Those whose values the message shows, the one to change first; "rotary.base" is one of a nested config."""
    wrong: Callable[[Any], Any]
    reason: str | Callable[[Any], str]
    remedy: str | Callable[[Any], str]
    owners: Sequence[str] = ()
    """Where the first setting is only read by some values of the second: these values."""


def refuse(config: object, table: Iterable[Contradiction], section: str = "") -> None:
    """Raise `ConfigError` for the first row of the table that is true of a config."""
    for row in table:
        if row.wrong(config):
            at = f"{section}." if section else ""
            names = row.settings if isinstance(row.settings, tuple) else row.settings(config)
            reason, remedy = (each if isinstance(each, str) else each(config) for each in (row.reason, row.remedy))
            came = values_of(config, names, reason, at)
            came = f"; got {came}." if came else "." if remedy[0].isupper() else ";"
            raise ConfigError(
                f"{reason.format(c=config, at=at)}{came} {remedy.format(c=config, at=at)}", setting=names[0]
            )


def values_of(config: object, names: Sequence[str], reason: str, at: str) -> str:
    """What came, as far as the reason does not show it."""
    values = {
        name: f"{attrgetter(name)(config)!r:.120}"
        for name in names
        if not re.search(rf"(?<!\w){name}=True|\{{c\.{name}\b", reason)
    }
    if len(names) == 1 and values and reason.startswith(f"{{at}}{names[0]} must"):
        return values[names[0]]
    return all_of([f"{at}{name}={value}" for name, value in values.items()])


def differs(config: object, name: str) -> bool:
    """Whether a setting is not its default."""
    *way, last = name.split(".")
    part = attrgetter(".".join(way))(config) if way else config
    return bool(getattr(part, last) != getattr(type(part), last))


def owned(
    names: Iterable[str], chooser: str, owners: Sequence[str], remedy: str = "Remove {at}{name}, or try {at}{choice}."
) -> list[Contradiction]:
    """Rows for settings that are ignored unless `chooser` has one of the values `owners`."""
    choices = [f"{chooser}={owners[0]!r}", *map(repr, owners[1:])]
    return [
        Contradiction(
            (name, chooser),
            lambda c, name=name: differs(c, name) and getattr(c, chooser) not in owners,
            f"{{at}}{name} belongs to {{at}}{all_of(choices, 'or')}",
            remedy.replace("{name}", name).replace("{choice}", choices[0]),
            owners,
        )
        for name in names
    ]


def ignored(table: Iterable[Contradiction], chooser: str, value: object) -> list[str]:
    """The settings that are not read if `chooser` has this value."""
    rows = (row.settings for row in table if row.owners and value not in row.owners)
    return [each[0] for each in rows if isinstance(each, tuple) and each[1] == chooser]


PATTERN = (
    *(
        Contradiction(
            tuple(dict.fromkeys((one, other))),
            lambda c, pair=(one, other): all(getattr(c, each) is not None for each in pair),
            "A pattern has only one of {at}window, {at}stride and {at}block",
            "Keep one, and remove the other.",
        )
        for one, other in (("window", "stride"), ("window", "block"), ("stride", "block"))
    ),
    *(
        Contradiction(
            (name, "window"),
            lambda c, name=name: differs(c, name) and c.window is None,
            f"{{at}}{name} needs a window",
            lambda c, name=name: "Try {at}window=128." if (c.stride or c.block) is None else f"Remove {{at}}{name}.",
        )
        for name in ("dilation", "global_tokens", "sinks")
    ),
    Contradiction(
        ("summary", "block"),
        lambda c: c.summary > 1 and c.block is None,
        "{at}summary needs a block",
        lambda c: "Try {at}block=128." if (c.window or c.stride) is None else "Remove {at}summary.",
    ),
    Contradiction(
        ("summary",),
        lambda c: c.block is not None and c.summary > c.block,
        "{at}summary must be at most {at}block={c.block}, as it counts keys of a block",
        lambda c: f"Try {{at}}summary={max(1, c.block // 8)}.",
    ),
    Contradiction(
        ("global_tokens", "sinks"),
        lambda c: c.global_tokens and c.sinks,
        "The first keys are either global tokens or sinks",
        "Set {at}sinks=0, as every query reads the global tokens too.",
    ),
)
"""Sparse attention."""
BACKWARD = tuple(
    Contradiction(
        (name, "causal"),
        lambda c, name=name: getattr(c, name) and not c.causal,
        f"{name} is defined only for causal attention",
        "Set causal=True, or use window with global_tokens.",
    )
    for name in ("stride", "block", "sinks")
)
"""Patterns that only read back."""

BANDED = ("yarn", "llama3")
"""The scalings of rotary positions that treat fast and slow pairs differently."""
ROTARY = (
    *(
        Contradiction(
            (name,),
            lambda c, name=name, users=users: getattr(c, name) is not None and c.scaling not in users,
            f"scaling={{c.scaling!r}} does not use {name}",
            f"Remove {name}, or choose a scaling that uses it.",
        )
        for name, users in (
            ("factor", ("linear", "ntk", *BANDED)),
            *((name, BANDED) for name in ("original_max_len", "slow_turns", "fast_turns")),
            ("attention_factor", ("yarn",)),
        )
    ),
    Contradiction(
        ("factor",),
        lambda c: c.scaling != "none" and c.factor is None,
        "scaling={c.scaling!r} needs factor",
        "Try factor=4.0.",
    ),
    Contradiction(
        ("original_max_len",),
        lambda c: c.scaling in BANDED and c.original_max_len is None,
        "scaling={c.scaling!r} needs original_max_len",
        "Try original_max_len=2048.",
    ),
    Contradiction(
        ("turns",),
        lambda c: c.scaling in BANDED and not 0.0 < c.turns[0] < c.turns[1] < float("inf"),
        "slow_turns must be above 0 and below fast_turns, which must be finite",
        lambda c: f"Try slow_turns=1.0 and fast_turns={32.0 if c.scaling == 'yarn' else 4.0}.",
    ),
)
"""The scaling of rotary positions."""

BIASED = ("alibi", "t5")
"""Position schemes that add a bias of its own to each head's scores."""
ADDS_TO_SCORES = (*BIASED, "shaw")
"""Position schemes that need scores to add to, and so read the heads."""
SHOWS_WEIGHTS = ("auto", "reference", "matmul")
"""Attention backends that hold their weights, which a bias on the values (per pair of query and key) needs."""
STACK = (
    Contradiction(
        ("d_model", "n_heads"),
        lambda c: c.d_head is None and c.d_model % c.n_heads,
        "d_model ({c.d_model}) must be a multiple of n_heads ({c.n_heads}) unless d_head is given",
        lambda c: (
            f"try n_heads={nearest_divisor(c.d_model, c.n_heads)}, or "
            f"d_model={max(c.n_heads, round(c.d_model / c.n_heads) * c.n_heads)}."
        ),
    ),
    Contradiction(
        ("n_heads", "kv_heads"),
        lambda c: c.n_heads % c.kv_heads,
        "n_heads ({c.n_heads}) must be a multiple of n_kv_heads ({c.kv_heads})",
        lambda c: f"try n_kv_heads={nearest_divisor(c.n_heads, c.kv_heads)}.",
    ),
    Contradiction(
        ("positions", "max_len"),
        lambda c: c.positions == "learned" and c.max_len is None,
        "positions='learned' needs max_len, the number of positions to learn",
        "Try max_len=512.",
    ),
    Contradiction(
        ("embedding_norm", "norm"),
        lambda c: c.embedding_norm and c.norm == "none",
        "embedding_norm=True needs a norm",
        "Set embedding_norm=False, or try norm='layer'.",
    ),
    Contradiction(
        ("feed_forward", "n_experts"),
        lambda c: (c.feed_forward == "experts") != (c.n_experts is not None),
        "feed_forward='experts' and n_experts go together",
        "Try feed_forward='experts' with n_experts=8, or feed_forward='plain' without n_experts.",
    ),
    *owned(
        ("experts_per_token", "expert", "balance_loss", "router_z_loss"),
        "feed_forward",
        ("experts",),
        "Remove {name}, or try {choice} with n_experts=8.",
    ),
    Contradiction(
        ("experts_per_token", "n_experts"),
        lambda c: c.n_experts is not None and c.experts_per_token > c.n_experts,
        "experts_per_token ({c.experts_per_token}) must be at most n_experts ({c.n_experts})",
        lambda c: f"try experts_per_token={min(2, c.n_experts)}.",
    ),
    Contradiction(
        ("final_norm", "norm"),
        lambda c: c.norm == "none" and c.final_norm,
        "final_norm=True needs a norm",
        "Remove final_norm, or try norm='layer'.",
    ),
    Contradiction(
        ("norm_placement", "residual_scale"),
        lambda c: c.parallel_branches and (c.norm_placement == "post" or c.residual_scale != 1.0),
        "parallel_branches=True adds all branches to the block's input, in one sum, which these would change after the "
        "first",
        "Try norm_placement='pre' with residual_scale=1.0.",
    ),
    *BACKWARD,
    *owned(("softcap",), "attention_rule", ("softcap",)),
    Contradiction(
        ("attention_dropout",),
        lambda c: c.attention == "flex" and c.attention_dropout,
        "attention='flex' does not store attention weights, so it cannot drop any",
        "Set attention_dropout=0.0, or try attention='auto'.",
    ),
    Contradiction(
        ("attention_scale",),
        lambda c: c.attention_rule == "linear" and c.attention_scale is not None,
        "Linear attention divides its products by their sum, so a scale would cancel out",
        "Remove attention_scale, or try attention_rule='softmax'.",
    ),
    Contradiction(
        ("positions",),
        lambda c: c.attention_rule == "linear" and c.positions in ADDS_TO_SCORES,
        "positions={c.positions!r} adds to attention scores, and linear attention has none",
        "Try positions='rotary', or attention_rule='softmax'.",
    ),
    Contradiction(
        ("pattern",),
        lambda c: c.attention_rule == "linear" and c.pattern is not None,
        "Linear attention reads all keys so far, so it cannot have a sparse pattern",
        "Remove these settings, or try attention_rule='softmax'.",
    ),
    Contradiction(
        ("attention_dropout",),
        lambda c: c.attention_rule == "linear" and c.attention_dropout,
        "Linear attention never computes attention weights, so it cannot drop any",
        "Set attention_dropout=0.0.",
    ),
    *owned(
        [
            f"rotary.{name}"
            for name in (
                *("base", "layout", "share", "scaling", "factor", "original_max_len"),
                *("slow_turns", "fast_turns", "attention_factor"),
            )
        ],
        "positions",
        ("rotary",),
    ),
    *owned(("relative.n_buckets", "relative.max_distance"), "positions", ("t5",)),
    *owned(("relative.clip_distance",), "positions", ("shaw",)),
    Contradiction(
        ("attention",),
        lambda c: c.positions == "shaw" and c.attention not in SHOWS_WEIGHTS,
        "positions='shaw' adds to the value of each query-key pair, so it needs a backend that stores attention "
        f"weights: {', '.join(map(repr, SHOWS_WEIGHTS))}",
        "Try attention='auto'.",
    ),
)
"""One stack of a model."""

MODEL = (
    Contradiction(
        ("encoder", "decoder"),
        lambda c: c.encoder is None and c.decoder is None,
        "A model needs an encoder, a decoder or both",
        "Give encoder=StackConfig(...).",
    ),
    Contradiction(
        ("encoder.d_model", "decoder.d_model"),
        lambda c: c.encoder and c.decoder and c.encoder.d_model != c.decoder.d_model,
        "encoder and decoder must have the same d_model, as the decoder reads the encoder's memory",
        "Make them equal.",
    ),
    Contradiction(
        ("encoder.causal",),
        lambda c: c.encoder and c.encoder.causal and c.decoder,
        "The encoder of an encoder-decoder reads both ways",
        "Set encoder.causal=False.",
    ),
    Contradiction(
        ("init",),
        lambda c: c.deepnorm and c.init != "xavier",
        "deepnorm=True scales the weights of Xavier initialisation",
        "Try init='xavier'.",
    ),
    *(
        Contradiction(
            (f"{side}.norm_placement", f"{side}.norm"),
            lambda c, side=side: (
                (own := getattr(c, side)) and c.deepnorm and (own.norm_placement != "post" or own.norm == "none")
            ),
            "deepnorm=True needs a norm after the sum",
            "Try norm_placement='post' with norm='layer'.",
        )
        for side in ("encoder", "decoder")
    ),
    *(
        Contradiction(
            (f"{side}.residual_scale",),
            lambda c, side=side: (own := getattr(c, side)) and c.deepnorm and own.residual_scale != 1.0,
            f"deepnorm=True sets the residual scale of the {side} itself ({{c.deepnorm_constants[{i}].alpha:.4g}})",
            "Remove residual_scale.",
        )
        for i, side in enumerate(("encoder", "decoder"))
    ),
    *(
        Contradiction(
            (f"{side}.norm_placement",),
            lambda c, side=side: (
                c.init == "zero"
                and (own := getattr(c, side))
                and own.norm != "none"
                and own.norm_placement in ("output", "sandwich")
            ),
            "init='zero' needs branches without a norm after them",
            "Try norm_placement='pre', or init='normal'.",
        )
        for side in ("encoder", "decoder")
    ),
    Contradiction(
        ("source_vocab_size",),
        lambda c: not c.one_vocabulary and not (c.encoder and c.decoder),
        "source_vocab_size ({c.source_vocab_size}) belongs to an encoder-decoder; a model with one stack has only "
        "vocab_size",
        "Remove source_vocab_size.",
    ),
    Contradiction(
        ("vocab_size",),
        lambda c: c.vocab_size is None and c.head.kind == "lm",
        "vocab_size must be given, as the model outputs tokens",
        "Try vocab_size=8000.",
    ),
    Contradiction(
        ("vocab_size",),
        lambda c: c.vocab_size is None and c.reads_tokens,
        "vocab_size must be given, as the model reads tokens",
        "Try vocab_size=8000.",
    ),
    Contradiction(
        ("stack.n_features",),
        lambda c: c.head.kind == "lm" and c.tie_embeddings and c.stack.n_features is not None,
        "tie_embeddings=True makes the head share the embedding's matrix, but a stack that reads features has no "
        "embedding",
        "Set tie_embeddings=False.",
    ),
    Contradiction(
        ("encoder.n_segments", "decoder.n_segments"),
        lambda c: c.encoder and c.decoder and (c.encoder.n_segments or c.decoder.n_segments),
        "n_segments marks the parts of a text in a model with one stack; an encoder-decoder reads its two texts in two "
        "stacks",
        "Remove n_segments, or use one stack.",
    ),
    Contradiction(
        ("head.kind", "tie_embeddings"),
        lambda c: c.scale_head and not (c.head.kind == "lm" and c.tie_embeddings),
        "scale_head=True needs the head of a language model, tied to the embedding",
        "Set scale_head=False, or tie_embeddings=True with head=Lm().",
    ),
    Contradiction(
        ("silent",),
        lambda c: not all(each.isascii() and each.isdecimal() for each in c.silent.split(",") if c.silent),
        "{at}silent must be token ids with commas between them",
        "Try '0,1'.",
    ),
    Contradiction(
        ("head.kind", "head_bias"),
        lambda c: c.silent and (c.head.kind != "lm" or c.head_bias),
        "silent takes the place of the bias of a head over tokens",
        "Remove silent.",
    ),
    Contradiction(
        ("stack.norm",),
        lambda c: getattr(c.head, "transform", None) is not None and c.stack.norm == "none",
        "head.transform includes a norm, of the same kind as in the stack",
        "Remove head.transform, or try norm='layer'.",
    ),
    Contradiction(
        ("stack.causal",),
        lambda c: getattr(c.head, "pooling", None) == "first" and c.stack.causal,
        "pooling='first' takes the first vector, which in a causal stack has read only its own token",
        "Use pooling='mean' or 'attention', or a stack that reads both ways.",
    ),
)
"""A whole model."""


TRAINING = (
    *(
        Contradiction(
            (start, warmup),
            lambda c, start=start, warmup=warmup: differs(c, start) and not getattr(c, warmup),
            f"{{at}}{start} is where {{at}}{warmup} begins, which is off",
            f"Remove {{at}}{start}, or try {{at}}{warmup}=100.",
        )
        for start, warmup in (("batch_start", "batch_warmup"), ("length_start", "length_warmup"))
    ),
    Contradiction(
        ("min_learning_rate",),
        lambda c: c.min_learning_rate > c.learning_rate,
        "{at}min_learning_rate ({c.min_learning_rate}) must be at most {at}learning_rate ({c.learning_rate}), from "
        "which the schedule decays",
        "lower the first or raise the second.",
    ),
    *owned(("min_learning_rate",), "schedule", ("cosine", "linear", "inverse_square_root", "wsd")),
    *owned(("cooldown",), "schedule", ("wsd",)),
    Contradiction(
        ("start_from",),
        lambda c: c.start_from == "",
        "{at}start_from must name a run folder",
        "Name one, or remove {at}start_from.",
    ),
)
"""How the weights are found."""
SCHEDULE = owned(("cooldown",), "name", ("wsd",))
OPTIMIZER = (
    *owned(("beta1", "beta2", "epsilon"), "name", ("adamw", "muon")),
    *owned(("momentum", "adamw_scale"), "name", ("muon",)),
)


def undrawn(c: Any) -> list[str]:
    """The settings of sampling that are given, and that nothing reads where nothing is drawn."""
    return [name for name in c.drawn[bool(c.contrastive_alpha) :] if differs(c, name)]


SAMPLING = (
    Contradiction(
        ("contrastive_alpha", "temperature"),
        lambda c: c.contrastive_alpha and c.temperature,
        "Contrastive search does not sample",
        "Set one of them to 0.0.",
    ),
    Contradiction(
        lambda c: tuple(undrawn(c)),
        lambda c: c.temperature == 0 and undrawn(c),
        lambda c: (
            f"{all_of(['{at}' + name for name in undrawn(c)])} {'selects' if len(undrawn(c)) == 1 else 'select'} the "
            "tokens to sample from, but {at}temperature=0 does not sample"
        ),
        lambda c: (
            f"Try {{at}}temperature=1.0, or remove {f'{{at}}{undrawn(c)[0]}' if len(undrawn(c)) == 1 else 'them'}."
        ),
    ),
)
"""How the next token is chosen."""
BEAM = (
    Contradiction(
        ("beam", "beam_groups"),
        lambda c: c.beam % c.beam_groups,
        "{at}beam_groups must divide {at}beam evenly",
        lambda c: f"Try {{at}}beam={c.beam_groups * max(1, c.beam // c.beam_groups)}.",
    ),
    *(
        Contradiction(
            ("beam",),
            lambda c, name=name: c.beam == 1 and getattr(c, name),
            f"{{at}}{name} needs beam-search decoding",
            f"Try {{at}}beam=4, or remove {{at}}{name}.",
        )
        for name in ("coverage_penalty", "early_stop")
    ),
)
"""How answers are searched for."""
DECODE = (
    Contradiction(
        ("compile", "cache"),
        lambda c: c.compile and c.cache == "int8",
        "Compiled steps need an exact KV cache",
        "Set {at}compile=false, or {at}cache='exact'.",
    ),
    Contradiction(
        ("beam", "contrastive_alpha"),
        lambda c: c.beam > 1 and c.contrastive_alpha,
        "Beam search and contrastive search cannot be combined",
        "Set {at}beam=1, or {at}contrastive_alpha=0.0.",
    ),
    Contradiction(
        ("beam", "temperature"),
        lambda c: c.beam > 1 and c.temperature,
        "Beam search keeps the likeliest answers and does not sample",
        "Set {at}temperature=0.0, or {at}beam=1.",
    ),
)
"""How answers are written."""
SERVE = (
    Contradiction(
        ("queue",),
        lambda c: c.waiting < c.rows,
        "{at}queue must be at least rows={c.rows}, because one request may have that many prompts",
        lambda c: f"Set queue={c.rows}, or rows={c.queue}.",
    ),
)
"""A server."""


def nearest_divisor(whole: int, wanted: int) -> int:
    """The divisor of `whole` nearest to `wanted`."""
    return min((n for n in range(1, whole + 1) if whole % n == 0), key=lambda n: (abs(n - wanted), n))
