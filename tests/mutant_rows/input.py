"""Faults in what is read and refused of a user's files, settings and tensors, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

LINES, LABELLED = "tests/data/test_lines.py", "tests/data/test_labelled.py"
ARGUMENTS, ABLATE = "tests/cli/test_arguments.py", "tests/cli/test_study_data.py"
WRONG, RECIPE = "tests/model/test_wrong_arguments.py", "tests/train/test_recipe_bounds.py"
USE, PREPARE = "tests/train/finished/test_use.py", "tests/train/sources/test_prepare.py"
CONFIG = "tests/data/test_config.py"

# fmt: off
ROWS: list[Mutant] = [
    # files and streams
    Mutant("a line without end is read", "data/lines.py",
        "file.readline(LONGEST_LINE + 2)", "file.readline()", f"{LINES}::test_a_line_without_end_is_refused"),
    Mutant("the longest line is cut", "data/lines.py",
        "if len(bare) > LONGEST_LINE:", "if False:", f"{LINES}::test_a_line_may_be_as_long_as_the_bound"),
    Mutant("a pipe without end is read", "data/lines.py", "if room < 0:", "if False:", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("the lines of a pipe cost nothing", "data/lines.py",
        "room -= len(line) + OF_A_LINE", "room -= len(line)", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("a plain file has the bound of a pipe", "data/lines.py",
        "math.inf if seen else MOST_UNSEEN", "MOST_UNSEEN", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("a gzip file has no bound", "data/lines.py", " and not packed", "", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("the first bytes of a pipe are lost", "data/lines.py",
        "Again(head, file)", 'Again(b"", file)', f"{LINES}::test_a_pipe_is_read_to_its_end"),
    # labelled text
    Mutant("half a character is a text", "data/labelled.py",
        "            utf8(value)\n", "            pass\n", LABELLED),
    Mutant("a label has several lines", "data/labelled.py", "if broken is not None:", "if False:", LABELLED),
    Mutant("a field may stand there twice", "data/labelled.py",
        ", object_pairs_hook=refuse_repeated_keys", "", LABELLED),
    Mutant("0 and its digit are one label", "data/labelled.py",
        "if quoted != isinstance(record[label], str):", "if False:", LABELLED),
    Mutant("a header is learned as a text", "data/labelled.py", "if unsaid and known is None and lines[0] == 1:",
        "if False:", LABELLED),
    Mutant("a header is seen where it was said that there is none", "data/labelled.py",
        "unsaid = columns.header is None and", "unsaid =", LABELLED),
    Mutant("a header is what has the usual names", "data/header.py",
        "usual or (counts and min(counts.values()) >= OFTEN)", "usual", LABELLED),
    Mutant("a rare label at the head is a header", "data/header.py",
        "min(counts.values()) >= OFTEN", "max(counts.values()) >= OFTEN", LABELLED),
    Mutant("a name that is met again is a header", "data/header.py", "if counts.pop(label) > 1:", "if False:", LABELLED),
    Mutant("a column beyond the line is looked for in it", "data/labelled.py",
        "(named or column is not None) and place > len(first)", "named and place > len(first)", LABELLED),
    Mutant("a switch that is not said is off", "cli/arguments.py",
        "return place, value if on else not value", "return place, value is on", ARGUMENTS),
    # data that is not there, or that no answer is known to
    Mutant("a study begins without its files", "cli/ablate.py",
        "refuse_missing_files(data, SPLITS)", "pass", f"{ABLATE}::test_missing_files_are_refused_once_for_all_arms"),
    Mutant("the study's other data are not looked for", "cli/ablate.py",
        "for changes in ({}, study.other_data)", "for changes in ({},)",
        f"{ABLATE}::test_missing_files_are_refused_once_for_all_arms"),
    Mutant("a dev file is missed after the training text was read", "train/sources/pairs_data.py",
        'refuse_missing_files(recipe.data, ("train", "dev"))', "pass",
        f"{PREPARE}::test_a_missing_dev_file_is_named_before_the_training_text_is_read"),
    Mutant("a study scores data that nobody can answer", "cli/ablate.py",
        "refuse_unscorable(arm.recipe.data, override(arm.recipe, other).data)", "override(arm.recipe, other)",
        f"{ABLATE}::test_other_data_that_nobody_can_answer_are_refused"),
    Mutant("a study takes settings of splits that it does not score", "cli/ablate.py",
        'refuse_other_splits("test", other)', "pass", f"{ABLATE}::test_other_data_that_nobody_can_answer_are_refused"),
    Mutant("a model is scored in another layout", "train/finished/other_data.py",
        "if asked.layout != own.layout:", "if False:", f"{USE}::test_data_that_the_model_cannot_answer_are_refused"),
    Mutant("a model is scored on another task", "train/finished/other_data.py",
        "if asked.task not in known:", "if False:",
        f"{USE}::test_data_that_the_model_cannot_answer_are_refused"),
    Mutant("a model is scored on symbols that it lacks", "train/finished/other_data.py",
        "asked.symbols > own.symbols", "False", f"{USE}::test_data_that_the_model_cannot_answer_are_refused"),
    Mutant("a model is scored on its own number of symbols alone", "train/finished/other_data.py",
        "asked.symbols > own.symbols", "asked.symbols != own.symbols",
        f"{USE}::test_fewer_symbols_and_other_lengths_are_scored"),
    Mutant("a changed recipe is taken for the run's", "train/run/build.py",
        "refuse_other_model(run, loaded.model.config, model_config(recipe, loaded.tokenizers))", "pass",
        f"{USE}::test_a_recipe_that_was_changed_to_another_model_is_refused_by_all"),
    Mutant("answers do not look at the recipe", "train/finished/loading.py",
        "    refuse_changed(run, loaded, recipe)\n", "",
        f"{USE}::test_a_recipe_that_was_changed_to_another_model_is_refused_by_all"),
    Mutant("params do not look at the recipe", "train/finished/use.py",
        'refuse_changed(run, loaded, load_recipe(run / "recipe.toml"))', "pass",
        f"{USE}::test_a_recipe_that_was_changed_to_another_model_is_refused_by_all"),
    # names and sizes
    Mutant("a recipe of any size is read", "train/recipe.py", "if len(content) > LARGEST:", "if False:", RECIPE),
    Mutant("a run may be called nothing", "train/recipe.py", 'self.name.strip() in ("", ', 'self.name.strip() in (', RECIPE),
    Mutant("an empty path is a file", "data/config.py", "        check_names(self)\n", "", CONFIG),
    Mutant("a label may have no name", "data/tokens/words.py", "if not entry.strip():", "if False:", LABELLED),
    Mutant("no name ends in an error of Python", "foundation/registry.py", "if not isinstance(name, str):", "if False:", WRONG),
    Mutant("the recipe's head has another name", "model/recipe.py",
        'check_dropout(self.head_dropout, "model.head_dropout")', "pass", RECIPE),
    # batches
    Mutant("a batch has unequal rows", "data/batch.py",
        'check_beside("source", self.source, "tokens", self.tokens)', "pass", WRONG),
    Mutant("a memory has other rows than the tokens", "model/stack.py",
        'check_beside("memory (or source)", memory, "tokens", tokens)', "pass", WRONG),
    Mutant("a batch takes a mask of numbers", "data/batch.py", "    check_keep(keep, name)\n", "", WRONG),
    Mutant("a batch takes a mask of nothing", "data/batch.py",
        "if keep is not None and values is None:", "if False:", WRONG),
    Mutant("labels are counted from -1", "data/batch.py", "if bool((found < 0).any()):", "if False:", WRONG),
    Mutant("truth is a label", "data/batch.py", "found.dtype in IDS and found.ndim == 1", "found.ndim == 1", WRONG),
    Mutant("labels stand in other places than tokens", "data/batch.py",
        "if in_place(self.labels) and self.labels.shape[:2] != self.tokens.shape[:2]:", "if False:", WRONG),
    Mutant("a study of text is never gone on with", "study/folder.py",
        "if not (name in FILLED_IN and theirs[name] is None)", "if True", "tests/study/test_folder.py"),
]
# fmt: on
