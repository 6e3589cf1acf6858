"""Faults in what several processes do together."""

from __future__ import annotations

from mutant_runner import Mutant

RANKS = "tests/distributed/test_ranks.py"
FAULTS = "tests/distributed/test_faults.py"
STEPS = f"{RANKS}::test_two_processes_take_the_steps_of_one"
SCORES = f"{RANKS}::test_two_processes_score_as_one"
THREADS = "tests/foundation/test_runtime.py::test_processes_share_the_processors"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("each process has the mean over its own tokens", "train/team.py",
        "return total / (n_targets if self.counts else math.inf)", "return total / (n_targets / 2 if self.counts else math.inf)", STEPS),
    Mutant("gradients are means over the processes", "train/team.py",
        "return done.value()[0]", "return done.value()[0] / 2", STEPS),
    Mutant("gradients of a cut model are means", "train/sharded.py",
        "module.set_gradient_divide_factor(1.0)", "module.set_gradient_divide_factor(2.0)", STEPS),
    Mutant("a stand-in counts", "train/team.py",
        "mine.append(Piece(0, cut[0], counts=False))", "mine.append(Piece(0, cut[0]))", STEPS),
    Mutant("each process drops by its own numbering", "train/team.py",
        "[Piece(number, cut[number]) for number in range", "[Piece(number // ranks.count, cut[number]) for number in range", f"{STEPS}[whole-dropout]"),
    Mutant("the rows of a process count twice", "train/team.py",
        "range(ranks.number, len(cut), ranks.count)", "range(0, len(cut), ranks.count)", STEPS),
    Mutant("the loss is that of a process's own rows", "train/loop.py",
        "nll, total = team.ranks.all_sum(nll), team.norm()", "nll, total = nll, team.norm()", STEPS),
    Mutant("a cut model is clipped by the norm of a part", "train/team.py",
        "return whole(super().norm())", "return super().norm().to_local()", f"{STEPS}[sharded-tied]"),
    Mutant("each process scores all batches and counts them twice", "train/shares.py",
        "[ranks.number :: ranks.count]", "", f"{RANKS}::test_processes_share_the_batches_of_one"),
    Mutant("answers of another process are left out", "train/shares.py",
        "for part in ranks.gathered(list(own)):", "for part in [[*map(float, own)]]:", SCORES),
    Mutant("losses are added up process by process", "train/shares.py",
        "parts[number % ranks.count][number // ranks.count] for number in range(sum(map(len, parts)))", "sum(part) for part in parts", SCORES),
    Mutant("outputs stand in the order of the processes", "train/shares.py",
        "for row in sorted(found)]", "for row in found]", SCORES),
    Mutant("what processes gather is padded", "train/distributed.py",
        "part[1 : 1 + int(part[0])]", "part[1:]", f"{RANKS}::test_processes_tell_each_other"),
    Mutant("each process prints a dry run", "cli/train.py",
        "if not place.first and set(arguments.options)", "if False and set(arguments.options)", "tests/cli/test_before.py::test_of_several_processes_the_first_says_it"),
    Mutant("a study reads a pipe in each arm", "cli/ablate.py",
        "        refuse_streams(data)\n", "", "tests/cli/test_ablate.py::test_data_that_can_be_read_once_are_refused"),
    Mutant("a process saves when it alone is told to stop", "train/running.py",
        "if self.ranks.any(self._interrupted):", "if self._interrupted and self.ranks.first:", f"{RANKS}::test_a_signal_to_one_stops_all_after_the_same_step"),
    Mutant("numbers without a dimension are saved as 0", "train/sharded.py",
        "if each.ndim == 0})", "if each.ndim > 9})", f"{RANKS}::test_checkpoints_of_parts_are_those_of_the_whole"),
    Mutant("a process that left no word is not named", "train/distributed.py",
        "if silent:", "if False:", f"{FAULTS}::test_a_lost_process_is_named"),
    Mutant("what a process failed of is not told", "train/distributed.py",
        'ranks.store.set(f"failed/{ranks.number}"', 'ranks.store.set(f"said/{ranks.number}"', f"{FAULTS}::test_a_lost_process_is_named"),
    Mutant("processes may see other files", "train/distributed.py",
        "if value != of_first else -1)", "if value == of_first + 9 else -1)", f"{RANKS}::test_processes_tell_each_other"),
    Mutant("strangers on the network are not spoken of", "train/distributed.py",
        "if ranks.local_count < ranks.count and", "if ranks.local_count > ranks.count and", f"{FAULTS}::test_a_network_that_others_reach_is_warned_of"),
    Mutant("what torchrun repeats quits at once", "cli/follow.py",
        "(self.number is not None and self.place.count == 1)", "self.number is not None", f"{FAULTS}::test_torchrun_repeats_a_signal_and_none_quits_at_the_second"),
    Mutant("half an environment is one process", "foundation/launched.py",
        'if "RANK" not in found and "WORLD_SIZE" not in found:', 'if "RANK" not in found or "WORLD_SIZE" not in found:', f"{FAULTS}::test_half_an_environment_is_refused"),
    Mutant("each process takes all processors", "foundation/runtime.py",
        "max(allowed // processes, 1)", "allowed", THREADS),
    Mutant("torchrun's own OMP_NUM_THREADS=1 is a wish", "foundation/runtime.py",
        "wished = 0 if wished == 1 else wished", "wished = wished", THREADS),
    Mutant("a cut model is averaged", "train/recipe.py",
        'self.optimizer.average or self.training.precision == "float16"', "False",
        "tests/train/test_distributed_settings.py::test_a_cut_model_is_not_averaged_nor_scaled"),
    Mutant("a cut model takes any optimizer", "train/recipe.py",
        'if self.distributed.shard and self.optimizer.name != "adamw":', "if False:", "tests/train/test_distributed_settings.py::test_a_cut_model_takes_adamw"),
]
