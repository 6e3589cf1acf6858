"""Faults that reading found: what is decided once, sizes from outside, and right code that was called wrong."""

from __future__ import annotations

from mutant_runner import Mutant

CHANGES, WEIGHTS = "tests/train/run/test_changes.py", "tests/store/test_weights.py"
CHECK = "tests/proof/test_check_file.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("turns count from the beginning of a row, not of a document", "model/stack.py",
        "self.positions.rotation(standing, x)", "self.positions.rotation(step.positions, x)",
        "tests/contract/test_reading.py::test_packed_documents_get_what_each_gets_alone"),
    Mutant("a run that goes on may be told to measure anew", "train/run/changes.py",
        'if settings.precision == "auto":', "if False:", f"{CHANGES}::test_what_is_decided_as_a_run_begins_is_not_decided_anew"),
    Mutant("threads are chosen anew and not written down", "train/run/changes.py",
        'if settings.threads == 0 and "training.threads" in asked:', "if False:",
        f"{CHANGES}::test_what_is_decided_as_a_run_begins_is_not_decided_anew"),
    Mutant("an average is scaled by another memory than its own", "train/run/changes.py",
        "if each.name == AVERAGE:", "if False:", f"{CHANGES}::test_the_memory_of_an_average_stays_though_it_is_named"),
    Mutant("a penalty comes once for each text, not for each number", "train/loss.py",
        "ids.numel() * penalty", "len(ids) * penalty", "tests/parts/test_experts.py::test_the_penalty_comes_once_for_each_number"),
    Mutant("a large dilation pads to its own length", "attend/sparse.py",
        "step = min(pattern.dilation, S)", "step = pattern.dilation", "tests/attend/test_sparse.py::test_what_is_longer_than_the_text_is_not_padded_to"),
    Mutant("a large block pads to its own length", "attend/sparse.py",
        "Part(1, min(block, S), 0, 0, None, _all)", "Part(1, block, 0, 0, None, _all)",
        "tests/attend/test_sparse.py::test_what_is_longer_than_the_text_is_not_padded_to"),
    Mutant("as many experts are made as a file asks for", "store/weights.py",
        ', "n_experts"),', "),", f"{WEIGHTS}::test_implausible_sizes_are_refused_before_anything_is_built"),
    Mutant("a pattern reaches as far as a number goes", "model/stack_config.py",
        'at_most(self, "", MOST_PLACES, *REACH)', "pass", f"{WEIGHTS}::test_config_of_another_model_or_none"),
    Mutant("nothing behind = means true", "cli/arguments.py",
        '"true" if given is None else given', 'given or "true"', "tests/cli/test_arguments.py"),
    Mutant("data are fetched into a file", "cli/data.py",
        "if not there.is_dir():", "if False:", "tests/cli/test_data.py::test_a_file_is_no_folder_for_data"),
    Mutant("what is heard may be written over", "proof/check/listen.py",
        "given.clone(), gave.clone()", "given, gave", f"{CHECK}::test_what_is_written_in_place_is_no_mistake"),
    Mutant("an equation holds that nobody tested", "proof/check/heads.py",
        '            return mixed\n        raise NotTestedError("its linear maps could not be told apart")\n', "            return mixed\n        return None\n",
        f"{CHECK}::test_maps_that_cannot_be_told_apart"),
    Mutant("matrices of zeros are copies", "proof/check/stack.py",
        " and (each != each[0, 0]).any()", "", f"{CHECK}::test_matrices_that_begin_at_zero_are_not_copies"),
    Mutant("pruned heads are alike", "proof/doctor/heads.py",
        "gaps.masked_fill((sizes == 0) & (sizes == 0)[:, None], 1.0)", "gaps", "tests/proof/test_doctor.py::test_heads_that_were_pruned_are_not_alike"),
    Mutant("a shifted role is followed by the score of another", "lens/server/history.py",
        'f"{said} {shift:+d}" if shift else said', "said", "tests/lens/server/test_history.py::test_a_role_with_a_shift_is_followed_by_its_own_score"),
    Mutant("a role on the page has no shift", "lens/page/role.js",
        "return role?.shift ?", "return false ?", "tests/lens/page/test_arrange.py::test_a_role_has_its_shift_and_the_chance_of_that"),
    Mutant("a line of no step ends the reading", "lens/server/figures.py",
        "        if not isinstance(step, int):\n            continue\n", "", "tests/lens/server/test_figures.py"),
]
