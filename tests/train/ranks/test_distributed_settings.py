"""The settings of several processes: bounds, and what a model that is cut cannot have."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.base.launched import Launched
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.recipe import Recipe, override
from glassformer.train.run.session import resume, start
from glassformer.train.settings import DistributedConfig
from train.examples import recipe, texts


def test_a_cut_model_takes_adamw():
    options = {"distributed.shard": True, "distributed.timeout": 7}
    assert override(Recipe("x"), options).distributed == DistributedConfig(shard=True, timeout=7)
    with pytest.raises(ConfigError, match=r"distributed\.shard splits each matrix.*optimizer\.name='muon'.*'adamw'"):
        override(Recipe("x"), options | {"optimizer.name": "muon"})


def test_a_cut_model_is_averaged_but_not_scaled():
    cut = {"distributed.shard": True}
    assert override(Recipe("x"), cut | {"optimizer.average": 0.9}).optimizer.average == 0.9
    changes = {"training.precision": "float16"}
    override(Recipe("x"), changes)
    with pytest.raises(ConfigError, match=r"distributed\.shard cannot be combined with float16"):
        override(Recipe("x"), changes | cut)


@pytest.mark.parametrize(("value", "rule"), [(0, "at least 1"), (86_401, "at most 86400")])
def test_bounds_of_the_time_out(value, rule):
    with pytest.raises(ConfigError, match=f"distributed.timeout must be {rule}"):
        DistributedConfig(timeout=value)


class Heard(Ranks):
    """A process that notes what it compares with the others."""

    def __init__(self) -> None:
        super().__init__(Launched())
        self.reported: dict[str, int] = {}

    def refuse_difference(self, what: str, value: int) -> None:
        assert what not in self.reported
        self.reported[what] = value


@pytest.mark.parametrize(("name", "section"), [
    ("training.batch_tokens", "training"),
    ("training.evaluate_every", "training"),
    ("checkpoint.every", "checkpoint"),
    ("distributed.timeout", "distributed"),
])  # fmt: skip
def test_processes_with_other_settings_are_refused(tmp_path, name, section):
    """By name of the section, before anything else is compared; in a new run and in one that goes on."""
    ours, theirs, later = Heard(), Heard(), Heard()
    start(recipe(), tmp_path / "run", ours).lock.release()
    start(recipe(**{name.replace(".", "__"): 97}), tmp_path / "other", theirs).lock.release()
    allowed = [name] if section == "training" else []
    resume(tmp_path / "run", allowed, {name: 97}, ranks=later).lock.release()
    for reported in (theirs.reported, later.reported):
        differing = [what for what in ours.reported if reported[what] != ours.reported[what]]
        assert differing == [f"[{section}] of the recipe"]
        assert list(reported).index(differing[0]) < list(reported).index("the newest checkpoint")


def test_where_a_file_lies_is_each_machines_own(tmp_path):
    heard = [Heard(), Heard()]
    for name, each in zip("ab", heard, strict=True):
        (tmp_path / name).mkdir()
        pair = texts(tmp_path / name, source=["a b"] * 4, target=["x y"] * 4)
        files = {f"data__{split}_{side}": str(path) for split in ("train", "dev") for side, path in pair.items()}
        start(recipe(data__task="pairs", **files), tmp_path / f"run-{name}", each).lock.release()
    assert heard[0].reported == heard[1].reported
