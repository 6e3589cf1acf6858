"""Letting a model of any shape read a text: its input, its answer, and which position predicts which token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Tensor
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP, Tokenizer
from glassformer.decode.answer import limit_of
from glassformer.decode.blanks import fill_blanks
from glassformer.lens.trace.answering import USUAL_MANNER, Ids, Manner, write
from glassformer.lens.trace.beams import Tree
from glassformer.nn.outputs import Classify, Lm
from glassformer.nn.transformer import Transformer

MOST_TOKENS = 4096
"""The most tokens of a sequence in a trace: its attention has 16 million weights per head."""
USUAL_TOKENS = 40
"""The default length of a continuation."""


class Layout(NamedTuple):
    """How a run lays out its texts; a model trained on pairs needs none of these settings."""

    begins: bool = True
    """Whether a decoder's text begins with <bos>, as documents do."""
    masked: bool = False
    """Whether an encoder reads the text as it is and predicts each token again, as a masked language model does."""
    window: int | None = None
    """The most tokens that a decoder reads at once; None: as many as the model allows."""


USUAL = Layout()


class Reading(NamedTuple):
    """The input of a model and its output, position by position."""

    mode: str
    """"generate", "forced" (the tokens were given), "fill" (an encoder's blanks) or "label"."""
    source: list[int] | None
    """What the encoder of an encoder-decoder reads, <eos> included."""
    tokens: list[int]
    """What the stack below the head reads."""
    said: list[int | None]
    """The token that was chosen at each position of `tokens`; None where none is predicted."""
    gold: list[int | None]
    """The correct token at each position, where it is known."""
    n_prompt: int = 0
    """How many of `tokens` were given."""
    fast: tuple[Tensor, ...] = ()
    """The logits from which each generated token was chosen, by cached decoding."""
    beams: Tree | None = None
    """The hypotheses of a beam search."""


def read(
    model: Transformer,
    source: Ids,
    target: Ids | None,
    gold: Ids | None,
    *,
    layout: Layout = USUAL,
    manner: Manner = USUAL_MANNER,
) -> Reading:
    """Let the model answer, unless the `target` is given. Errors: `ConfigError`, `DataError`."""
    config = model.config
    check_manner(model, target, manner)
    if not config.reads_tokens or any(s is not None and s.n_features for s in (config.encoder, config.decoder)):
        raise ConfigError("A trace shows tokens; this model reads features. Use observe(model) to see its attention.")
    if isinstance(config.head, Classify):
        return Reading("label", None, [BOS, *source], [None] * (len(source) + 1), [None] * (len(source) + 1))
    if not isinstance(config.head, Lm):
        raise ConfigError(
            f"A trace shows tokens or a label; this model has head {config.head.kind!r}. Use observe(model) instead."
        )
    if not config.stack.causal:
        return _masked(model, source) if layout.masked else _blanks(model, source, target, gold)
    if config.encoder is None:
        return _continued(model, source, target, layout, manner)
    return _answered(model, source, target, gold, manner)


def check_manner(model: Transformer, target: Ids | None, manner: Manner) -> None:
    """Raise `ConfigError` for settings of how to write an answer where the model writes none."""
    wished = [name for name, given in (("begin", manner.begin), ("beam", manner.search.beam > 1)) if given]
    if not wished:
        return
    if target is not None:
        raise ConfigError(f"With a target the model writes nothing, so {wished[0]} has no effect. Leave one out.")
    if not isinstance(model.config.head, Lm) or not model.config.stack.causal:
        raise ConfigError(
            f"{wished[0]} is for models that write their answer token by token; this one does not. Leave it out."
        )


def _answered(model: Transformer, source: Ids, target: Ids | None, gold: Ids | None, manner: Manner) -> Reading:
    limit = limit_of(model, source, manner.most).tokens
    if target is not None:
        said, fast, beams = [*target, EOS], (), None
    else:
        said, fast, beams = write(model, manner, limit, sources=[source], prompts=None)
    right = None if (known := target if gold is None else gold) is None else [*known, EOS]
    mode = "generate" if target is None else "forced"
    read = [BOS, *said[:-1]]
    return Reading(mode, [*source, EOS], read, [*said], padded(right, len(read)), 1, fast, beams)


def _continued(model: Transformer, prompt: Ids, target: Ids | None, layout: Layout, manner: Manner) -> Reading:
    given = [BOS, *prompt] if layout.begins else [*prompt]
    if not given:
        raise DataError("This model continues a text; got an empty one. Give at least one token.")
    limits = [each for each in (layout.window, model.config.stack.max_len, MOST_TOKENS) if each is not None]
    room = min(limits) + 1 - len(given)
    if room < 1:
        raise DataError(
            f"A text may have at most {min(limits)} tokens here, including special ones; got {len(given)}. Shorten it."
        )
    if target is not None:
        said, fast, beams = [*target], (), None
    else:
        asked = min(len(manner.begin) + USUAL_TOKENS if manner.most is None else manner.most, room)
        said, fast, beams = write(model, manner, asked, sources=None, prompts=[given])
    if len(said) > room:
        raise DataError(
            f"Text and target together may have at most {min(limits)} tokens; got {len(given) + len(said)}. Shorten it."
        )
    whole = [*given, *said]
    right: list[int | None] = [*whole[1:]] if target is not None else [*given[1:], *[None] * len(said)]
    mode = "generate" if target is None else "forced"
    return Reading(mode, None, whole[:-1], [*whole[1:]], right, len(given), fast, beams)


def _blanks(model: Transformer, source: Ids, target: Ids | None, gold: Ids | None) -> Reading:
    right = gold if target is None else target
    length = len(source) if right is None else len(right)
    (filled,) = fill_blanks(model, [source], [length])
    before = len(source) + 1
    tokens = [*source, SEP, *[BLANK] * length]
    known: list[int | None] = [None] * before + padded(right, length)
    return Reading("fill", None, tokens, [None] * before + [*filled], known, before)


def _masked(model: Transformer, text: Ids) -> Reading:
    if not text:
        raise DataError("This model predicts each token of a text; got an empty one. Give at least one token.")
    return Reading("forced", None, [*text], [*text], [*text], len(text))


def padded(ids: Ids | None, length: int) -> list[int | None]:
    """Return `ids`, cut to a length or padded with None."""
    return [*(ids or [])[:length], *[None] * (length - len(ids or []))]


Text = str | Sequence[int]


def as_ids(text: Text, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text; ids stay as they are. Errors: `DataError` for more than a trace allows."""
    ids = tokenizer.encode(text) if isinstance(text, str) else [*text]
    if len(ids) > MOST_TOKENS:
        raise DataError(f"A trace may have at most {MOST_TOKENS} tokens per side; got {len(ids)}. Shorten the text.")
    return ids


def both(tokenizer: Tokenizer | Tokenizers) -> Tokenizers:
    """Return the tokenizers of both sides; a single one serves both."""
    return Tokenizers(tokenizer, tokenizer) if isinstance(tokenizer, Tokenizer) else tokenizer
