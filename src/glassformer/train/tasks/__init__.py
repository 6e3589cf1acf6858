"""The kinds of task, one file each: what is read, how it becomes batches, and what a run is for. Imports no torch.

A file holds, in this order: the verb of the task and what it answers, if it has one of its own; the `Task`, with its
settings, samples, data and model, scores, and the use of a run; the data of a run, if they are of a kind of their own;
and functions for figures.
"""

from __future__ import annotations

from glassformer.base.registry import lookup
from glassformer.data.config import DataConfig
from glassformer.data.kinds import LABELLED, PAIRS, REGRESSION, TAGS, TEXT, TRAJECTORIES
from glassformer.data.synthetic import TASKS as MADE
from glassformer.train.tasks.labels import Labels
from glassformer.train.tasks.pairs import Pairs
from glassformer.train.tasks.regression import Regression
from glassformer.train.tasks.tags import Tags
from glassformer.train.tasks.task import Measure, Task
from glassformer.train.tasks.text import Text
from glassformer.train.tasks.trajectories import Trajectories

__all__ = ["METRICS", "TASKS", "Task", "task_of"]

TASKS: dict[str, type[Task]] = {
    **dict.fromkeys((PAIRS, *MADE), Pairs),
    LABELLED: Labels,
    TAGS: Tags,
    REGRESSION: Regression,
    TEXT: Text,
    TRAJECTORIES: Trajectories,
}
"""The task that each `data.task` names."""
METRICS: dict[str, Measure] = {each.name: each for task in TASKS.values() for each in task.metrics}
"""The metrics that can choose the best checkpoint of some task."""


def task_of(data: DataConfig) -> Task:
    """The task of a run with these data settings."""
    return lookup(TASKS, data.task, "data.task")(data)
