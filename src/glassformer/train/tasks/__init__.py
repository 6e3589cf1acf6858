"""The kinds of task, one file each: what is read, how it becomes batches, and what a run is for. Imports no torch."""

from __future__ import annotations

from glassformer.base.registry import lookup
from glassformer.data.config import LABELLED, PAIRS, TEXT, TRAJECTORIES, DataConfig
from glassformer.data.synthetic import TASKS as MADE
from glassformer.train.tasks.labels import Labels
from glassformer.train.tasks.pairs import Pairs
from glassformer.train.tasks.task import Task
from glassformer.train.tasks.text import Text
from glassformer.train.tasks.trajectories import Trajectories

__all__ = ["TASKS", "Task", "task_of"]

TASKS: dict[str, type[Task]] = {
    **dict.fromkeys((PAIRS, *MADE), Pairs),
    LABELLED: Labels,
    TEXT: Text,
    TRAJECTORIES: Trajectories,
}
"""The task that each `data.task` names."""


def task_of(data: DataConfig) -> Task:
    """The task of a run with these data settings."""
    return lookup(TASKS, data.task, "data.task")(data)
