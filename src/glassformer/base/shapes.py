"""The letters used for tensor shapes. Each has the same meaning in every signature.

    B  batch (sequences)              D  d_model, the width of the residual stream
    T  queries: positions computed    H  heads
    S  keys: positions that are read  G  key/value heads (G divides H; G < H is grouped-query attention)
    V  vocabulary                     K  d_head, the width of one head
    F  d_ff, the inner width of the feed-forward branch

Inside attention the layout is `[B, H, T, K]`, as in torch's own kernels. The tests check shapes against the annotations
(`--jaxtyping-packages`); in production they cost nothing.
"""

from jaxtyping import Bool, Float, Int, Int8, Num
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Int8", "Keys", "Num", "Queries", "Tensor", "Values", "Weights"]

Queries = Float[Tensor, "B H T K"]
"""A vector for each head at each position that is computed: queries, and what attention gives for them."""
Keys = Float[Tensor, "B G S K"]
"""A vector for each key/value head at each position that is read."""
Values = Keys
Weights = Float[Tensor, "B H T S"]
"""A number for each pair of query and key, in each head: scores, or weights."""
