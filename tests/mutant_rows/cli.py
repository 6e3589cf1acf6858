"""Faults in the command line."""

from __future__ import annotations

from mutant_runner import Mutant

ARGUMENTS = "tests/cli/test_arguments.py"
BEFORE = "tests/cli/test_before.py"
ERRORS = "tests/cli/test_errors.py"
NOTES = "tests/cli/test_notes.py"
RUNS = "tests/cli/test_runs.py"
GENERATE = "tests/cli/test_generate.py"
NEARBY = "tests/cli/flags/test_near.py"
SURFACE = "tests/cli/test_surface.py"
TYPED = "tests/cli/flags/test_as_typed.py"
VERBS = "tests/cli/test_verbs.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("each mistake has the same exit code", "cli/main.py",
        "return in_flags(error, words), error.exit_code", "return in_flags(error, words), 2", f"{ERRORS}::test_each_kind_has_its_exit_code"),
    Mutant("a bug is told as a mistake of the user", "cli/main.py",
        "    return None\n\n\ndef in_flags", "    return str(error), 2\n\n\ndef in_flags",
        f"{ERRORS}::test_bug_keeps_its_traceback"),
    Mutant("who wants tracebacks gets none", "cli/main.py",
        "if known is None or debugging(words):", "if known is None:", f"{ERRORS}::test_debug_shows_the_traceback"),
    Mutant("no words at all are a success", "cli/main.py",
        "return 0 if words else 2", "return 0", f"{SURFACE}::test_no_words_at_all"),
    Mutant("a flag goes without notice", "cli/options.py",
        'OVERWRITE = Option("overwrite"', 'OVERWRITE = Option("replace"', f"{SURFACE}::test_surface_is_what_was_promised"),
    Mutant("a run folder is trained over", "cli/runs.py",
        "    if not overwrite:\n        raise", "    if False:\n        raise",
        f"{RUNS}::test_existing_folder_is_refused_with_three_choices"),
    Mutant("--overwrite deletes what a user put there", "cli/runs.py",
        "if reason := not_a_run(out):", "if (reason := not_a_run(out)) and not out.is_dir():",
        f"{RUNS}::test_run_with_a_file_of_the_user_is_not_deleted"),
    Mutant("--overwrite looks late whether a run is in training", "cli/runs.py",
        "    refuse_in_training(out)\n", "", f"{RUNS}::test_run_in_training_is_not_overwritten"),
    Mutant("the old run is lost when the new one fails", "cli/runs.py",
        "            aside.rename(out)\n            raise", "            raise",
        f"{RUNS}::test_overwrite_that_fails_gives_the_old_run_back"),
    Mutant("the second signal is waited out too", "cli/follow.py",
        "if self.run is None or (self.number is not None and self.place.count == 1):", "if self.run is None:",
        f"{VERBS}::test_second_signal_quits_at_once"),
    Mutant("what is noted in training is lost", "cli/follow.py",
        "notes_to(report.say if isinstance(report, Reporter) else nothing)", "notes_to(nothing)",
        f"{NOTES}::test_a_note_in_training_is_shown_and_kept_as_what_else_is_said"),
    Mutant("notes go on where a command has ended", "cli/notes.py",
        "        log.handlers = handlers\n", "", f"{NOTES}::test_notes_go_where_they_are_wanted_and_afterwards_where_they_went"),
    Mutant("evaluate keeps silent of how it decodes", "train/finished/use.py",
        "            tell_decoding(loaded.model, recipe.decode)\n", "            pass\n", f"{NOTES}::test_evaluate_says_how_it_decodes"),
    Mutant("the compiler is waited for in silence", "foundation/native.py",
        "    LOG.info(\n", "    LOG.debug(\n",
        "tests/foundation/test_native.py::test_the_user_is_told_when_a_file_is_compiled_and_only_then"),
    Mutant("an interrupted run ends as a finished one", "cli/follow.py",
        "return 0 if finished else 128 + (number or signal.SIGINT)", "return 0", f"{VERBS}::test_signal_saves_and_stops"),
    Mutant("blank lines get no line of their own", "cli/translate.py",
        "while waiting.popleft():\n                yield None", "while waiting.popleft():\n                pass",
        f"{VERBS}::test_one_answer_for_each_line_whatever_the_batches"),
    Mutant("a missing package is a bug of ours", "cli/main.py",
        "error.name in REQUIRED", "error.name == 'tyro'", f"{ERRORS}::test_a_package_that_is_needed_is_not_there"),
    Mutant("a needed package is forgotten", "cli/main.py",
        '"torch", "tyro")', '"tyro")', f"{ERRORS}::test_each_package_that_is_needed_is_known"),
    Mutant("a mistake in a file is told in flags", "cli/main.py",
        "isinstance(error, RecipeError) or not words", "not words",
        f"{TYPED}::test_a_mistake_in_a_file_is_named_as_it_stands_there"),
    Mutant("a short flag is told at length", "cli/flags/as_typed.py",
        'flag = f"--{name}" if place', "flag = long if place", f"{TYPED}::test_settings_become_flags"),
    Mutant("what the user quoted is rewritten", "cli/flags/as_typed.py",
        'rf"{KEPT}|(?<!', 'rf"(?<!', f"{TYPED}::test_settings_become_flags"),
    Mutant("a word is taken for a setting", "cli/flags/as_typed.py",
        "or (bare and value is None)", "", f"{TYPED}::test_settings_become_flags"),
    Mutant("a setting of another section is named", "cli/flags/as_typed.py",
        "if len(flags) == 1 or len(own) == 1:", "if True:", f"{TYPED}::test_settings_become_flags"),
    Mutant("what is off is told to be on", "cli/flags/as_typed.py",
        "f\"--{section}.no-{key.replace('_', '-')}\"", "flag", f"{TYPED}::test_settings_become_flags"),
    Mutant("a suggestion is any name", "cli/flags/near.py",
        "NEAR = 0.7", "NEAR = 0.3", f"{NEARBY}::test_no_suggestion_is_better_than_a_wrong_one"),
    Mutant("other tools' names are unknown", "cli/flags/near.py",
        "if place in here), \"\")", "if False), \"\")", f"{NEARBY}::test_what_was_meant"),
    Mutant("a similar flag comes before the same name of a setting", "cli/flags/near.py",
        "translated(key, here) or of_key.get(key) or", "", f"{NEARBY}::test_what_was_meant"),
    Mutant("a flag of another verb is none", "cli/flags/near.py",
        "if any(option.name == word", "if False and any(option.name == word", f"{NEARBY}::test_a_flag_of_another_verb"),
    Mutant("help shows a temperature that generate does not have", "cli/help.py",
        'sampled(used) if name == "generate" else used', "used",
        f"{SURFACE}::test_help_shows_what_generate_does_with_a_run_that_is_greedy"),
    Mutant("the same text is written several times", "cli/generate.py",
        "    refuse_alike(n, recipe)\n", "", f"{GENERATE}::test_mistakes"),
    Mutant("--greedy takes a filter that does nothing", "cli/generate.py",
        "if changes.get(place, value) != value:", "if False:", f"{GENERATE}::test_mistakes"),
    Mutant("several lines are one source, and nobody says so", "cli/generate.py",
        'and "\\n" in prompts[0]:', "and False:",
        f"{GENERATE}::test_several_lines_are_one_source_and_that_is_said"),
    Mutant("a split is said to be scored before it is read", "cli/evaluate.py",
        "    metrics = evaluate(", "    tell()\n    metrics = evaluate(",
        "tests/cli/test_text.py::test_nothing_is_said_to_be_scored_that_is_not"),
    Mutant("too small a top_k becomes greedy by the advice", "decode/choose/sampling.py",
        'at_least(self, self.section, 1, "top_k", "no_repeat_ngram", advice=ADVICE)',
        'at_least(self, self.section, 1, "top_k", "no_repeat_ngram")', f"{TYPED}::test_on_the_command_line"),
    Mutant("a dry run keeps silent of the tokens that it wrote", "data/running/token_cache.py",
        "replace(open_tokens(folder), new=True)", "open_tokens(folder)",
        f"{BEFORE}::test_tokens_of_a_text_stay_for_the_run_and_are_named"),
    Mutant("a dry run names tokens that it found", "data/running/token_file.py",
        "    new: bool = False", "    new: bool = True",
        f"{BEFORE}::test_tokens_of_a_text_stay_for_the_run_and_are_named"),
]
# fmt: on
