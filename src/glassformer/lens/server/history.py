"""Head roles over the checkpoints of a run: each is looked at once, also of a run that is still in training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from glassformer.foundation.errors import CheckpointError, GlassformerError
from glassformer.lens.roles.probe import Probe
from glassformer.lens.roles.run import over_checkpoints
from glassformer.store.folders import checkpoints
from glassformer.store.lock import refuse_in_training

SEQUENCES = 100
"""Probed at each checkpoint: a quarter of a diagnosis's, as every one of them is looked at."""
SHARE = 0.002
"""Of one processor, what looks at a run in training may take on average: it is to go on as fast as without them."""


class History:
    """What the heads of a run did at each checkpoint that it has kept. `clock` counts seconds."""

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.clock = clock
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.seen: dict[int, list[dict[str, Any]]] = {}
        self.probe: Probe | None = None
        self.rested = -float("inf")
        """When the next look at a run in training is due."""

    def __call__(self) -> dict[str, Any]:
        """`steps`, and of each head its role at the last of them with the score of that role at each.

        A score is attention on the role's keys beyond chance. Checkpoints that came since are looked at now; of a run
        in training the newest alone, and so seldom that looks take a `SHARE` of a processor: the others wait for
        later calls. Errors: those of loading a run, and `GlassformerError` after `end`.
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
        """The same, with every checkpoint looked at, also of a run in training."""
        with self.lock:
            self.look(known=self.seen)
            return self.told()

    def end(self) -> None:
        """Look no further: a look that is under way ends within a piece of its work."""
        self.ended.set()

    def in_training(self) -> bool:
        """Whether a process trains the run, where the system has the locks that tell."""
        try:
            refuse_in_training(self.run)
        except CheckpointError:
            return True
        return False

    def look(self, known: Collection[int]) -> None:
        """Look at the checkpoints that are not known."""
        for at in over_checkpoints(
            self.run, sequences=SEQUENCES, known=known, probe=self.probe, between=self.refuse_ended
        ):
            self.seen[at.step] = at.diagnosis.to_json()
            self.probe = at.diagnosis.probe

    def refuse_ended(self) -> None:
        """Errors: `GlassformerError` after `end`."""
        if self.ended.is_set():
            raise GlassformerError("The explorer ends, so no checkpoint is looked at any more. Start it again.")

    def told(self) -> dict[str, Any]:
        """What has been seen."""
        steps = sorted(self.seen)
        heads = range(len(self.seen[steps[-1]]) if steps else 0)
        return {"steps": steps, "heads": [self.curve(i, steps) for i in heads]}

    def curve(self, i: int, steps: list[int]) -> dict[str, Any]:
        """Head number i: its last role (none: its best score), and that role's score at each step."""
        last = self.seen[steps[-1]][i]
        said, shift = last["role"]["label"], last["role"]["shift"]
        named = f"{said} {shift:+d}" if shift else said
        role = named if named in last["scores"] else max(last["scores"], key=lambda name: last["scores"][name] or -1.0)
        place = {name: last[name] for name in ("id", "block", "layer", "head")}
        return {**place, "role": role, "scores": [self.seen[step][i]["scores"].get(role) for step in steps]}
