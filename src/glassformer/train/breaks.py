"""The classic mistakes that a run can be trained with: what is broken, and the symptom to watch. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from glassformer.base.contradictions import BIASED
from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Classify, Lm


class Break(NamedTuple):
    """One mistake. `against` returns why a model cannot have it, in words; None: it can, as any model by default."""

    what: str
    symptom: str
    against: Callable[[ModelConfig], str | None] = lambda config: None


def stacks(config: ModelConfig) -> list[StackConfig]:
    """The model's one or two stacks."""
    return [each for each in (config.encoder, config.decoder) if each is not None]


def one_head(config: ModelConfig) -> str | None:
    """A mistake among heads needs at least two of them."""
    return "it needs two heads" if all(each.n_heads == 1 for each in stacks(config)) else None


def parallel(config: ModelConfig) -> str | None:
    """All branches of a parallel block read one input, which the output of none of them can replace."""
    return "the branches of a block are parallel" if any(each.parallel_branches for each in stacks(config)) else None


def one_layer(config: ModelConfig) -> str | None:
    """A mistake among layers needs at least two in one stack."""
    return "it needs a stack of two layers" if all(each.n_layers == 1 for each in stacks(config)) else None


def scale_of(stack: StackConfig) -> float:
    """The factor of q k^T."""
    return stack.head_width**-0.5 if stack.attention_scale is None else stack.attention_scale


def unscaled_scores(config: ModelConfig) -> str | None:
    """No scale can be missing in linear attention, whose weights it does not change, or if it is 1."""
    if all(scale_of(each) == 1.0 for each in stacks(config)):
        return "scores are multiplied by 1 already"
    return "linear attention has no scale" if config.stack.attention_rule == "linear" else None


def same_width(config: ModelConfig) -> str | None:
    """With one head the two widths are the same."""
    if config.stack.attention_rule == "linear":
        return unscaled_scores(config)
    same = all(scale_of(each) == each.d_model**-0.5 for each in stacks(config))
    return "scores are divided by the root of the model's width already" if same else None


def heads_with_a_bias(config: ModelConfig) -> str | None:
    """Biases such as those of ALiBi and T5, one per head, already make heads differ."""
    biased = any(each.positions in BIASED for each in stacks(config))
    return one_head(config) or (f"positions={config.stack.positions!r} makes heads differ" if biased else None)


def not_causal(config: ModelConfig) -> str | None:
    """Only a causal mask can leak."""
    if not config.stack.causal:
        return "no stack is causal"
    if config.stack.window == 1:
        return "with model.window = 1 a query reads itself alone"
    try:
        if config.stack.pattern is not None:
            config.stack.pattern.check_causal(False)
    except ConfigError:
        return "its pattern is one of causal attention"
    return None


def no_order(config: ModelConfig) -> str | None:
    """Positions that a model does not have cannot be lost."""
    return "model.positions is 'none' already" if config.stack.positions == "none" else None


def no_memory(config: ModelConfig) -> str | None:
    """Only an encoder-decoder has cross-attention."""
    return "there is no cross-attention" if len(stacks(config)) == 1 else None


def no_scale_there(config: ModelConfig) -> str | None:
    """A model whose embeddings are not scaled, or by 1, or that has none, cannot lose their scale."""
    if config.stack.n_features is not None:
        return "it reads numbers, which are not embedded"
    if not config.scale_embeddings:
        return "model.scale_embeddings is false already"
    return "the root of model.d_model is 1" if all(each.d_model == 1 for each in stacks(config)) else None


