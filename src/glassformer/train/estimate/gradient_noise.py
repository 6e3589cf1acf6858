"""The gradient noise scale: how large a batch is worth its cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loop import compute_in, count_targets, seeded
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective


class Norms(NamedTuple):
    """For one batch: squared norms of mean gradients, and the numbers of targets that these are means over."""

    whole: float
    targets: int
    pieces: list[float]
    piece_targets: list[int]


class Noise(NamedTuple):
    """The two quantities that the noise scale is computed from."""

    squared_gradient: float
    """|G|^2, the squared norm of the gradient without noise."""
    variance: float
    """tr(Sigma), the variance of the gradient of one target, summed over all parameters."""

    @property
    def scale(self) -> float:
        """tr(Sigma) / |G|^2, in targets; infinite if the noise hides the gradient."""
        return self.variance / self.squared_gradient if self.squared_gradient > 0 else float("inf")


def gradient_noise(
    model: Transformer,
    batches: Iterable[Batch],
    objective: Objective,
    *,
    pieces: int = 4,
    precision: str = "float32",
    seed: int = 0,
) -> Noise:
    """The simple noise scale tr(Sigma) / |G|^2 (McCandlish et al. 2018, equation 2.9), in targets.

    A batch with far fewer targets wastes steps; one with far more wastes computation. Each batch is cut into `pieces`,
    as `accumulate` cuts it, and the norms of their gradients are compared with that of the whole. Several batches are
    needed, because each estimate is noisy; the weights, which do not change, should be those of a model in training.
    The model's gradients are overwritten. Errors: `ConfigError` for fewer than 2 pieces, or if no batch has 2 rows.
    """
    if pieces < 2:
        raise ConfigError(
            f"Gradient noise is measured by comparing at least 2 pieces of each batch; got pieces={pieces}. Try "
            "pieces=4."
        )
    device = next(model.parameters()).device
    model.train()
    seen: list[Norms] = []
    for number, batch in enumerate(batches):
        parts = batch.split(pieces)
        if len(parts) < 2:
            continue
        total: list[Tensor] = []
        norms, targets = list[float](), list[int]()
        for i, part in enumerate(parts):
            model.zero_grad(set_to_none=True)
            count = count_targets(part, objective, number)
            with seeded(seed, number, i, device=device), compute_in(precision, device):
                loss = loss_of(model, part.to(device), objective).objective
            loss.backward()
            sums = [p.grad for p in model.parameters() if p.grad is not None]
            norms.append(_squared(sums) / count**2)
            targets.append(count)
            total = [one + other for one, other in zip(total, sums, strict=True)] if total else sums
        seen.append(Norms(_squared(total) / sum(targets) ** 2, sum(targets), norms, targets))
    model.zero_grad(set_to_none=True)
    return noise_of(seen)


def noise_of(seen: Iterable[Norms]) -> Noise:
    """Compute both quantities from norms of gradients over few and over many targets, as means over the batches.

    E|G_B|^2 = |G|^2 + tr(Sigma) / B for a mean over B targets (equation A.1), so that for two sizes b < B

        |G|^2     = (B |G_B|^2 - b |G_b|^2) / (B - b)            (equation A.2)
        tr(Sigma) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)            (equation A.3)

    without bias. For pieces of unequal size |G_b|^2 is the mean over them, and 1/b the mean of their inverse sizes.
    """
    gradients, variances = list[float](), list[float]()
    for whole, targets, pieces, sizes in seen:
        small, inverse = sum(pieces) / len(pieces), sum(1 / each for each in sizes) / len(sizes)
        variance = (small - whole) / (inverse - 1 / targets)
        variances.append(variance)
        gradients.append(whole - variance / targets)  # equation A.2, by A.1
    if not variances:
        raise ConfigError(
            "Gradient noise is measured by comparing pieces of a batch, but no batch has 2 rows. Give larger batches."
        )
    return Noise(sum(gradients) / len(gradients), sum(variances) / len(variances))


def _squared(gradients: Iterable[Tensor]) -> float:
    return sum(float(each.double().square().sum()) for each in gradients)
