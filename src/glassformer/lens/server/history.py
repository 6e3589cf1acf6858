"""Head roles over the checkpoints of a run: each is diagnosed once, even while the run is in training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from glassformer.base.errors import CheckpointError, GlassformerError
from glassformer.lens.roles.probe import Probe
from glassformer.lens.roles.run import over_checkpoints
from glassformer.store.folders import checkpoints
from glassformer.store.lock import refuse_in_training

SEQUENCES = 100
"""Sequences to probe at each checkpoint: a quarter of a full diagnosis, as every checkpoint is diagnosed."""
SHARE = 0.002
"""The mean share of one processor that diagnoses may use while the run trains, so as not to slow it down."""


class History:
    """The roles of a run's heads at each of its checkpoints. `clock` counts seconds."""

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.clock = clock
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.seen: dict[int, list[dict[str, Any]]] = {}
        self.probe: Probe | None = None
        self.rested = -float("inf")
        """When the next diagnosis of a run in training may begin."""

    def __call__(self) -> dict[str, Any]:
        """Return `steps` and, for each head, its role at the last step and the score of that role at each step.

        A score is the attention on the role's keys beyond chance. New checkpoints are diagnosed now. While the run
        trains, only the newest one is, and so rarely that diagnoses take a `SHARE` of a processor; the others wait for
        later calls. Errors: those of loading a run; `GlassformerError` after `end`.
        """
        with self.lock:
            found = checkpoints(self.run)
            waiting = [step for step in found if step not in self.seen]
            if not self.in_training() or not found:
                self.look(known=self.seen)
            elif waiting and self.clock() >= self.rested:
                began = time.process_time()
                try:
                    self.look(known=found.keys() - {waiting[-1]})
                finally:
                    self.rested = self.clock() + (time.process_time() - began) / SHARE
            return self.told()

    def whole(self) -> dict[str, Any]:
        """Return the same, but diagnose every checkpoint first, even while the run trains."""
        with self.lock:
            self.look(known=self.seen)
            return self.told()

    def end(self) -> None:
        """Diagnose no more; a diagnosis that is under way ends at its next check."""
        self.ended.set()

    def in_training(self) -> bool:
        """Whether a process trains the run; False on systems without file locks."""
        try:
            refuse_in_training(self.run)
        except CheckpointError:
            return True
        return False

    def look(self, known: Collection[int]) -> None:
        """Diagnose the checkpoints that are not in `known`."""
        for at in over_checkpoints(
            self.run, sequences=SEQUENCES, known=known, probe=self.probe, between=self.refuse_ended
        ):
            self.seen[at.step] = at.diagnosis.to_json()
            self.probe = at.diagnosis.probe

    def refuse_ended(self) -> None:
        """Raise `GlassformerError` after `end`."""
        if self.ended.is_set():
            raise GlassformerError("The explorer is ending, so it analyses no more checkpoints. Start it again.")

    def told(self) -> dict[str, Any]:
        """Return the results so far."""
        steps = sorted(self.seen)
        heads = range(len(self.seen[steps[-1]]) if steps else 0)
        return {"steps": steps, "heads": [self.curve(i, steps) for i in heads]}

    def curve(self, i: int, steps: list[int]) -> dict[str, Any]:
        """Return head i's last role and that role's score at each step; without a role, its best-scoring one."""
        last = self.seen[steps[-1]][i]
        said, shift = last["role"]["label"], last["role"]["shift"]
        named = f"{said} {shift:+d}" if shift else said
        role = named if named in last["scores"] else max(last["scores"], key=lambda name: last["scores"][name] or -1.0)
        place = {name: last[name] for name in ("id", "block", "layer", "head")}
        return {**place, "role": role, "scores": [self.seen[step][i]["scores"].get(role) for step in steps]}
