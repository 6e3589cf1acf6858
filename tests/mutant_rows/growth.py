"""Faults in the warm-ups of batch and length."""

from __future__ import annotations

from mutant_runner import Mutant

WARMING = "tests/data/test_warming.py"
WARMUP = "tests/train/optim/test_warmup.py"
ONCE = f"{WARMING}::test_every_sample_once_an_epoch"
WAIT = f"{WARMING}::test_a_longer_sample_comes_only_where_no_shorter_batch_is_left"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a batch warm-up ends a step late", "data/growth.py",
        "(step - 1) / self.batch_steps", "(step - 2) / self.batch_steps", f"{WARMING}::test_a_share_grows_in_a_straight_line"),
    Mutant("parts are larger than the share", "data/growth.py",
        "math.ceil(1.0 / self.share(step) - 1e-9)", "math.floor(1.0 / self.share(step))", f"{WARMING}::test_no_step_takes_more_than_its_share"),
    Mutant("a length warm-up begins above what the data have", "data/growth.py",
        "start = min(self.length_start, longest)", "start = self.length_start", f"{WARMING}::test_a_length_grows_in_a_straight_line_by_eights"),
    Mutant("a part of a batch is left out", "data/warming.py",
        "for part in range(parts):", "for part in range(max(1, parts - 1)):", ONCE),
    Mutant("the epoch after the warm-up is another one", "data/warming.py",
        "step - len(self.turns) + self._steps_before", "step - len(self.turns) + self._steps_before + 1", ONCE),
    Mutant("long batches that waited are lost", "data/warming.py",
        "if ready else waiting.pop()\n", "if ready else waiting.pop()\n            waiting = waiting[1:]\n", ONCE),
    Mutant("long batches do not wait", "data/warming.py",
        "while waiting and lengths[waiting[-1]] <= allowed:", "while waiting:", WAIT),
    Mutant("parts count as batches", "data/warming.py",
        "sum(1 / turn.parts for turn", "sum(1 for turn", f"{WARMING}::test_epochs_are_counted_by_samples"),
    Mutant("a dry run times the small batches", "train/estimate/outlook.py",
        "training, warm = recipe.training, recipe.training.growth.steps", "training, warm = recipe.training, 0", f"{WARMUP}::test_time_is_measured_on_full_batches"),
    Mutant("no warm-up reaches the sampler", "train/sources/pairs_data.py",
        "        training.growth,\n", "", f"{WARMUP}::test_batches_begin_small_and_short"),
]
