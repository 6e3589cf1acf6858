"""softmax(q kᵀ / √K) v, right and with known mistakes: the scale, the softmax axis, and the roles of the tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.attend.mask import Mask
from glassformer.nn.attend.reference import attention_weights
from glassformer.proof.check.reading import Choice
from glassformer.proof.check.table import Mistake

Masking = Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], Tensor]
"""Turns scores, a boolean mask and the normalisation into weights."""

NO_SCALE = Mistake(
    "the scale is missing",
    "The scores go into the softmax undivided, so the wider a head is, the sharper its softmax.",
    "Look at the denominator in equation 1 of Vaswani et al. 2017.",
)
MODEL_SCALE = Mistake(
    "the scale uses d_model instead of d_head",
    "The scores are divided by the root of the whole width, though each is a sum over the width of one head.",
    "How many products are added up to make one score?",
)
TWICE = Mistake(
    "the scale is applied twice",
    "The scores are divided by d_head, not by its root: two divisions by the root, or a forgotten root.",
    "Search for every place that divides, and for the root.",
)
MULTIPLIED = Mistake(
    "the scores are multiplied by the scale instead of divided",
    "The root of d_head stands on the wrong side of the fraction.",
    "Should wider heads make the scores larger or smaller?",
)
OTHER_SCALE = Mistake(
    "the scale is the root of another length",
    "The scores are divided by the root of a size that is not the width of a head.",
    "Print the number that you divide by, for inputs whose sizes all differ.",
)


def scales(K: int, others: dict[str, int], set_to: float | None = None) -> list[Choice]:
    """Return the factors that scores may have.

    `others` are sizes that may be mistaken for K; 1/√K is right unless set.
    """
    usual = Choice(K**-0.5, f"scores times {K**-0.5:.4g} = 1/√{K}")
    right = usual if set_to is None else Choice(set_to, f"scores times {set_to:.4g}, as set")
    wrong = [
        (1.0, "scores times 1", NO_SCALE),
        (1.0 / K, f"scores times {1 / K:.4g} = 1/{K}", TWICE),
        (K**0.5, f"scores times {K**0.5:.4g} = √{K}", MULTIPLIED),
        (float(K), f"scores times {K}", MULTIPLIED),
    ]
    for name, size in others.items():
        mistake = MODEL_SCALE if name == "d_model" else OTHER_SCALE
        wrong.append((size**-0.5, f"scores times {size**-0.5:.4g} = 1/√{size} ({name})", mistake))
        wrong.append((1.0 / size, f"scores times {1 / size:.4g} = 1/{size} ({name})", mistake))
    return [right, *(Choice(*each) for each in wrong)]


def wrong_axis(over: str) -> Mistake:
    """Return the mistake that the softmax runs over another axis than the keys."""
    return Mistake(
        f"the softmax runs over the {over}",
        f"The weights sum to 1 over the {over}, not over the keys that one query reads.",
        "Which axis of the scores must sum to 1 for one query? Check the axis that softmax is given.",
    )


NO_SOFTMAX = Mistake(
    "the softmax is missing",
    "The scores themselves are used as weights; they may be negative, and no row sums to 1.",
    "What turns scores into weights that sum to 1?",
)
SIGMOID = Mistake(
    "a sigmoid stands in place of the softmax",
    "Each score is squashed on its own, so the weights of a query do not sum to 1.",
    "What turns scores into weights that sum to 1?",
)

SOFTMAX = [
    Choice(-1, "the softmax over keys"),
    Choice(-2, "the softmax over queries", wrong_axis("queries")),
    Choice(-3, "the softmax over heads", wrong_axis("heads")),
    Choice(-4, "the softmax over the batch", wrong_axis("batch")),
    Choice("none", "scores as weights", NO_SOFTMAX),
    Choice("sigmoid", "sigmoid(score) as weight", SIGMOID),
]

SWAPPED = Mistake(
    "query and key are swapped",
    "Scores are taken from the key's side: row t of the weights belongs to key t, not to query t.",
    "In the matrix of scores, which of the two must the rows stand for?",
)
NO_VALUES = Mistake(
    "the values are not used",
    "The weights are applied to another tensor than the values.",
    "Follow each of the three inputs from the top to the bottom: is each used, once?",
)
NO_KEYS = Mistake(
    "the keys are not compared with the queries",
    "The scores are made of one of the two alone.",
    "Follow each of the three inputs from the top to the bottom: is each used, once?",
)

PARTS = [
    Choice("qkv"),
    Choice("kqv", "query and key swapped", SWAPPED),
    Choice("qkk", "the keys in place of the values", NO_VALUES),
    Choice("qkq", "the queries in place of the values", NO_VALUES),
    Choice("qvk", "key and value swapped", NO_VALUES),
    Choice("vkq", "query and value swapped", NO_VALUES),
    Choice("qqv", "scores of queries with queries", NO_KEYS),
    Choice("kkv", "scores of keys with keys", NO_KEYS),
]
"""Which tensors are compared, and which one is averaged."""


def normalise(scores: Tensor, how: int | str) -> Tensor:
    """Turn scores into weights."""
    if how == "sigmoid":
        return scores.sigmoid()
    return scores if isinstance(how, str) else scores.softmax(how)


def mixed(
    qkv: dict[str, Tensor],
    *,
    parts: str = "qkv",
    scale: float,
    softmax: int | str = -1,
    mask: Tensor | None = None,
    masking: Masking | None = None,
) -> Tensor:
    """Return the output [B, H, T, K] under a reading. For the documented reading it uses our reference."""
    q, k, v = (qkv[each] for each in parts)
    if mask is None and softmax == -1:
        return attention_weights(q, k, Mask(), scale=scale) @ v
    scores = q @ k.mT * scale
    if mask is None or masking is None:
        return normalise(scores, softmax) @ v
    return masking(scores, mask, lambda masked: normalise(masked, softmax)) @ v


def masked_weights(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return our reference's weights under a boolean mask in which no row is empty, as a bias of minus infinity."""
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return attention_weights(q, k, Mask(bias=bias.expand(q.shape[0], 1, *bias.shape[-2:])), scale=scale)
