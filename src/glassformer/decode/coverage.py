"""Which source tokens the decoder attends to while it writes, and a penalty for those that it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.nn.ensemble import members_of
from glassformer.nn.observe import Attended, attentions, watch_attention
from glassformer.nn.transformer import Transformer


class Reading:
    """The attention weights of each of several models in their last forward pass; see `reading`."""

    def __init__(self, models: int) -> None:
        self._of: list[Float[Tensor, "B T S"] | None] = [None] * models

    def note(self, model: int, weights: Float[Tensor, "B T S"]) -> None:
        """Store the weights of one model, averaged over its heads."""
        self._of[model] = weights

    @property
    def weights(self) -> Float[Tensor, "B T S"] | None:
        """The mean over the models; None until each has run a forward pass."""
        told = [each for each in self._of if each is not None]
        return torch.stack(told).mean(0) if len(told) == len(self._of) else None


def reading_layer(model: Transformer) -> str:
    """The name of the cross-attention used for alignments: that of the layer before the last, or of the only layer.

    Its mean over heads aligns better than that of the last layer (Garg et al. 2019, section 3.1). Errors:
    `ConfigError` for a model that is not an encoder-decoder.
    """
    names = [name for name in attentions(model) if name.endswith("cross_attention")]
    if not names:
        raise ConfigError(
            "Alignments and coverage_penalty need the cross-attention of an encoder-decoder; this model has one stack. "
            "Remove them."
        )
    return names[max(0, len(names) - 2)]


@contextmanager
def reading(model: Transformer) -> Generator[Reading]:
    """Inside the `with`, collect the weights of `reading_layer`; for a committee, the mean over its members.

    The model's results are equal bit by bit to those without it.
    """
    models = members_of(model)
    seen = Reading(len(models))

    def noting(place: int, layer: str) -> Callable[[Attended], None]:
        def note(call: Attended) -> None:
            if call.name == layer:
                seen.note(place, call.attention.weigh(call.q, call.k, call.mask, scale=call.scale).mean(1))

        return note

    with ExitStack() as watches:
        for place, each in enumerate(models):
            watches.enter_context(watch_attention(each, noting(place, reading_layer(each))))
        yield seen


class Coverage:
    """cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)) (Wu et al. 2016, equation 14).

    p_ij is the attention of answer token j to source token i, where <eos> does not count. The penalty is 0 if each
    source token got a total attention of at least 1, else below 0. Sums are at least the smallest float, to avoid
    log(0).
    """

    def __init__(self, beta: float, sources: Sequence[Sequence[int]], seen: Reading) -> None:
        self.beta, self.seen = beta, seen
        lengths = torch.tensor([len(source) for source in sources])
        self._real = torch.arange(int(lengths.max()) + 1) < lengths[:, None]
        self._sums = torch.zeros(self._real.shape, dtype=torch.float64)

    def penalties(self, alike: list[int] | None = None) -> list[float]:
        """Add the last step's weights to the sums; return the penalty of each row for an answer that ends now.

        `alike`: which row of the step each row reads, if not its own.
        """
        assert self.seen.weights is not None, "a step was done before"
        weights = self.seen.weights[:, -1].to(self._sums)
        self._sums = self._sums + (weights if alike is None else weights[alike])
        shares = self._sums.clamp(torch.finfo(self._sums.dtype).tiny, 1.0)
        return (self.beta * torch.where(self._real, shares.log(), 0.0).sum(-1)).tolist()

    def follow(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the order given."""
        at = torch.tensor(rows, device=self._sums.device)
        self._real, self._sums = self._real[at], self._sums[at]
