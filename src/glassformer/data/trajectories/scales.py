"""The spaces of training episodes: their statistics, and the names of their actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.data.trajectories.episodes import Episodes
from glassformer.data.trajectories.spaces import Scales, Spaces

FLAT = 1e-6
"""A number of the data that varies less than this is not divided by its deviation."""


def spaces_of(episodes: Episodes, to_go: NDArray[np.float64], names: tuple[str, ...] = ()) -> Spaces:
    """The spaces of training episodes. `names`: of their actions; none: their numbers.

    Errors: `DataError` for actions that are all the same, from which nothing can be learned.
    """
    observed, spread = of_columns(episodes.observations)
    acted = episodes.actions if not episodes.discrete else np.zeros((1, 0), np.float32)
    means, deviations = of_columns(acted)
    returns = to_go[episodes.edges[:-1]]
    scales = Scales(
        observed,
        spread,
        means,
        deviations,
        tuple(map(float, acted.min(0))),
        tuple(map(float, acted.max(0))),
        float(np.abs(to_go).max()) or 1.0,
        int(episodes.lengths.max()),
        (float(returns.min()), float(returns.mean()), float(returns.max())),
    )
    if bool((episodes.actions == episodes.actions[0]).all()):
        raise DataError(
            f"An agent learns which of several actions to take, but in all {episodes.n_steps:,} steps it is "
            f"{episodes.actions[0].tolist()!r:.40}. Give episodes with different actions."
        )
    if not episodes.discrete:
        return Spaces(scales)
    return Spaces(scales, names or tuple(map(str, range(int(episodes.actions.max()) + 1))))


def of_columns(rows: NDArray[np.floating]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column; a deviation that is next to nothing counts as 1."""
    wide = rows.astype(np.float64)
    spread = wide.std(0)
    return tuple(map(float, wide.mean(0))), tuple(float(each) if each > FLAT else 1.0 for each in spread)
