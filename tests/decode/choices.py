"""Random rows for the tests of filters, and each filter's definition, one row at a time and in plain Python."""

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.decode.filters import Context

VOCAB = 12
INF = math.inf


def rows(count: int = 10_000, seed: int = 0) -> tuple[Tensor, Context]:
    """Logits in float64, a fifth of the rows with ties, a fifth with forbidden tokens; what each row read and wrote."""
    draw, coin = random.Random(seed), torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, VOCAB, generator=coin, dtype=torch.float64)
    logits[::5] = logits[::5].round()
    hidden = torch.rand(logits[1::5].shape, generator=coin) < 0.4
    hidden[:, 3] = False
    logits[1::5] = logits[1::5].masked_fill(hidden, -INF)
    prompts = [[draw.randrange(4) for _ in range(draw.randint(1, 4))] for _ in range(count)]
    written = [[draw.randrange(4) for _ in range(draw.randint(0, 7))] for _ in range(count)]
    return logits, Context(range(count), prompts, written)


def softmax(z: Sequence[float]) -> list[float]:
    """exp(z_i) / sum exp(z_j)."""
    largest = max(z)
    powers = [math.exp(each - largest) for each in z]
    return [each / math.fsum(powers) for each in powers]


def kept(z: Sequence[float], keep: set[int]) -> list[float]:
    return [each if i in keep else -INF for i, each in enumerate(z)]


def likeliest(z: Sequence[float]) -> list[int]:
    """Ids from the likeliest on; of equals the lowest first."""
    return sorted(range(len(z)), key=lambda i: (-z[i], i))


def until_mass(order: Sequence[int], p: Sequence[float], mass: float) -> set[int]:
    """The first of them that together have this mass."""
    keep: set[int] = set()
    total = 0.0
    for i in order:
        keep.add(i)
        total += p[i]
        if total >= mass:
            break
    return keep


def temperature(z, _prompt, _written, t):
    return [each / t for each in z]


def top_k(z, _prompt, _written, k):
    return kept(z, set(likeliest(z)[:k]))


def top_p(z, _prompt, _written, p):
    return kept(z, until_mass(likeliest(z), softmax(z), p))


def min_p(z, _prompt, _written, share):
    p = softmax(z)
    return kept(z, {i for i in range(len(z)) if p[i] >= share * max(p)})


def typical(z, _prompt, _written, mass):
    p = softmax(z)
    entropy = -math.fsum(each * math.log(each) for each in p if each > 0)
    far = [abs(-math.log(each) - entropy) if each > 0 else INF for each in p]
    return kept(z, until_mass(sorted(range(len(z)), key=lambda i: (far[i], i)), p, mass))


def repetition_penalty(z, prompt, written, penalty):
    seen = {*prompt, *written}
    return [(x / penalty if x > 0 else x * penalty) if i in seen else x for i, x in enumerate(z)]


def frequency_penalty(z, _prompt, written, penalty):
    return [x - penalty * written.count(i) for i, x in enumerate(z)]


def presence_penalty(z, _prompt, written, penalty):
    return [x - penalty if i in written else x for i, x in enumerate(z)]


def no_repeat_ngram(z, prompt, written, n):
    def repeats(ids: list[int]) -> bool:
        grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
        return bool(grams) and grams[-1] in grams[:-1]

    return [-INF if repeats([*prompt, *written, i]) else x for i, x in enumerate(z)]


def min_new_tokens(z, _prompt, written, least):
    return [-INF if i == 2 and len(written) < least else x for i, x in enumerate(z)]


def banned(z, prompt, written, sequences):
    def ends(ids: list[int]) -> bool:
        return any(ids[-len(each) :] == each for each in sequences)

    return [-INF if ends([*prompt, *written, i]) else x for i, x in enumerate(z)]


def logit_bias(z, _prompt, _written, biases):
    return [x + biases.get(i, 0.0) for i, x in enumerate(z)]
