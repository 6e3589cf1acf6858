"""Faults in the curves for TensorBoard; without the package the tests of these rows are skipped, and so are they."""

from __future__ import annotations

from importlib.util import find_spec

from mutant_runner import Mutant

CURVES = "tests/train/record/test_curves.py"
FIGURES = f"{CURVES}::test_the_curves_are_the_figures_of_the_run"

# fmt: off
WITHOUT: list[Mutant] = [
    Mutant("a run trains though nothing can write its curves", "train/run/session.py",
        "    refuse_untrackable(recipe.training.track)\n", "", f"{CURVES}::test_without_the_package_it_is_refused_before_the_data_are_read"),
    Mutant("any tracker will do", "train/settings.py",
        "if self.track is not None:", "if self.track is None:", f"{CURVES}::test_another_tracker_is_refused"),
]
WITH: list[Mutant] = [
    Mutant("a resumed run shows steps twice", "train/record/curves.py",
        "self._write(step + 1, session_log", "self._write(step + 99, session_log", f"{CURVES}::test_a_resumed_run_shows_each_step_once"),
    Mutant("a resumed run writes over its curves", "train/record/curves.py",
        "1 + max((int(each) for each in numbers if each.isdecimal()), default=0)", "1", f"{CURVES}::test_a_resumed_run_shows_each_step_once"),
    Mutant("evaluations have no curve", "train/record/records.py",
        "self.curves.evaluation(event)", "pass", FIGURES),
    Mutant("steps have no curve", "train/record/records.py",
        "self.curves.step(event)", "pass", FIGURES),
    Mutant("curves do not wait for room", "train/record/records.py",
        "self.files[FOLDER] = self.curves.file", "pass", f"{CURVES}::test_a_full_disk_delays_them"),
    Mutant("another tracker is another run", "train/run/changes.py",
        '"training.recompute", "training.track", "decode.threads")', '"training.recompute", "decode.threads")', f"{CURVES}::test_a_resume_may_begin_to_track"),
]
ROWS = WITHOUT + (WITH if find_spec("tensorboard") else [])
