"""Head roles over the checkpoints of a run: each is looked at once, also of a run that is still in training."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from glassformer.lens.roles.run import over_checkpoints

SEQUENCES = 100
"""Probed at each checkpoint: a quarter of a diagnosis's, as every one of them is looked at."""


class History:
    """What the heads of a run did at each checkpoint that it has kept."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.lock = threading.Lock()
        self.seen: dict[int, list[dict[str, Any]]] = {}

    def __call__(self) -> dict[str, Any]:
        """`steps`, and of each head its role at the last of them with the score of that role at each.

        A score is attention on the role's keys beyond chance. Checkpoints that came since are looked at now.
        Errors: those of loading a run.
        """
        with self.lock:
            for at in over_checkpoints(self.run, sequences=SEQUENCES, known=self.seen):
                self.seen[at.step] = at.diagnosis.to_json()
            steps = sorted(self.seen)
            return {"steps": steps, "heads": [self.curve(i, steps) for i in range(len(self.seen[steps[-1]]))]}

    def curve(self, i: int, steps: list[int]) -> dict[str, Any]:
        """Head number i: its last role (none: its best score), and that role's score at each step."""
        last = self.seen[steps[-1]][i]
        known = last["role"]["label"] in last["scores"]
        role = last["role"]["label"] if known else max(last["scores"], key=lambda name: last["scores"][name] or -1.0)
        place = {name: last[name] for name in ("id", "block", "layer", "head")}
        return {**place, "role": role, "scores": [self.seen[step][i]["scores"].get(role) for step in steps]}
