"""The settings of trajectories, and the episodes that they name: impossible ones are refused with the way out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.trajectories.episodes import csv_of, made, same
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import DataConfig
from glassformer.data.kinds import MOST_EPISODES, MOST_STEPS
from glassformer.data.trajectories.rooms import ACTIONS, action_names, make_episodes, read_split


def config(**changes: Any) -> DataConfig:
    settings: dict[str, Any] = {"task": "trajectories", "layout": "actions", "environment": "rooms", "window": 10}
    return DataConfig(**settings | changes)


def written(folder: Path, n: int, name: str = "train.csv") -> str:
    (folder / name).write_text(csv_of(made([2] * n, seed=len(name))), "utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "encoder"}, r"data\.task='trajectories' and data\.layout='actions' only work together"),
        ({"task": "copy", "environment": None, "window": 256}, r"only work together; got data\.task='copy'"),
        ({"window": 0}, r"data\.window must be at least 1"),
        ({"window": MOST_STEPS + 1}, rf"data\.window must be at most {MOST_STEPS}"),
        ({"train_size": MOST_EPISODES + 1}, rf"data\.train_size must be at most {MOST_EPISODES}"),
        ({"dev_share": 0.0}, r"data\.dev_share must be above 0 and below 1; got 0\.0"),
        ({"dev_share": 1.0}, r"data\.dev_share must be above 0 and below 1; got 1\.0"),
        ({"discount": 0.0}, r"data\.discount must be above 0 and at most 1"),
        ({"discount": 1.01}, r"data\.discount must be above 0 and at most 1.*got 1\.01"),
        ({"discount": float("nan")}, r"data\.discount must be"),
        ({"environment": ""}, r"data\.environment must name an environment"),
        ({"environment": None}, r"Only data\.environment='rooms' makes its own .* got .*None and data\.train=None"),
        ({"environment": "CartPole-v1"}, r"Only data\.environment='rooms' makes its own .* Set data\.train"),
        ({"train_source": "a", "train_target": "b"}, r"reads one file per split, but data\.train_source is set"),
        ({"train": ""}, r"data\.train must name a file; got ''"),
        ({"stride": 3}, r"data\.stride"),
        ({"documents": True}, r"data\.documents"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@pytest.mark.parametrize("changes", [{"environment": "rooms"}, {"discount": 0.9}])
def test_other_tasks_have_no_use_for_it(changes):
    with pytest.raises(ConfigError, match=rf"data\.{next(iter(changes))} .*data\.task='trajectories'"):
        DataConfig(task="copy", **changes)


def test_a_window_may_be_longer_than_any_episode():
    assert config(window=MOST_STEPS, discount=1.0, dev_share=0.5, train="x.csv", environment=None).window == MOST_STEPS


@pytest.mark.parametrize(
    ("n", "share", "held_out"), [(10, 0.1, 1), (10, 0.25, 2), (10, 0.01, 1), (2, 0.4, 1), (4, 0.5, 2)]
)
def test_the_end_of_the_training_file_is_held_out(tmp_path, n, share, held_out):
    requested = config(train=written(tmp_path, n), dev_share=share)
    whole = made([2] * n, seed=len("train.csv"))
    train, dev = (read_split(requested, name, 1) for name in ("train", "dev"))
    assert same(train.episodes, whole.part(0, n - held_out))
    assert same(dev.episodes, whole.part(n - held_out, n))
    assert train.name == dev.name == requested.train
    with pytest.raises(ConfigError, match=r"no file for the test episodes\. Set data\.test"):
        read_split(requested, "test", 1)


@pytest.mark.parametrize(("n", "share"), [(1, 0.1), (2, 0.9), (10, 0.96)])
def test_a_file_too_short_to_be_split_is_refused(tmp_path, n, share):
    requested = config(train=written(tmp_path, n), dev_share=share)
    with pytest.raises(DataError, match=rf"train\.csv: data\.dev_share={share} of {n} episodes leaves .* to train on"):
        read_split(requested, "train", 1)


def test_each_split_has_its_own_file_if_one_is_named(tmp_path):
    names = {"train": "train.csv", "dev": "other-dev.csv", "test": "another-test.csv"}
    files: dict[str, Any] = {split: written(tmp_path, 3, name) for split, name in names.items()}
    requested = config(**files)
    for split, name in names.items():
        found = read_split(requested, split, 1)
        assert same(found.episodes, made([2] * 3, seed=len(name)))
        assert found.name == str(tmp_path / name)


def test_without_a_file_the_rooms_make_episodes(tmp_path):
    requested = config(train_size=5, dev_size=4, test_size=3)
    for split, n in (("train", 5), ("dev", 4), ("test", 3)):
        found = read_split(requested, split, 7)
        assert (len(found.episodes), found.name) == (n, "the environment rooms")
        assert same(found.episodes, make_episodes(requested, split, 7))
    assert action_names(requested) == ACTIONS
    assert action_names(replace(requested, train="x.csv")) == ()
    own = replace(requested, dev=written(tmp_path, 2))
    assert len(read_split(own, "dev", 7).episodes) == 2
    assert len(read_split(own, "train", 7).episodes) == 5
