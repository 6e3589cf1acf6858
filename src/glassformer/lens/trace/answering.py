"""How the answer of a trace comes to be: token by token or by a beam, with a beginning where one is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.answer import check_choice, nothing
from glassformer.decode.beam import beam_search, length_penalty
from glassformer.decode.beam_settings import ONE_BEAM, BeamSettings
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.draw import chooser, filters_of
from glassformer.decode.choose.sampling import GREEDY, Sampling
from glassformer.decode.choose.words import begins_with
from glassformer.decode.generate import generate
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Tensor
from glassformer.lens.trace.beams import Tree
from glassformer.model.transformer import Transformer

Ids = Sequence[int]


class Manner(NamedTuple):
    """In which way an answer is written."""

    sampling: Sampling = GREEDY
    most: int | None = None
    """Tokens that it has at most; none: as many as are usual for the shape."""
    search: BeamSettings = ONE_BEAM
    begin: Ids = ()
    """The tokens that it begins with, whatever the model holds of them."""
    heard: Callable[[int], None] | None = None
    """Told of each token as it is written; of a beam of each that its best answer has, when it is found."""
    poll: Callable[[], None] = nothing
    """Called before each step; what it raises ends the writing."""


class Written(NamedTuple):
    """What was written."""

    said: list[int]
    fast: tuple[Tensor, ...] = ()
    """The logits that each token was chosen from, by the cached path; of a beam none."""
    beams: Tree | None = None


USUAL_MANNER = Manner()


def write(
    model: Transformer, manner: Manner, most: int, *, sources: list[Ids] | None, prompts: list[Ids] | None
) -> Written:
    """The answer to one row, of up to `most` tokens. Errors: `ConfigError` for a beginning that is longer."""
    check_choice(model, manner.sampling, manner.search, 1, ())
    if len(manner.begin) > most:
        raise ConfigError(
            f"An answer may have {most} tokens here, and is to begin with {len(manner.begin)}. Allow more, or begin "
            "with fewer."
        )
    by = _searched if manner.search.beam > 1 else _chosen
    return by(model, manner, most, sources, prompts)


def _chosen(
    model: Transformer, manner: Manner, most: int, sources: list[Ids] | None, prompts: list[Ids] | None
) -> Written:
    choose = chooser(manner.sampling, [begins_with(manner.begin)])
    kept: list[Tensor] = []

    def keeping(logits: Tensor, context: Context) -> Tensor:
        manner.poll()
        kept.append(logits[0].float().cpu())
        return choose(logits, context)

    said: list[int] = []
    for step in generate(model, sources=sources, prompts=prompts, max_new_tokens=most, choose=keeping):
        said.append(step.tokens[0])
        if manner.heard is not None:
            manner.heard(said[-1])
    return Written(said, tuple(kept))


def _searched(
    model: Transformer, manner: Manner, most: int, sources: list[Ids] | None, prompts: list[Ids] | None
) -> Written:
    search, tree = manner.search, Tree(manner.search)
    find = partial(beam_search, model, sources=sources, prompts=prompts, max_new_tokens=most, poll=manner.poll)
    (found,) = find(
        beam=search.beam,
        n_best=search.beam,
        lengths=length_penalty(search.length_penalty),
        coverage=search.coverage_penalty,
        groups=search.beam_groups,
        diversity=search.diversity,
        filters=[*filters_of(manner.sampling), tree, begins_with(manner.begin)],
        early_stop=search.early_stop,
    )
    tree.end(found)
    said = [*found[0].ids, *[EOS] * found[0].complete]
    if manner.heard is not None:
        for token in said:
            manner.heard(token)
    return Written(said, beams=tree)
