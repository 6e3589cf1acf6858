"""What a run is for: one command for each kind of data, which takes it."""

from dataclasses import replace

import pytest

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.train.tasks import task_of
from glassformer.train.tasks.labels import CLASSIFY
from glassformer.train.tasks.task import EXPLORE, GENERATE, ROLLOUT, TRANSLATE

USES = (TRANSLATE, GENERATE, CLASSIFY, ROLLOUT, EXPLORE)
KINDS = {
    "translate": DataConfig(task="reverse"),
    "classify": DataConfig(task="labelled", layout="label"),
    "predict": DataConfig(task="regression", layout="text-numbers"),
    "generate": DataConfig(task="text", layout="decoder"),
    "evaluate": DataConfig(task="text", layout="masked", objective="masked"),
    "rollout": DataConfig(task="trajectories", layout="actions", environment="rooms"),
}


@pytest.mark.parametrize(("verb", "data"), KINDS.items())
def test_the_command_that_is_named_takes_the_run(verb, data):
    task = task_of(data)
    assert task.verb == verb
    for other in USES:
        if other in task.uses:
            task.refuse_unfit("a run", other)
        else:
            with pytest.raises(ConfigError, match=f"{other.cannot}. Use glassformer {verb} a run"):
                task.refuse_unfit("a run", other)
    assert verb in (*(each.name for each in task.uses), "evaluate")
    assert (GENERATE in task.uses) == (verb in ("translate", "generate"))  # an encoder-decoder writes, too
    assert (EXPLORE in task.uses) == (verb != "rollout")


def test_blanks_are_filled_by_translate():
    task = task_of(DataConfig(task="copy", layout="encoder"))
    assert (task.does, task.verb) == ("fills all blanks at once", "translate")
    assert GENERATE not in task.uses


def test_a_run_without_test_data_is_scored_on_its_dev_split():
    assert task_of(DataConfig(task="text", layout="decoder")).held_out == "dev"
    assert task_of(DataConfig(task="text", layout="decoder", test_text="a.txt")).held_out == "test"
    assert task_of(KINDS["rollout"]).held_out == "test"
    assert task_of(DataConfig(task="trajectories", layout="actions", train="a.csv")).held_out == "dev"
    assert task_of(DataConfig(task="trajectories", layout="actions", train="a.csv", test="b.csv")).held_out == "test"
    assert task_of(KINDS["translate"]).held_out == "test"
    pairs = DataConfig(task="pairs", train="a.tsv", dev="b.tsv")
    assert task_of(pairs).held_out == "dev"
    assert task_of(replace(pairs, test="c.tsv")).held_out == "test"
    sides = DataConfig(task="pairs", train_source="a", train_target="b", dev_source="c", dev_target="d")
    assert task_of(sides).held_out == "dev"
    assert task_of(replace(sides, test_source="e", test_target="f")).held_out == "test"
    assert task_of(DataConfig(task="labelled", layout="label", train="a.tsv", dev="b.tsv")).held_out == "dev"
    assert task_of(DataConfig(task="reverse")).held_out == "test"
