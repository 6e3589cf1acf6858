"""The scales of training episodes: by hand, kept to the last bit, and refused where they cannot be such."""

import json
import random
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from data.trajectories.episodes import OBSERVED, made
from glassformer.base.errors import DataError
from glassformer.data.tokenizer import tokenizer_from_json
from glassformer.data.trajectories.episodes import Episodes
from glassformer.data.trajectories.spaces import TIMES, Spaces
from glassformer.data.trajectories.windows import spaces_of

BOTH = pytest.mark.parametrize("discrete", [True, False])


def spaces(discrete: bool = True, names: tuple[str, ...] = ()) -> Spaces:
    episodes = made([3, 1, 7], discrete=discrete)
    return spaces_of(episodes, episodes.returns_to_go(), names)


@BOTH
def test_scales_are_those_of_the_episodes(discrete: bool) -> None:
    episodes = made([3, 1, 7], discrete=discrete)
    to_go = episodes.returns_to_go(0.9)
    found = spaces_of(episodes, to_go)
    scales, seen = found.scales, episodes.observations.astype(np.float64)
    means = [float(sum(column) / len(column)) for column in seen.T]
    spread = [float((sum((column - m) ** 2) / 11) ** 0.5) for column, m in zip(seen.T, means, strict=True)]
    assert scales.observed == pytest.approx(means, rel=1e-12)
    assert scales.observed_spread == pytest.approx(spread, rel=1e-12)
    assert scales.to_go == max(abs(to_go))
    assert scales.longest == 7
    returns = [to_go[first] for first in (0, 3, 4)]  # discounted, as what is asked for in a rollout
    assert scales.returns == pytest.approx((min(returns), sum(returns) / 3, max(returns)), rel=1e-12)
    assert (found.n_observed, found.n_acted) == (OBSERVED, 4 if discrete else 2)
    assert found.n_features == 3 + 1 + OBSERVED + found.n_acted + TIMES
    if discrete:
        assert (found.entries, scales.acted, scales.acted_low) == (("0", "1", "2", "3"), (), ())
    else:
        assert found.entries == ()
        assert scales.acted_low == tuple(episodes.actions.min(0).tolist())
        assert scales.acted_high == tuple(episodes.actions.max(0).tolist())


def test_what_does_not_vary_is_not_divided_by_nothing() -> None:
    episodes = made([4, 2])
    episodes.observations[:, 1] = 0.1
    scales = spaces_of(replace(episodes, rewards=np.zeros(6)), np.zeros(6)).scales
    assert (scales.observed_spread[1], scales.to_go, scales.returns) == (1.0, 1.0, (0.0, 0.0, 0.0))


def test_actions_have_the_names_of_their_environment() -> None:
    assert spaces(names=("up", "right", "down", "left")).entries == ("up", "right", "down", "left")


def test_an_action_that_never_occurs_has_its_number() -> None:
    episodes = replace(made([3]), actions=np.array([5, 0, 5]))
    found = spaces_of(episodes, episodes.returns_to_go())
    assert found.entries == tuple("012345")
    found.check(episodes, "x.csv")


@pytest.mark.parametrize("actions", [np.array([2, 2, 2]), np.full((3, 2), 0.5, np.float32)])
def test_actions_that_are_all_the_same_teach_nothing(actions: Any) -> None:
    episodes = replace(made([3]), actions=actions)
    with pytest.raises(DataError, match=r"in all 3 steps it is .*(2|0\.5).*different actions"):
        spaces_of(episodes, episodes.returns_to_go())


@BOTH
def test_a_file_keeps_every_bit(discrete: bool) -> None:
    whole = spaces(discrete)
    again = tokenizer_from_json(whole.to_json())
    assert isinstance(again, Spaces)
    assert (again.scales, again.entries) == (whole.scales, whole.entries)
    assert again.to_json() == whole.to_json()
    assert {name: type(value) for name, value in asdict(again.scales).items()} == {
        name: type(value) for name, value in asdict(whole.scales).items()
    }


