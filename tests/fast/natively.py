"""Models whose steps run in C++, and texts that they read in parts."""

import torch

from glassformer.decode.prepare import sharing_weights
from glassformer.fast.stack import with_native_stacks
from specimens import tokens


def natively(made):
    return with_native_stacks(sharing_weights(made))


def given(made, n=2):
    return {} if made.encoder is None or made.decoder is None else {"memory": made.encode(tokens(n, 5)).detach()}


def stepwise(made, ids, parts=(3, 1, 1, 1, 1), keep=None, **memory):
    """Logits of a text that is read in parts, with a cache."""
    cache, keeps = made.new_cache(), [None] * len(parts) if keep is None else keep.split(parts, dim=1)
    pairs = zip(ids.split(parts, dim=1), keeps, strict=True)
    with torch.no_grad():
        return torch.cat([made(part, keep=each, cache=cache, **memory) for part, each in pairs], dim=1)
