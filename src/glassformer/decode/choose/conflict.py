"""Settings that together forbid every token: which they are, and whether that is known before a text begins."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.base.errors import RowError, all_of
from glassformer.base.shapes import Float, Tensor
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose.context import Context, Filter, Named


def names_of(steps: Sequence[Filter]) -> list[str]:
    """Return the names of the settings that asked for these filters, each once; filters without one have no name."""
    return [*dict.fromkeys(each.name for each in steps if isinstance(each, Named))]


def refuse_stuck(steps: Sequence[Filter], logits: Float[Tensor, "B V"], context: Context, row: int) -> RowError:
    """Make the error for a row of a step in which the filters forbid every token. It names those that do so.

    `logits` are those before any filter.
    """
    seeds = None if context.seeds is None else [context.seeds[row]]
    alone = Context([context.numbers[row]], [context.prompts[row]], [context.written[row]], seeds, context.searched)
    guilty = needed(steps, logits[row : row + 1], alone)
    names = names_of(guilty) or ["the filters" if guilty else "the model, whose logits are all -inf"]
    advice = f"Change or remove {'it' if len(names) == 1 else 'one of them'}." if guilty else "Check its weights."
    return RowError(
        f"Each step needs at least one allowed token; after {len(context.written[row])} tokens of ",
        context.numbers[row],
        f" all are forbidden by {all_of(names)}. {advice}",
    )


def refuse_searched(steps: Sequence[Filter], row: int) -> RowError:
    """Make the error for a row of a beam of which no hypothesis has a next token. It names what forbids tokens."""
    names = names_of(steps) or ["the filters"]
    change = "it" if len(names) == 1 else "one of them"
    return RowError(
        "Each step needs at least one allowed token; in ",
        row,
        f" all hypotheses came to a step without one, as {all_of(names)} "
        f"{'forbids' if len(names) == 1 else 'forbid'} them. Raise beam, or change or remove {change}.",
    )


def needed(steps: Sequence[Filter], logits: Float[Tensor, "1 V"], context: Context) -> list[Filter]:
    """Return filters that together forbid every token, all of `steps` doing so; without any of them a token is left."""
    kept = [*steps]
    for place in reversed(range(len(steps))):
        fewer = kept[:place] + kept[place + 1 :]
        if not bool(allowed(fewer, logits, context).any()):
            kept = fewer
    return kept


def allowed(steps: Sequence[Filter], logits: Float[Tensor, "1 V"], context: Context) -> Tensor:
    """Return which tokens of a row the filters leave, [V]."""
    for each in steps:
        logits = each(logits, context)
    return ~logits[0].isneginf()


def refuse_certain(steps: Sequence[Filter], size: int, prompt: Sequence[int], most: int) -> None:
    """Refuse settings that leave a text without a next token, if that is certain whatever a model writes.

    It follows a text of up to `most` tokens for as long as its next token is the only one allowed. `size` is the number
    of tokens; `steps` must not depend on the logits. Errors: `ConfigError`, as for a step in which all are forbidden.
    """
    ids, logits = list[int](), torch.zeros(1, size)
    while len(ids) < most:
        context = Context([0], [prompt], [ids])
        left = allowed(steps, logits, context).nonzero()[:, 0].tolist()
        if not left:
            raise refuse_stuck(steps, logits, context, 0)
        if len(left) > 1 or left[0] == EOS:
            return
        ids = [*ids, left[0]]
