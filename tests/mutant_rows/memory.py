"""Faults in what training does with memory, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

RECOMPUTE, LOOP = "tests/model/test_recompute.py", "tests/train/test_loop.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # recomputation
    Mutant("recomputation draws other coins", "model/recompute.py",
        "use_reentrant=False)", "use_reentrant=False, preserve_rng_state=False)",
        f"{RECOMPUTE}::test_the_same_bits_in_the_arithmetic_of_training"),
    Mutant("recomputation keeps everything", "model/recompute.py",
        "stack.through = partial(in_groups, size=blocks)", "pass",
        f"{RECOMPUTE}::test_only_what_goes_into_a_group_is_kept"),
    Mutant("every block is a group of its own", "model/recompute.py",
        "partial(in_groups, size=blocks)", "partial(in_groups, size=1)",
        f"{RECOMPUTE}::test_only_what_goes_into_a_group_is_kept"),
    Mutant("the last group leaves out its end", "model/recompute.py",
        "blocks[first : first + size]", "blocks[first : first + size][:size if first + size <= len(blocks) else 0]",
        f"{RECOMPUTE}::test_the_same_bits_in_the_arithmetic_of_training"),
    Mutant("a model goes on recomputing after the with", "model/recompute.py",
        "stack.through = through", "pass", f"{RECOMPUTE}::test_ends_as_it_began_after_an_error"),
    Mutant("training.recompute is not obeyed", "train/loop.py",
        "recomputed(model, self.recompute)", "recomputed(model, 0)", f"{LOOP}::test_recomputation_is_obeyed"),
]
