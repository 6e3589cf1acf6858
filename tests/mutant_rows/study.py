"""Faults in studies: grids, processes, resuming, tables."""

from __future__ import annotations

from mutant_runner import Mutant

ABLATE = "tests/cli/test_ablate.py"
GRID = "tests/study/test_grid.py"
POOL = "tests/study/test_pool.py"
TABLE = "tests/study/test_table.py"
PLOT = "tests/study/test_plot.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("arms are compared by several metrics", "study/grid.py",
        'if name == "training.metric":', "if False:", f"{GRID}::test_no_grid"),
    Mutant("all seeds of a study are one", "study/grid.py",
        "replace(whole, training=replace(whole.training, seed=seed))", "whole", f"{GRID}::test_every_combination_with_every_seed"),
    Mutant("arms choose their arithmetic by measured speed", "study/grid.py",
        'precision = "float32" if training.precision == "auto" else training.precision', "precision = training.precision",
        f"{GRID}::test_nothing_is_left_to_the_machine"),
    Mutant("arms whose names look alike share a folder", "study/grid.py",
        "-{blake2b(whole.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}", "",
        f"{GRID}::test_names_of_files_are_plain_short_and_different"),
    Mutant("a setting both varied and set is varied in silence", "study/grid.py",
        "        if name in changes:", "        if False:", f"{GRID}::test_no_grid"),
    Mutant("the order of the data hangs on the model", "train/sources/pairs_data.py",
        "        seed,\n        training.pool", "        seed + recipe.model.n_layers,\n        training.pool",
        f"{GRID}::test_arms_of_a_seed_see_the_same_batches_in_the_same_order"),
    Mutant("models are not made before they are trained", "cli/ablate.py",
        "    refuse_impossible_models(study.arms)\n", "", f"{ABLATE}::test_refused_before_anything_is_made"),
    Mutant("one process more than allowed", "study/pool.py",
        "len(self.children) < self.limit", "len(self.children) <= self.limit",
        f"{POOL}::test_never_more_than_allowed_and_all_are_run"),
    Mutant("an arm is told to stop again and again", "study/pool.py",
        "                child.stopping = True\n", "", f"{POOL}::test_interrupt_lets_those_that_run_save_and_starts_no_more"),
    Mutant("a stopped study begins more arms", "study/pool.py",
        "while self.waiting and not self.stopping and len", "while self.waiting and len",
        f"{POOL}::test_interrupt_lets_those_that_run_save_and_starts_no_more"),
    Mutant("a study that ends leaves its arms running", "study/pool.py",
        "                self._end_all()\n", "                pass\n", f"{POOL}::test_leaving_early_ends_all"),
    Mutant("Ctrl-C reaches the arms twice", "study/pool.py",
        "                process_group=0,\n", "", f"{POOL}::test_children_are_in_groups_of_their_own"),
    Mutant("the libraries of an arm take all processors", "study/pool.py",
        "**dict.fromkeys(THREADS, str(threads))", "**dict.fromkeys(THREADS[:0], str(threads))",
        f"{POOL}::test_threads_of_all_libraries"),
    Mutant("arms live on when the study was killed", "cli/arm.py",
        "    os.kill(os.getpid(), signal.SIGTERM)\n", "", f"{POOL}::test_end_of_the_study_ends_its_arms"),
    Mutant("jobs take no account of their threads", "cli/ablate.py",
        "number * threads > processors", "number > processors", f"{ABLATE}::test_more_jobs_than_fit_are_refused"),
    Mutant("finished arms are trained again", "cli/ablate.py",
        'if states[arm.label] != "finished"', "if arm", f"{ABLATE}::test_finished_arms_are_not_trained_again"),
    Mutant("an arm of other settings is taken for the one asked for", "study/folder.py",
        "        if differing:", "        if False:", f"{ABLATE}::test_arm_of_other_settings_is_refused_with_the_difference"),
    Mutant("figures on other data than asked for are taken", "study/folder.py",
        "return found if found.other_data == dict(other) else None", "return found",
        f"{ABLATE}::test_other_test_data_are_scored_without_training"),
    Mutant("a failed arm is passed over in silence", "cli/ablate.py",
        "return FAILED if failures else 0", "return 0", f"{ABLATE}::test_failing_arm_is_told_and_stops_nobody"),
    Mutant("a stopped study ends as a finished one", "cli/ablate.py",
        "        return 128 + stopped\n", "        return 0\n", "tests/cli/test_ablate_signals.py::test_signal_lets_all_arms_save_and_stop"),
    Mutant("99 % is reached at the best evaluation", "study/result.py",
        "return reached[0] if reached", "return reached[-1] if reached",
        f"{TABLE}::test_steps_to_99_percent_are_of_the_first_evaluation_there"),
    Mutant("the time before a resume is not counted", "study/result.py",
        "return sum(ends) + times[-1]", "return times[-1]", f"{TABLE}::test_seconds_of_a_run_that_was_resumed_are_summed"),
    Mutant("the table shows the last seed only", "study/table.py",
        "figure([each.test for each in mine], first.metric)", "figure([each.test for each in mine[-1:]], first.metric)",
        f"{TABLE}::test_mean_and_spread_of_each_combination"),
    Mutant("curves of one panel are mixed with another's", "study/plot.py",
        "title = short_combination(dict(others))\n        series = panels", 'title = ""\n        series = panels',
        f"{PLOT}::test_curves_have_a_panel_for_each_of_the_others_and_a_line_for_each_of_the_first"),
    Mutant("a colour is another value in each panel", "study/plot.py",
        "for name in names(results)}, share)", "for name in {shown(first[1]): 0, **dict.fromkeys(names(results))}}, share)",
        f"{PLOT}::test_a_colour_is_one_value_in_every_panel"),
    Mutant("the digests of a study are dropped", "cli/explore.py",
        '            "data": each.data,\n', "", "tests/cli/test_explore.py::test_other_runs_and_a_study_stand_beside"),
    Mutant("exact match by length counts by the answer's place", "train/score/evaluate.py",
        "        of.setdefault(length, []).append(each)", "        of.setdefault(len(of), []).append(each)",
        "tests/train/score/test_evaluate.py::test_exact_match_by_length"),
]
# fmt: on
