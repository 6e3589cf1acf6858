"""Faults in the mean of checkpoints."""

from __future__ import annotations

from mutant_runner import Mutant

MEAN = "tests/store/test_mean.py"
NEWEST = f"{MEAN}::test_it_is_the_mean_of_the_newest"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("the mean is a sum", "store/mean.py",
        "each.copy_(sums[name] / len(folders))", "each.copy_(sums[name])", NEWEST),
    Mutant("the mean is added up in float32", "store/mean.py",
        "each.detach().double()", "each.detach().clone()", NEWEST),
    Mutant("the oldest checkpoints are taken", "store/mean.py",
        "reversed(checkpoints(run).values())", "checkpoints(run).values()", NEWEST),
    Mutant("the mean of other models is taken", "store/mean.py",
        "if newest.get(name) != other.get(name):", "if False:", f"{MEAN}::test_other_models_and_vocabularies_are_refused"),
    Mutant("a mean of fewer is taken in silence", "store/mean.py",
        "if len(found) < count:", "if not found:", f"{MEAN}::test_a_damaged_one_is_passed_over_and_named"),
    Mutant("the mean is not used", "train/finished/loading.py",
        "load(run, device=device) if average is None else load_mean(run, average, device=device)", "load(run, device=device)",
        "tests/cli/test_average.py"),
]