BAD_VALUES = [None, True, "1", "", {}, [], [[]], [None], [True], ["1"], [[1.0]], float("nan"), float("inf"), -1.0,
              0, 0.0, 2.5, [float("nan")], [1.0], [1.0] * 4, 10**400, [10**400],
              [-1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]  # fmt: skip
LEGAL = {
    "to_go": [2.5],
    "observed": [[-1.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
    "returns": [[-1.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
}


@pytest.mark.parametrize("name", [*asdict(spaces().scales)])
@BOTH
def test_scales_that_are_none_are_refused(name: str, discrete: bool) -> None:
    """Every field, with what another program may have written there."""
    record = json.loads(spaces(discrete).to_json())
    for bad in BAD_VALUES:
        if bad in LEGAL.get(name, []) or (discrete and name.startswith("acted") and bad == []):
            continue
        text = json.dumps({**record, "scales": {**record["scales"], name: bad}})
        with pytest.raises(DataError, match=r"file of spaces must .*Use the tokenizer\.json of a glassformer run"):
            Spaces.from_json(text)
    for scales in ({**record["scales"], "more": 1.0}, {k: v for k, v in record["scales"].items() if k != name}):
        with pytest.raises(DataError, match="must hold the scales observed, "):
            Spaces.from_json(json.dumps({**record, "scales": scales}))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "label"},
        {"specials": []},
        {"scales": None},
        {"scales": []},
        {"entries": None},
        {"entries": [1, 2]},
        {"entries": ["a", "a"]},
        {"entries": ["a", " "]},
        {"entries": []},
        {"entries": ["\ud800", "a"]},
    ],
)
def test_a_file_of_other_spaces_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DataError):
        Spaces.from_json(json.dumps(json.loads(spaces().to_json()) | changes))


def test_names_of_actions_and_scales_of_their_numbers_exclude_each_other() -> None:
    record = json.loads(spaces(False).to_json()) | {"entries": ["a", "b"]}
    with pytest.raises(DataError, match="got 2 names and the scales of 2 numbers"):
        Spaces.from_json(json.dumps(record))


@BOTH
def test_no_damage_ends_in_an_error_of_python(discrete: bool) -> None:
    """A piece of the text is replaced by another: it is refused, or spaces that can be written and read again."""
    text, draw = spaces(discrete).to_json(), random.Random(0)
    pieces = ["", "0", "-", "1e999", "NaN", "[", "]", "{}", "null", "true", '"', ",", ":", "[1, 2]", "\ud800"]
    refused = 0
    for _ in range(2000):
        first = draw.randrange(len(text))
        changed = text[:first] + draw.choice(pieces) + text[first + draw.randrange(12) :]
        try:
            found = Spaces.from_json(changed)
        except DataError:
            refused += 1
        else:
            assert Spaces.from_json(found.to_json()).scales == found.scales
    assert refused > 1000


def test_episodes_of_another_environment_are_refused() -> None:
    numbered, vectors = spaces(), spaces(False)
    theirs, others = made([2, 3]), made([2, 3], discrete=False)
    numbered.check(theirs, "x.csv")
    vectors.check(others, "x.csv")

    def said(spaces: Spaces, episodes: Episodes) -> str:
        with pytest.raises(DataError, match=r"^x\.csv: ") as caught:
            spaces.check(episodes, "x.csv")
        return str(caught.value)

    narrow = replace(theirs, observations=theirs.observations[:, :2])
    assert "an observation must have 3 numbers, as in training; these have 2" in said(numbered, narrow)
    assert "an action must be one of some, by number, as in training; these are 2 numbers" in said(numbered, others)
    assert "an action must be 2 numbers, as in training; these are one of some, by number" in said(vectors, theirs)
    one = replace(others, actions=others.actions[:, :1])
    assert "an action must be 2 numbers, as in training; these are 1 numbers" in said(vectors, one)
    more = replace(theirs, actions=theirs.actions + 1)
    assert "actions must be below 4, as in training; one is 4" in said(numbered, more)