def no_dropout(config: ModelConfig) -> str | None:
    """Dropout that a model does not have cannot stay on."""
    names = ("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "stochastic_depth")
    chances = [getattr(each, name) for each in stacks(config) for name in names]
    return None if any((*chances, getattr(config.head, "dropout", 0.0))) else "the recipe has no dropout"


def no_token_labels(config: ModelConfig) -> str | None:
    """A mistake about the labels of tokens needs such labels."""
    if isinstance(config.head, Classify):
        return "a text has one label, not one for each token"
    return None if isinstance(config.head, Lm) else "a place is asked for what belongs there, and nothing is shifted"


def no_next_token(config: ModelConfig) -> str | None:
    """Only a model that writes from left to right has a next token."""
    return no_token_labels(config) or (None if config.stack.causal else "blanks are filled in place, nothing is next")


def no_pooling(config: ModelConfig) -> str | None:
    """Only a head that pools can pool padding, and the first position is never padding."""
    pooling = getattr(config.head, "pooling", None)
    return "the head pools nothing" if pooling is None else "pooling='first' reads one" if pooling == "first" else None


def no_cache_places(config: ModelConfig) -> str | None:
    """A position cannot be wrong if nobody reads it, or if it adds the same to all scores of a query."""
    if not config.stack.causal or not isinstance(config.head, Lm):
        return "there is no cache"
    unread = config.stack.positions in ("none", "alibi", "shaw")
    return f"positions={config.stack.positions!r} depends on distances alone" if unread else None


BREAKS: dict[str, Break] = {
    "no-scale": Break(
        "Attention scores are not divided by the square root of the head width.",
        "The softmax is sharp from the start: the loss falls more slowly, the more so the wider the heads.",
        unscaled_scores,
    ),
    "wrong-scale": Break(
        "Attention scores are divided by the square root of d_model instead of the head width.",
        "Attention stays near uniform for long: little to see on a small model, which is what makes it treacherous.",
        same_width,
    ),
    "swapped-heads": Break(
        "Heads are merged by a reshape without the transpose, so a position gets pieces of other positions.",
        "The training loss still falls, even too well; what the model generates by itself is wrong.",
        one_head,
    ),
    "alike-heads": Break(
        "All heads of a layer start with the same weights.",
        "They get the same gradients and stay identical forever: many heads learn what one would.",
        heads_with_a_bias,
    ),
    "leaky-mask": Break(
        "The causal mask is missing: a position reads the tokens it is to predict.",
        "The loss quickly falls to nearly 0, and nothing the model generates by itself is right.",
        not_causal,
    ),
    "no-padding-mask": Break(
        "The padding mask is missing: padding is read like any token.",
        "The same sentence gets another answer in another batch. Without padding in the data there is nothing to see.",
    ),
    "no-positions": Break(
        "Positions are missing: the model sees a sequence as a set.",
        "The loss stops at what can be known without order; for reverse and copy that is little.",
        no_order,
    ),
    "no-residual": Break(
        "The residual connection is missing: the output of a branch replaces its input.",
        "The loss hardly falls; the deeper the stack, the less.",
        parallel,
    ),
    "no-cross-attention": Break(
        "The decoder never reads the encoder.",
        "The loss stops at that of a language model; every source gets nearly the same answer.",
        no_memory,
    ),
    "shared-layers": Break(
        "The first layer of a stack runs again in place of all others.",
        "The loss ends higher than that of as many layers; most weights never change.",
        one_layer,
    ),
    "identical-layers": Break(
        "All layers of a stack start as copies of the first one.",
        "It learns, somewhat more slowly; the copies diverge only gradually.",
        one_layer,
    ),
    "unscaled-init": Break(
        "Embedding and head are initialised from N(0, 1), and the norm before the head with weight 1.",
        "The first loss is far above that of guessing, ln V, and the first hundreds of steps are spent unlearning it.",
    ),
    "no-embedding-scale": Break(
        "Embeddings are not multiplied by the square root of d_model.",
        "Sinusoidal positions drown out the tokens: a slow start.",
        no_scale_there,
    ),
    "dropout-in-evaluation": Break(
        "Dropout stays on in evaluation.",
        "Dev figures are worse than the weights can do, and two evaluations of the same weights differ.",
        no_dropout,
    ),
    "shifted-labels": Break(
        "Labels are shifted twice: a position predicts the token after the next.",
        "The loss falls more slowly; generated text skips every second token, or repeats itself.",
        no_token_labels,
    ),
    "unshifted-labels": Break(
        "Labels are not shifted: a position predicts the token it reads.",
        "The loss falls to 0 in a few steps, and the model generates <bos> or the same token forever.",
        no_next_token,
    ),
    "pads-in-loss": Break(
        "Padding counts as a target in the loss.",
        "The more padding, the better the loss looks. Without padding in the data there is nothing to see.",
        no_token_labels,
    ),
    "pads-in-pooling": Break(
        "The pooled vector of a text includes its padding.",
        "The same text gets another label in another batch.",
        no_pooling,
    ),
    "cache-off-by-one": Break(
        "In decoding, a new token gets the position of the one before it.",
        "The loss is as good as ever, but generated text is wrong from the second token on.",
        no_cache_places,
    ),
}
"""The mistakes by the name that `--break` takes; most are reported again and again in the field's issue threads."""

CONTRARY = (
    {"no-scale", "wrong-scale"},
    {"shifted-labels", "unshifted-labels"},
    {"shared-layers", "identical-layers"},
)
"""Mistakes that exclude each other."""


def break_names(text: str | None) -> list[str]:
    """The mistakes in `training.broken`, each once. Errors: `ConfigError` for an unknown name, with the nearest."""
    names = [each.strip() for each in (text or "").split(",")]
    found = list(dict.fromkeys(each for each in names if each))
    for name in found:
        lookup(BREAKS, name, "training.broken (--break)")
    if text is not None and not found:
        raise ConfigError(
            f"training.broken (--break) takes names of mistakes, separated by commas; got {text!r}. Remove it."
        )
    for two in CONTRARY:
        if two <= {*found}:
            one, other = sorted(two)
            raise ConfigError(f"{one} and {other} change the same place, so only one of them is possible. Remove one.")
    return found


def check_possible(names: list[str], config: ModelConfig) -> None:
    """Refuse a mistake that this model cannot have, before any training. Errors: `ConfigError` saying why."""
    for name in names:
        if (reason := BREAKS[name].against(config)) is not None:
            possible = ", ".join(each for each in BREAKS if BREAKS[each].against(config) is None)
            raise ConfigError(
                f"The mistake {name} is not possible in this model, as {reason}. Possible here: {possible}."
            )
