"""Writing the answer of a trace, token by token or by beam search, from a forced prefix if one is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.answer import check_choice, nothing
from glassformer.decode.beam_settings import ONE_BEAM, BeamSettings
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.draw import chooser, filters_of
from glassformer.decode.choose.sampling import GREEDY, Sampling
from glassformer.decode.choose.words import begins_with
from glassformer.decode.generate import generate
from glassformer.decode.method import search_of
from glassformer.lens.trace.beams import Tree
from glassformer.nn.transformer import Transformer

Ids = Sequence[int]


class Manner(NamedTuple):
    """How to write an answer."""

    sampling: Sampling = GREEDY
    most: int | None = None
    """The most tokens of the answer; None: the usual number for the model's shape."""
    search: BeamSettings = ONE_BEAM
    begin: Ids = ()
    """Forced prefix: the answer begins with these tokens, whatever the model predicts."""
    heard: Callable[[int], None] | None = None
    """Called with each token as it is written; with a beam, for each token of the best answer once it is found."""
    poll: Callable[[], None] = nothing
    """Called before each step; if it raises, the writing ends."""


class Written(NamedTuple):
    """An answer."""

    said: list[int]
    fast: tuple[Tensor, ...] = ()
    """The logits that each token was chosen from, by cached decoding; empty for a beam search."""
    beams: Tree | None = None


USUAL_MANNER = Manner()


def write(
    model: Transformer, manner: Manner, most: int, *, sources: list[Ids] | None, prompts: list[Ids] | None
) -> Written:
    """Write the answer to one row, of up to `most` tokens. Errors: `ConfigError` if the forced prefix is longer."""
    check_choice(model, manner.sampling, manner.search, 1, ())
    if len(manner.begin) > most:
        raise ConfigError(
            f"An answer may have at most {most} tokens here; got {len(manner.begin)} tokens to begin with. Allow more, "
            "or begin with fewer."
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
    tree = Tree(manner.search)
    (found,) = search_of(manner.search)(
        model,
        sources=sources,
        prompts=prompts,
        max_new_tokens=most,
        n_best=manner.search.beam,
        filters=[*filters_of(manner.sampling), tree, begins_with(manner.begin)],
        poll=manner.poll,
    )
    tree.end(found)
    said = [*found[0].ids, *[EOS] * found[0].complete]
    if manner.heard is not None:
        for token in said:
            manner.heard(token)
    return Written(said, beams=tree)
