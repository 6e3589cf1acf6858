"""Faults in how a run is kept, stopped, changed and gone on with."""

from __future__ import annotations

from mutant_runner import Mutant

CHANGES = "tests/train/test_changes.py"
FOLDERS = "tests/store/test_folders.py"
SAVING = "tests/train/test_saving.py"
SKIP = "tests/train/test_skip_nonfinite.py"

# fmt: off
ROWS: list[Mutant] = [
    # saving
    Mutant("the snapshot is no copy", "store/snapshot.py",
        'tensor.detach().to("cpu", copy=True)', 'tensor.detach().to("cpu")', f"{SAVING}::test_snapshot_is_what_it_was_at_the_call"),
    Mutant("a save in the background takes no copy", "train/saving.py",
        "if settings.background or self.average:", "if self.average:", f"{SAVING}::test_training_goes_on_while_the_disk_is_slow"),
    Mutant("two saves at a time", "train/saving.py",
        "        yield from self.wait()\n        settings", "        settings", f"{SAVING}::test_one_at_a_time_and_each_is_told_when_it_is_there"),
    Mutant("the end does not wait for the disk", "train/running.py",
        "            ended = yield from self._steps(began)\n            yield from self.saver.wait()\n",
        "            ended = yield from self._steps(began)\n", f"{SAVING}::test_one_at_a_time_and_each_is_told_when_it_is_there"),
    Mutant("a bug in the background is lost", "train/saving.py",
        "            raise error\n", "            pass\n", f"{SAVING}::test_bug_in_the_background_comes_out"),
    Mutant("a full disk is told of each time", "train/saving.py",
        "if self.failure is None:\n                self._told", "if True:\n                self._told", f"{SAVING}::test_full_disk_ends_nothing"),
    Mutant("a run that could not be saved ends well", "train/running.py",
        "        self.saver.refuse_unsaved()\n", "", f"{SAVING}::test_disk_that_stays_full"),
    Mutant("the best that found no room is forgotten", "train/saving.py",
        "self.owed = job if self._thread else job._replace(snapshot=job.snapshot.copied())", "pass", f"{SAVING}::test_the_best_is_kept_until_the_next_best_is_on_the_disk"),
    Mutant("the best that found no room changes in memory", "train/saving.py",
        "job if self._thread else job._replace(snapshot=job.snapshot.copied())", "job",
        f"{SAVING}::test_the_best_is_kept_until_the_next_best_is_on_the_disk"),
    Mutant("the old best goes before the new one is there", "train/saving.py",
        "self.run, settings.keep, self.kept_best,", "self.run, settings.keep, None,",
        f"{SAVING}::test_the_best_is_kept_until_the_next_best_is_on_the_disk"),
    Mutant("a deleted recipe stays away", "train/saving.py",
        "if path.exists():", "if True:", f"{SAVING}::test_folder_that_was_deleted_is_made_anew"),
    Mutant("each k-th checkpoint goes", "store/folders.py",
        "if keep_every and step % keep_every == 0", "if False", f"{FOLDERS}::test_rotation"),
    Mutant("figures that find no room are lost", "train/lines.py",
        "error.strerror or str(error)\n", 'error.strerror or str(error)\n            self.kept = b""\n',
        "tests/train/test_records.py::test_figures_wait_for_room"),
    Mutant("a read-only folder ends a run", "train/lines.py",
        "            self.reason = FULL.get", "            if error.errno not in FULL:\n                raise\n            self.reason = FULL.get",
        "tests/train/test_records.py::test_what_cannot_be_written_ends_nothing"),
    Mutant("samples that find a read-only folder end a run", "train/records.py",
        "suppress(CheckpointError, ResourceError)", "suppress(ResourceError)",
        "tests/train/test_records.py::test_what_cannot_be_written_ends_nothing"),
    Mutant("figures are not waited for", "train/saving.py",
        "            sync_figures(self.run)\n", "", f"{SAVING}::test_figures_are_on_the_disk_before_the_checkpoint"),
    Mutant("damage of kept figures is dropped", "train/records.py",
        "not reached or any(each is not None and each <= step for each in behind)", "False",
        "tests/train/test_records.py::test_damage_that_may_have_been_of_kept_steps_is_refused"),
    Mutant("damage beyond the checkpoint is refused", "train/records.py",
        "if behind and (not reached or any(each is not None and each <= step for each in behind)):", "if behind:",
        "tests/train/test_records.py::test_what_a_power_cut_left_beyond_the_checkpoint_is_dropped"),
    Mutant("a run saves in the folder of another", "train/saving.py",
        "        self.lock.refuse_replaced()\n", "", f"{SAVING}::test_another_run_in_the_folder_is_left_alone"),
    Mutant("figures go to the run of another", "train/lines.py",
        " or (self.lock and not self.lock.in_place())", "", f"{SAVING}::test_another_run_in_the_folder_is_left_alone"),
    Mutant("figures go to a file that is no more", "train/lines.py",
        ".st_nlink == 0:", ".st_nlink < 0:", "tests/train/test_records.py::test_file_that_was_deleted_begins_anew"),
    # stopping
    Mutant("an evaluation that was given up is never made good", "train/running.py",
        "if self.evaluation_due and (ended", "if False and (ended", f"{SAVING}::test_stopped_in_an_evaluation"),
    Mutant("answers are not asked whether to go on", "decode/answer.py",
        "        poll()\n        for row, token", "        for row, token", f"{SAVING}::test_evaluation_is_asked_between_tokens"),
    # changes
    Mutant("a changed setting is gone on with", "train/changes.py",
        "if each.name not in allowed]", "if False]", f"{CHANGES}::test_changed_setting_is_refused_with_both_values"),
    Mutant("another vocabulary is gone on with", "train/changes.py",
        "    if never:\n", "    if False:\n", f"{CHANGES}::test_other_vocabulary_is_refused_though_it_is_named"),
    Mutant("a change is not kept", "train/session.py",
        "save_first=bool(changed or others)", "save_first=False", f"{CHANGES}::test_allowed_change_is_made_and_kept"),
    Mutant("any permission is good", "train/changes.py",
        "        if name not in needed:\n", "        if False:\n", f"{CHANGES}::test_permission_that_nothing_needs_is_refused"),
    Mutant("each file of a changed split is blamed", "train/pairs_data.py",
        'if before.get(f"{split} {side}") != now[f"{split} {side}"]', "if True", f"{CHANGES}::test_changed_file_is_named"),
    # what is not finite
    Mutant("the budget begins anew after a stop", "train/running.py",
        "training.skip_nonfinite - self.skipped)", "training.skip_nonfinite)", f"{SKIP}::test_budget_is_of_the_whole_run"),
    Mutant("weights that are not finite are skipped", "train/loop.py",
        " or team.is_spoiled():", ":",
        f"{SKIP}::test_weights_that_are_not_finite_are_no_matter_of_a_batch"),
    Mutant("the batch of the next step is blamed", "train/pairs_data.py",
        "self.sampler.at(step - 1)", "self.sampler.at(step)", f"{SKIP}::test_error_names_step_module_and_batch"),
]
# fmt: on
