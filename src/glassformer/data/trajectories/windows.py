"""What a model reads of episodes: three places a step, each a vector of numbers.

    place            kind      return-to-go   observation   action      time
    3t   R_t         1 0 0     R_t / scale    0 ... 0       0 ... 0     sines of t
    3t+1 o_t         0 1 0     0              standardised  0 ... 0     sines of t      <- predicts the action a_t
    3t+2 a_t         0 0 1     0              0 ... 0       one-hot     sines of t

A linear map of such a vector is the sum of what the paper's four embeddings give (Chen et al. 2021, section 3 and
algorithm 1): each kind of place has columns of its own, and the first three are its bias. Only time differs: the paper
has a table of time steps, this has sines of them, so that no episode is too long.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.data.batch import Batch
from glassformer.data.kinds import PLACES
from glassformer.data.trajectories.episodes import TIMES, Actions, Episodes, Floats, Scales, Spaces

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


PREDICTED_AT = 1
"""The place of a step at which its action is predicted: after the observation."""
SLOWEST = 10_000.0
"""Ratio of the longest wave to the shortest, as in Vaswani et al. 2017, section 3.5."""

Integers = NDArray[np.int64]
Windows = tuple[Integers, Integers]
"""The first step of each window, and its number of steps."""


def features(
    spaces: Spaces, to_go: NDArray[np.float64], observations: Floats, actions: Actions, times: Integers
) -> Floats:
    """[..., L, 3, I]: what a model reads of L steps. All arguments begin with the same dimensions, [..., L].

    `actions` are [..., L] numbers of actions, or [..., L, A].
    """
    scales, S = spaces.scales, spaces.n_observed
    found = np.zeros((*to_go.shape, PLACES, spaces.n_features), np.float32)
    found[..., range(PLACES), range(PLACES)] = 1.0
    found[..., 0, PLACES] = to_go / scales.to_go
    seen = slice(PLACES + 1, PLACES + 1 + S)
    found[..., PREDICTED_AT, seen] = (observations - scales.observed) / np.array(scales.observed_spread)
    found[..., 2, seen.stop : seen.stop + spaces.n_acted] = as_read(spaces, actions)
    found[..., -TIMES:] = waves(times)[..., None, :]
    return found


def as_read(spaces: Spaces, actions: Actions) -> NDArray[np.floating]:
    """[..., A]: actions as a model reads and predicts them: one-hot, or standardised."""
    if spaces.entries:
        return np.eye(len(spaces.entries), dtype=np.float32)[actions]
    return (actions - np.array(spaces.scales.acted)) / np.array(spaces.scales.acted_spread)


def as_done(spaces: Spaces, numbers: NDArray[np.floating]) -> NDArray[np.floating]:
    """The inverse of `as_read` for actions that are vectors, within the bounds of the training data."""
    found = numbers * np.array(spaces.scales.acted_spread) + np.array(spaces.scales.acted)
    return np.clip(found, spaces.scales.acted_low, spaces.scales.acted_high)


def waves(times: Integers) -> Floats:
    """[..., TIMES]: sines and cosines of the number of steps before this one (Vaswani et al. 2017, section 3.5)."""
    angles = times[..., None] * SLOWEST ** (-np.arange(TIMES // 2) / (TIMES // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)


def windows_batch(
    spaces: Spaces, episodes: Episodes, to_go: NDArray[np.float64], firsts: Integers, lengths: Integers
) -> Batch:
    """One row for each window: the steps `firsts` to `firsts + lengths - 1`, which belong to one episode.

    Each action is to be predicted where its observation is read, so from the steps before and from what is to come, but
    not from itself.
    """
    offsets = np.arange(int(lengths.max()))
    real = offsets < lengths[:, None]
    steps = np.where(real, firsts[:, None] + offsets, firsts[:, None])
    actions = episodes.actions[steps]
    read = features(spaces, to_go[steps], episodes.observations[steps], actions, episodes.times[steps])
    read[~real] = 0.0
    queries = np.zeros((*real.shape, PLACES), np.bool_)
    queries[..., PREDICTED_AT] = real
    wanted = actions if spaces.entries else as_read(spaces, actions).astype(np.float32)
    labels = np.repeat(wanted[:, :, None], PLACES, 2)
    rows = len(firsts)
    keep = None if bool(real.all()) else torch.as_tensor(np.repeat(real, PLACES, 1))
    return Batch(
        torch.as_tensor(read.reshape(rows, -1, spaces.n_features)),
        keep,
        labels=torch.as_tensor(labels.reshape(rows, -1, *labels.shape[3:])),
        label_keep=torch.as_tensor(queries.reshape(rows, -1)),
    )


# Windows of episodes: those of an update, and those of an evaluation.


def drawn_windows(episodes: Episodes, window: int, count: int, seed: tuple[int, int]) -> Windows:
    """So many windows that end at steps drawn at random, each as likely as any other.

    Chen et al. 2021, algorithm 1, draw episodes by their length and cut windows out of them. A window at the beginning
    of an episode is shorter. Each depends only on (seed, its number).
    """
    # Raw output of Philox: numpy promises it for all versions, which it does not for its integers.
    random = np.random.Philox(np.random.SeedSequence(seed))
    lasts = (random.random_raw(count) % np.uint64(episodes.n_steps)).astype(np.int64)
    lengths = np.minimum(episodes.times[lasts] + 1, window)
    return lasts - lengths + 1, lengths


def longest_windows(episodes: Episodes, window: int, rows: int) -> Windows:
    """So many copies of the longest window."""
    lengths = episodes.lengths
    first, length = episodes.edges[lengths.argmax()], min(window, int(lengths.max()))
    return np.full(rows, first), np.full(rows, length)


def windows_of(episodes: Episodes, window: int) -> Windows:
    """Windows one after the other, in which each step is once; the last one of an episode may be shorter."""
    firsts = np.concatenate([np.arange(first, last, window) for first, last in pairwise(episodes.edges.tolist())])
    last = np.repeat(episodes.edges[1:], -(-episodes.lengths // window))
    return firsts, np.minimum(last - firsts, window)
