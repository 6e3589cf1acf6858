"""Letting a model of any shape read a text: its input, its answer, and which position predicts which token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, SEP, Tokenizer
from glassformer.decode.answer import check_choice, fill_blanks, limit_of, nothing
from glassformer.decode.beam import Hypothesis, beam_search
from glassformer.decode.choose import chooser
from glassformer.decode.constraints import begins_with
from glassformer.decode.filters import Context, filters_of
from glassformer.decode.generate import generate
from glassformer.decode.settings import GREEDY, ONE_BEAM, BeamSettings, Sampling
from glassformer.lens.trace.file import brief
from glassformer.nn.outputs import Classify, Lm, Regress, Tag
from glassformer.nn.transformer import Transformer

Ids = Sequence[int]


class Manner(NamedTuple):
    """How to write an answer: arguments of `trace`."""

    sampling: Sampling = GREEDY
    max_new_tokens: int | None = None
    """The most tokens of the answer; None: the usual number for the model's shape."""
    search: BeamSettings = ONE_BEAM
    begin: Ids = ()
    """Forced prefix: the answer begins with these tokens, whatever the model predicts."""
    heard: Callable[[int], None] | None = None
    """Called with each token as it is written; with a beam, for each token of the best answer once it is found."""
    poll: Callable[[], None] = nothing
    """Called before each step; if it raises, the writing ends."""


USUAL_MANNER = Manner()


def write(
    model: Transformer, manner: Manner, most: int, *, sources: list[Ids] | None, prompts: list[Ids] | None
) -> tuple[list[int], Tree | None]:
    """Write the answer to one row, of up to `most` tokens; with a beam, return its tree too.

    Errors: `ConfigError` if the forced prefix is longer.
    """
    check_choice(model, manner.sampling, manner.search)
    if len(manner.begin) > most:
        raise ConfigError(
            f"An answer may have at most {most} tokens here; got {len(manner.begin)} tokens to begin with. Allow more, "
            "or begin with fewer."
        )
    if manner.search.beam > 1:
        return _searched(model, manner, most, sources, prompts)
    return _chosen(model, manner, most, sources, prompts), None


def _chosen(
    model: Transformer, manner: Manner, most: int, sources: list[Ids] | None, prompts: list[Ids] | None
) -> list[int]:
    choose = chooser(manner.sampling, [begins_with(manner.begin)])

    def polled(logits: Tensor, context: Context) -> Tensor:
        manner.poll()
        return choose(logits, context)

    answer_ids: list[int] = []
    for step in generate(model, sources=sources, prompts=prompts, max_new_tokens=most, choose=polled):
        answer_ids.append(step.tokens[0])
        if manner.heard is not None:
            manner.heard(answer_ids[-1])
    return answer_ids


def _searched(
    model: Transformer, manner: Manner, most: int, sources: list[Ids] | None, prompts: list[Ids] | None
) -> tuple[list[int], Tree]:
    tree = Tree(manner.search)
    (found,) = beam_search(
        model,
        manner.search,
        sources=sources,
        prompts=prompts,
        max_new_tokens=most,
        n_best=manner.search.beam,
        filters=[*filters_of(manner.sampling), tree, begins_with(manner.begin)],
        poll=manner.poll,
    )
    tree.end(found)
    answer_ids = [*found[0].ids, *[EOS] * found[0].complete]
    if manner.heard is not None:
        for token in answer_ids:
            manner.heard(token)
    return answer_ids, tree


# The tree of a beam search: every hypothesis that was extended at some step, and the answers that were found.

Beginning = tuple[int, ...]


@dataclass
class Node:
    """A hypothesis: a prefix of an answer, or a complete one."""

    log_p: float
    """The log-probability of all its tokens, in nats."""
    score: float | None = None
    """For an answer, the score by which the search ranked it."""
    rank: int | None = None
    """For an answer, how many were better."""


