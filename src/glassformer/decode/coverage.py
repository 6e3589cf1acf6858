"""What the decoder read of the source while it wrote: one attention's weights, and the penalty for what it left out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.model.joint import members_of
from glassformer.model.transformer import Transformer
from glassformer.parts import Attended, attentions, watch_attention


class Reading:
    """What each of several models read in its last forward; see `reading`."""

    def __init__(self, models: int) -> None:
        self._of: list[Float[Tensor, "B T S"] | None] = [None] * models

    def note(self, model: int, weights: Float[Tensor, "B T S"]) -> None:
        """What one of them read, mean over heads."""
        self._of[model] = weights

    @property
    def weights(self) -> Float[Tensor, "B T S"] | None:
        """The mean over the models; none before all of them had a forward."""
        told = [each for each in self._of if each is not None]
        return torch.stack(told).mean(0) if len(told) == len(self._of) else None


def reading_layer(model: Transformer) -> str:
    """The cross-attention that says where a token comes from: that of the last layer but one, or of the only one.

    Its mean over heads aligns better than that of the last layer (Garg et al. 2019, section 3.1). Errors:
    `ConfigError` for a model without an encoder beside its decoder.
    """
    names = [name for name in attentions(model) if name.endswith("cross_attention")]
    if not names:
        raise ConfigError(
            "What was read of a source is known of an encoder-decoder, by its cross-attention; this model has one "
            "stack. Leave alignments and coverage_penalty out."
        )
    return names[max(0, len(names) - 2)]


@contextmanager
def reading(model: Transformer) -> Generator[Reading]:
    """Collects the weights of `reading_layer` while the `with` lasts, of a committee the mean of its members'.

    What is computed is the same bits as without.
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

    p_ij is how much token j of the answer read token i of the source, <eos> left out. It is 0 where every token was
    read once, and never above; at least the smallest float is taken for what was never read.
    """

    def __init__(self, beta: float, sources: Sequence[Sequence[int]], seen: Reading) -> None:
        self.beta, self.seen = beta, seen
        lengths = torch.tensor([len(source) for source in sources])
        self._real = torch.arange(int(lengths.max()) + 1) < lengths[:, None]
        self._sums = torch.zeros(self._real.shape, dtype=torch.float64)

    def penalties(self) -> list[float]:
        """What an answer that ends now loses, row by row; the weights of the step just done are counted in."""
        assert self.seen.weights is not None, "a step was done before"
        self._sums = self._sums + self.seen.weights[:, -1].to(self._sums)
        shares = self._sums.clamp(torch.finfo(self._sums.dtype).tiny, 1.0)
        return (self.beta * torch.where(self._real, shares.log(), 0.0).sum(-1)).tolist()

    def follow(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows, in the order given."""
        rows = rows.to(self._sums.device)
        self._real, self._sums = self._real[rows], self._sums[rows]
