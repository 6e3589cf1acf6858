"""Laws that need no other library: backends, causality, padding, batch-mates and the cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.flex import NARROWEST, obstacle
from glassformer.nn.mask import Mask
from glassformer.nn.positions import POSITIONS
from glassformer.nn.rules import ATTEND
from glassformer.nn.transformer import Transformer
from glassformer.proof.laws.law import (
    PADDINGS,
    VOCAB,
    Law,
    Setting,
    all_apart,
    apart,
    model,
    normal,
    padded,
    tokens,
    weighted,
)

B, H, K, S = 3, 4, 5, 7


def backends(setting: Setting) -> Iterator[float]:
    """Value and gradients of each backend against the equation written out, over masks and grouped heads."""
    keep = torch.rand(B, S) < 0.6
    keep[-1] = False  # the last sequence is only padding: its queries read nothing
    rules = itertools.product((True, False), (None, 3), (None, keep.to(setting.device)), (4, 2, 1), (1, 4, S))
    for causal, window, kept, G, T in rules:
        q, k, v = normal(setting, B, H, T, K), normal(setting, B, G, S, K), normal(setting, B, G, S, K)
        mask = Mask(causal=causal, window=window, keep=kept)
        for rule, backend_of in ATTEND.items():
            if rule == "linear" and window is not None:
                continue  # it keeps sums over keys, from which no key can be removed
            answers: list[list[Tensor]] = []
            for name, attend in backend_of.items():
                if name == "flex":
                    continue  # see the law below: flex has no gradients on a CPU
                output = attend(q, k, v, mask, scale=K**-0.5)
                answers.append([output, *torch.autograd.grad(weighted(output), [q, k, v])])
            specified = answers[list(backend_of).index("reference")]
            yield max(all_apart(answer, specified) for answer in answers)


def flex(setting: Setting) -> Iterator[float]:
    """FlexAttention against the equation: its value, and its gradients where torch supports them."""
    device, K = setting.device, NARROWEST
    here = setting if device.type == "cpu" else setting._replace(dtype=torch.float32)
    learns = obstacle(device.type, K, here.dtype, learns=True) is None
    keep = torch.rand(B, S) < 0.6
    keep[-1] = False
    documents = torch.randint(2, (B, S)).to(device)
    rules = itertools.product((True, False), (None, keep.to(device)), (None, documents), (1, S))
    for causal, kept, owned, T in rules:  # few, because each kind of mask compiles a kernel
        G, window = (4, 3) if causal else (2, None)
        q, k, v = normal(here, B, H, T, K), normal(here, B, G, S, K), normal(here, B, G, S, K)
        mask, answers = Mask(causal=causal, window=window, keep=kept, documents=owned), list[list[Tensor]]()
        for name in ("flex", "reference"):
            with torch.set_grad_enabled(learns):
                output = ATTEND["softmax"][name](q, k, v, mask, scale=K**-0.5)
            answers.append([output, *(torch.autograd.grad(weighted(output), [q, k, v]) if learns else ())])
        yield all_apart(*answers)


def causality(setting: Setting) -> Iterator[float]:
    """Changing a token leaves all earlier logits bitwise the same."""
    for positions, shape in itertools.product(POSITIONS, ("decoder", "encoder-decoder")):
        network, ids = causal_model(setting, shape, positions), tokens(setting, 2, 8)
        source = {"source": tokens(setting, 2, 5)} if shape != "decoder" else {}
        logits = network(ids, **source)
        for place in (1, 4, 7):
            changed = ids.clone()
            changed[:, place] = (changed[:, place] + 1) % VOCAB
            yield apart(network(changed, **source)[:, :place], logits[:, :place])


def padding(setting: Setting) -> Iterator[float]:
    """Each row of a padded batch gets the same output as alone."""
    for positions, where in itertools.product(POSITIONS, PADDINGS):
        network = causal_model(setting, "encoder-decoder", positions)
        rows, sources = ([tokens(setting, n) for n in lengths] for lengths in ((6, 2, 4), (1, 5, 3)))
        (ids, keep), (source, source_keep) = padded(setting, rows, 8, where), padded(setting, sources, 7, where)
        together = network(ids, keep=keep, source=source, source_keep=source_keep)
        alone = [network(row[None], source=read[None])[0] for row, read in zip(rows, sources, strict=True)]
        yield all_apart((answer[real] for answer, real in zip(together, keep, strict=True)), alone)


def cache(setting: Setting) -> Iterator[float]:
    """Piece by piece through either kind of cache gives the logits of one forward pass."""
    for positions, shape in itertools.product(POSITIONS, ("decoder", "encoder-decoder")):
        network, ids = causal_model(setting, shape, positions), tokens(setting, 2, 8)
        source = {"memory": network.encode(tokens(setting, 2, 5))} if shape != "decoder" else {}
        whole = network(ids, **source)
        for capacity in (None, 10):
            held = network.new_cache(capacity)
            steps = [network(part, cache=held, **source) for part in ids.split([3, 1, 1, 2, 1], dim=1)]
            yield apart(torch.cat(steps, dim=1), whole)


def causal_model(setting: Setting, shape: str, positions: str) -> Transformer:
    """Return a model that generates from left to right."""
    return model(setting, shape, positions=positions)


LAWS = [
    Law("attention", "every backend gives the value and the gradients of its equation", backends),
    Law("attention", "flex gives the value of its equation, and on an accelerator the gradients", flex, narrow=True),
    Law("masks", "no later token changes an earlier logit", causality, exact=True),
    Law("masks", "padding and other rows of the batch change nothing", padding),
    Law("decoding", "the cache gives the same as one forward pass", cache),
]