class Tree:
    """A filter that changes no logits and records the search for one row.

    It sees the logits before later filters, which may remove tokens.
    """

    def __init__(self, search: BeamSettings) -> None:
        self.search = search
        self.nodes: dict[Beginning, Node] = {(): Node(0.0)}
        self.before: dict[Beginning, Float[Tensor, " V"]] = {}
        self.ends: dict[Beginning, float] = {}
        """The log-probability of <eos> after each hypothesis."""

    def __call__(self, logits: Float[Tensor, "B V"], context: Context) -> Float[Tensor, "B V"]:
        """Record a step and return the logits unchanged."""
        log_p = logits.cpu().double().log_softmax(-1)
        begun = [tuple(ids) for ids in context.written]
        for ids in filter(None, begun):
            self.nodes.setdefault(ids, self.behind(ids))
        self.before = dict(zip(begun, log_p, strict=True))
        self.ends |= dict(zip(begun, log_p[:, EOS].tolist(), strict=True))
        return logits

    def behind(self, ids: Beginning) -> Node:
        """Return the node of a hypothesis whose last token was chosen at the last step."""
        return Node(self.nodes[ids[:-1]].log_p + float(self.before[ids[:-1]][ids[-1]]))

    def end(self, found: Sequence[Hypothesis]) -> None:
        """Add the answers of the search, best first."""
        for rank, each in enumerate(found):
            ids = tuple(each.ids)
            if each.complete:
                log_p = self.nodes[ids].log_p + self.ends[ids]
                ids = (*ids, EOS)
            else:
                log_p = self.behind(ids).log_p
            self.nodes[ids] = Node(log_p, each.score, rank)
        self.before = {}

    def as_json(self) -> dict[str, Any]:
        """Return the header's `beams`: nodes level by level; `parent` is the parent's index, -1 for the root."""
        order = sorted((ids for ids in self.nodes if ids), key=lambda ids: (len(ids), -self.nodes[ids].log_p))
        places = {(): -1} | {ids: place for place, ids in enumerate(order)}
        nodes: list[dict[str, Any]] = []
        for ids in order:
            node, parent = self.nodes[ids], self.nodes[ids[:-1]]
            figures = {"p": brief(math.exp(min(0.0, node.log_p - parent.log_p))), "log_p": brief(node.log_p)}
            answer = {} if node.rank is None or node.score is None else {"score": brief(node.score), "rank": node.rank}
            nodes.append({"token": ids[-1], "parent": places[ids[:-1]], **figures, **answer})
        return {"width": self.search.beam, "length_penalty": self.search.length_penalty, "nodes": nodes}


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
    """"generate", "forced" (the tokens were given), "fill" (an encoder's blanks), "label" or "number"."""
    source: list[int] | None
    """What the encoder of an encoder-decoder reads, <eos> included."""
    tokens: list[int]
    """What the stack below the head reads."""
    answer_ids: list[int | None]
    """The token that was chosen at each position of `tokens`; None where none is predicted."""
    gold: list[int | None]
    """The correct token at each position, where it is known."""
    n_prompt: int = 0
    """How many of `tokens` were given."""
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
    if isinstance(config.head, Classify) or (isinstance(config.head, Regress) and config.head.pooling != "none"):
        mode, places = "label" if isinstance(config.head, Classify) else "number", [None] * (len(source) + 1)
        return Reading(mode, None, [BOS, *source], [*places], [*places])
    if isinstance(config.head, Tag):
        return Reading("label", None, [*source], [None] * len(source), [None] * len(source))
    if not isinstance(config.head, Lm):
        raise ConfigError(
            "A trace shows tokens, labels, or the numbers of a whole text; this model has head "
            f"{config.head.kind!r}. Use observe(model) instead."
        )
    if not config.stack.causal:
        return _masked(model, source) if layout.masked else _blanks(model, source, target, gold)
    if config.encoder is None:
        return _continued(model, source, target, layout, manner)
    return _answered(model, source, target, gold, manner)


def check_manner(model: Transformer, target: Ids | None, manner: Manner) -> None:
    """Raise `ConfigError` for settings of how to write an answer where the model writes none."""
    given_too = [name for name, given in (("begin", manner.begin), ("beam", manner.search.beam > 1)) if given]
    if not given_too:
        return
    if target is not None:
        raise ConfigError(f"With a target the model writes nothing, so {given_too[0]} has no effect. Leave one out.")
    if not isinstance(model.config.head, Lm) or not model.config.stack.causal:
        raise ConfigError(
            f"{given_too[0]} is for models that write their answer token by token; this one does not. Leave it out."
        )


def _answered(model: Transformer, source: Ids, target: Ids | None, gold: Ids | None, manner: Manner) -> Reading:
    limit = limit_of(model, source, manner.max_new_tokens).tokens
    if target is not None:
        answer_ids, beams = [*target, EOS], None
    else:
        answer_ids, beams = write(model, manner, limit, sources=[source], prompts=None)
    right = None if (known := target if gold is None else gold) is None else [*known, EOS]
    mode = "generate" if target is None else "forced"
    read = [BOS, *answer_ids[:-1]]
    return Reading(mode, [*source, EOS], read, [*answer_ids], padded(right, len(read)), 1, beams)


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
        answer_ids, beams = [*target], None
    else:
        requested = min(
            len(manner.begin) + USUAL_TOKENS if manner.max_new_tokens is None else manner.max_new_tokens, room
        )
        answer_ids, beams = write(model, manner, requested, sources=None, prompts=[given])
    if len(answer_ids) > room:
        raise DataError(
            f"Text and target together may have at most {min(limits)} tokens; got "
            f"{len(given) + len(answer_ids)}. Shorten it."
        )
    whole = [*given, *answer_ids]
    right: list[int | None] = [*whole[1:]] if target is not None else [*given[1:], *[None] * len(answer_ids)]
    mode = "generate" if target is None else "forced"
    return Reading(mode, None, whole[:-1], [*whole[1:]], right, len(given), beams)


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
