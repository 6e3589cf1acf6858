"""Small episodes for the tests: random ones of either kind of action, and files that hold them."""

import numpy as np

from glassformer.data.trajectories.episodes import Episodes

OBSERVED, ACTED = 3, 2


def made(lengths: list[int], *, discrete: bool = True, seed: int = 0) -> Episodes:
    """Episodes of these lengths; three numbers are observed, and an action is one of four or two numbers."""
    draw, n = np.random.default_rng(seed), sum(lengths)
    vectors = draw.normal(size=(n, ACTED)).astype(np.float32)
    actions = np.concatenate([[3], draw.integers(0, 4, n - 1)]) if discrete else vectors
    return Episodes(
        draw.normal(1.0, 3.0, (n, OBSERVED)).astype(np.float32), actions, draw.normal(size=n), np.cumsum([0, *lengths])
    )


def csv_of(episodes: Episodes) -> str:
    """The same as a table, with all columns."""
    acted = ["action"] if episodes.discrete else [f"action{i}" for i in range(episodes.actions.shape[1])]
    seen = [f"obs{i}" for i in range(episodes.observations.shape[1])]
    lines = [",".join(["episode", "t", *seen, *acted, "reward", "done"])]
    for number, (first, last) in enumerate(zip(episodes.edges[:-1], episodes.edges[1:], strict=True)):
        for step in range(first, last):
            action = np.atleast_1d(episodes.actions[step]).tolist()
            cells = [*map(repr, episodes.observations[step].tolist()), *map(repr, action)]
            done = int(step == last - 1)
            lines.append(
                ",".join([str(number), str(step - first), *cells, repr(float(episodes.rewards[step])), str(done)])
            )
    return "\n".join(lines) + "\n"


def same(one: Episodes, other: Episodes) -> bool:
    """Whether all arrays of both are the same, types and all."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("observations", "actions", "rewards", "edges")]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
