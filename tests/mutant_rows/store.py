"""Faults in what is kept on disk."""

from __future__ import annotations

from mutant_runner import Mutant

FILES = "tests/store/test_files.py"
FOLDERS = "tests/store/test_folders.py"
JSON = "tests/store/test_json_file.py"
LOCK = "tests/store/test_lock.py"
MANIFEST = "tests/store/test_manifest.py"
TENSORS = "tests/store/test_tensors.py"
FAULTS = "tests/faults/test_checkpoint_faults.py"
HEADS = "tests/store/test_heads.py"
UNNAMABLE = "tests/store/test_refusals.py::test_a_path_that_is_no_text_is_refused_before_anything_is_written"

# fmt: off
ROWS: list[Mutant] = [
    # what is read
    Mutant("weights need their optimizer", "store/checkpoint.py", "entries = check(found, read=READ, hashed=hashed)", "entries = check(found, hashed=hashed)",
        "tests/store/test_refusals.py::test_what_only_training_reads_may_be_missing"),
    Mutant("a run needs the optimizer of its newest weights", "store/checkpoint.py", "best_or_newest(folder, read=READ, hashed=hashed)", "best_or_newest(folder, hashed=hashed)",
        "tests/store/test_refusals.py::test_what_only_training_reads_may_be_missing"),
    Mutant("a run in training is called stopped", "store/checkpoint.py", "elif trains(folder):", "elif False:",
        "tests/store/test_refusals.py::test_a_run_in_training_is_not_called_stopped"),
    Mutant("an address is a missing file", "data/lines.py", "if (address := ADDRESS.search(str(path))) is not None:", "if (address := None) is not None:",
        "tests/data/test_lines.py::test_an_address_is_no_file"),
    Mutant("a closed cache is a full disk", "foundation/cache_folder.py", "and error.errno in OUT_OF_DISK:", ":",
        "tests/data/running/test_token_file.py::test_a_full_disk_is_told_from_a_folder_that_may_not_be_written"),
    Mutant("a missing file is told once torch is there", "cli/train.py", "    refuse_missing(recipe.data)\n", "", "tests/cli/test_early.py"),
    Mutant("a finished run says nothing of it", "train/run/session.py", "so_far.step == recipe.training.steps and", "False and",
        "tests/train/run/test_resume.py::test_finished_run_has_nothing_left_to_do"),
    Mutant("a vocabulary of another size is not told", "train/run/chosen.py", "*other_size(recipe.tokenizer, prepared), ", "",
        "tests/train/run/test_chosen.py::test_a_vocabulary_of_another_size_than_asked_for_is_told"),
    # manifest
    Mutant("two equal vocabularies come back as one", "store/snapshot.py",
        'if tokenizers.source is not tokenizers.target:', 'if tokenizers.source.to_json() != tokenizers.target.to_json():',
        "tests/train/run/test_resume.py::test_other_runs_resume_too"),
    Mutant("a changed byte is not seen", "store/manifest.py",
        "if found != entries[name].sha256:", "if False:", f"{MANIFEST}::test_every_change_is_seen"),
    Mutant("a manifest may be laid out anyhow", "store/manifest.py",
        "if text != manifest_text(entries):", "if False:", f"{MANIFEST}::test_space_in_the_manifest_counts"),
    Mutant("a manifest may name files of other folders", "store/manifest.py",
        "if not PLAIN.fullmatch(name) or name == MANIFEST:", "if name == MANIFEST:",
        f"{MANIFEST}::test_names_that_are_not_plain"),
    Mutant("an incomplete checkpoint is complete", "store/folders.py",
        "if name not in entries]", "if False]", f"{MANIFEST}::test_manifest_that_lists_too_little"),
    # the order of writing
    Mutant("bytes are not on the disk when their name is", "store/files.py",
        "        file.flush()\n        os.fsync(file.fileno())", "        file.flush()",
        f"{FAULTS}::test_order_for_the_power_to_fail"),
    Mutant("the name of a folder may be lost", "store/staging.py",
        "sync_folder(target.parent)  # before", "pass  # before", f"{FAULTS}::test_order_for_the_power_to_fail"),
    Mutant("two threads write one file", "store/files.py",
        "if target in in_progress:", "if False:", f"{FILES}::test_one_writer_at_a_time"),
    Mutant("another thread looks at the same time", "store/files.py",
        "    with claiming:\n", "    with suppress():\n", f"{FILES}::test_no_thread_comes_between_looking_and_claiming"),
    # leftovers
    Mutant("what a living process writes is a leftover", "store/leftovers.py",
        "or busy or alive(pid):", "or busy:", f"{FILES}::test_leftovers_of_dead_processes_are_removed"),
    Mutant("the only whole folder of its name is removed", "store/leftovers.py",
        'if kind == "old" and not home.exists():', "if False:", f"{FILES}::test_folder_that_was_moved_aside"),
    # which one is loaded, which one goes
    Mutant("damaged checkpoints are passed over in silence", "store/folders.py",
        "skipped.append(Skipped(folder, str(error)))", "continue",
        f"{FOLDERS}::test_damaged_ones_are_passed_over_and_named"),
    Mutant("the last whole checkpoint is deleted", "store/folders.py",
        "if step not in kept and folder != complete)", "if step not in kept)", f"{FOLDERS}::test_the_one_that_was_just_saved_stays"),
    Mutant("a deleted checkpoint keeps its name while it shrinks", "store/folders.py",
        "    folder.rename(doomed)\n    shutil.rmtree(doomed)", "    shutil.rmtree(folder)",
        f"{FOLDERS}::test_delete_that_stops_half_way_leaves_no_half"),
    # files of others
    Mutant("JSON may say a key twice", "foundation/keys.py",
        "if len(value) < len(pairs):", "if False:", f"{JSON}::test_refused"),
    Mutant("a file of any size is read", "store/json_file.py", "if size > largest:", "if False:", f"{JSON}::test_largest"),
    Mutant("a link is followed", "store/json_file.py",
        "if not stat.S_ISREG(status.st_mode):", "if False:", f"{JSON}::test_only_regular_files"),
    Mutant("a header may be larger than its file", "store/tensors.py",
        "if header > min(size - 8, LARGEST_HEADER):", "if False:", f"{TENSORS}::test_hostile_files"),
    # the lock of a run
    Mutant("a second process takes the lock too", "store/lock.py",
        "getattr(fcntl, how) | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB",
        f"{LOCK}::test_another_session_of_this_process_is_kept_out_too"),
    Mutant("a run is refused because it is asked about", "store/lock.py",
        "for _ in range(TRIES):", "for _ in range(0):", f"{LOCK}::test_a_run_that_starts_while_it_is_asked_about_is_not_refused"),
    Mutant("who asks keeps others out", "store/lock.py",
        'flocked(handle, "LOCK_SH")\n        except', 'flocked(handle, "LOCK_EX")\n        except', f"{LOCK}::test_asking_takes_no_lock_that_keeps_others_out"),
    Mutant("a lock does not follow its folder", "store/lock.py",
        "        if self.held and self.in_place():\n", "        if self.held:\n", f"{LOCK}::test_lock_follows_the_folder"),
    Mutant("a file is locked that is deleted", "store/lock.py",
        "        if not self.in_place():  #", "        if False:  #", f"{LOCK}::test_lock_of_a_file_that_is_deleted_as_it_is_taken"),
    Mutant("a lock outlives its object", "store/lock.py",
        "weakref.finalize(self, os.close, handle)", "weakref.finalize(os, os.close, handle)",
        f"{LOCK}::test_lock_ends_with_its_object_or_by_release"),
    # names, numbers and sizes
    Mutant("a path that is no text is written to", "store/snapshot.py",
        "    refuse_unnamable(absolute(folder))\n", "", UNNAMABLE),
    Mutant("a path that is no text is looked into", "store/checkpoint.py",
        "    refuse_unnamable(folder)\n", "", UNNAMABLE),
    Mutant("a run begins at a path that is no text", "cli/runs.py",
        "    refuse_unnamable(absolute(out))\n", "", "tests/cli/test_out.py"),
    Mutant("a run is read at a path that is no text", "cli/runs.py",
        "    refuse_unnamable(path)\n", "", "tests/cli/test_runs.py::test_a_run_whose_path_is_no_text"),
    Mutant("a step below 0 is the best", "store/folders.py", " or best < 0:", ":", FOLDERS),
    Mutant("a link is asked for its lock", "store/lock.py",
        "if (run / LOCK).is_symlink():", "if False:", f"{LOCK}::test_link_in_its_place_is_refused"),
    Mutant("a number of 5,000 digits is written out to be refused", "store/snapshot.py",
        "    except (ValueError, RecursionError):\n        return f", "    except RecursionError:\n        return f",
        "tests/store/test_refusals.py::test_a_number_too_long_to_be_written_is_refused_by_name"),
    Mutant("a vocabulary that nothing uses needs a tensor", "store/weights.py",
        " and name not in unused:", ":", f"{HEADS}::test_a_vocabulary_that_nothing_uses_may_have_any_size"),
    Mutant("what the head writes needs no tensor", "store/weights.py",
        'if not (written and name == "vocab_size")', "if True",
        f"{HEADS}::test_a_vocabulary_that_something_uses_has_a_plausible_size"),
    Mutant("a head answers numbers without bound", "model/outputs.py",
        '        at_most(self, "head", MOST_WIDE, "n_numbers")\n', "", "tests/parts/test_inputs.py"),
    Mutant("a cache counts vectors in their own numbers", "model/stack.py",
        "torch.zeros(x.shape[:2], dtype=torch.long, device=tokens.device)", "tokens[:, :, 0]",
        "tests/model/test_features_with_cache.py"),
]
# fmt: on
