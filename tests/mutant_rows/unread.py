"""Settings that nothing reads, options that nothing hears, and advice that does not work."""

from __future__ import annotations

from mutant_runner import Mutant

UNREAD = "tests/train/run/test_unread.py"
REFUSED = f"{UNREAD}::test_what_nothing_reads_is_refused"
LEFT = f"{UNREAD}::test_another_choice_leaves_behind_what_it_does_not_read"
BEFORE, LIMITS, PICTURES = "tests/cli/test_before.py", "tests/cli/test_limits.py", "tests/store/test_pictures.py"

ROWS: list[Mutant] = [
    Mutant(
        "a layout ignores what it does not read", "model/recipe.py", "        self._check_use(layout)\n", "", REFUSED
    ),
    Mutant(
        "a cap without its rule is ignored",
        "model/contradictions.py",
        'config.attention_rule != "softcap" and config.softcap != type(config).softcap',
        "False",
        REFUSED,
    ),
    Mutant(
        "a beginning without its warm-up is ignored",
        "train/settings.py",
        "and not getattr(self, warmup)",
        "and False",
        REFUSED,
    ),
    Mutant(
        "an end that is not come to is ignored",
        "train/settings.py",
        'self.schedule not in USES["min_learning_rate"]',
        "False",
        REFUSED,
    ),
    Mutant("another rule keeps the cap", "train/recipe.py", '["softcap"] if chosen', "[] if chosen", LEFT),
    Mutant(
        "another layout keeps the other's layers", "train/recipe.py", 'unread(str(chosen["data.layout"]))', "[]", LEFT
    ),
    Mutant(
        "another schedule keeps the cooldown",
        "train/recipe.py",
        "if schedule is not None and schedule not in users",
        "if False",
        LEFT,
    ),
    Mutant(
        "a page is written in place",
        "lens/trace/value.py",
        "write_text_atomically(path, self.html)",
        'path.write_text(self.html, "utf-8")',
        f"{PICTURES}::test_a_page_is_renamed_into_its_place",
    ),
    Mutant(
        "a picture is drawn in place",
        "store/pictures.py",
        "figure.savefig(drawn,",
        "figure.savefig(path.open('wb'),",
        f"{PICTURES}::test_a_picture_that_fails_leaves_the_old_one",
    ),
    Mutant(
        "blanks are filled by settings of writing",
        "cli/idle.py",
        'elif data.layout == "encoder":',
        "elif False:",
        f"{LIMITS}::test_settings_of_writing_are_refused_where_blanks_are_filled",
    ),
    Mutant(
        "no setting fills blanks",
        "cli/idle.py",
        'OF_BLANKS = ("batch_size", "precision", "compile", "threads")',
        "OF_BLANKS = ()",
        f"{LIMITS}::test_settings_that_blanks_are_filled_by_are_taken",
    ),
    Mutant(
        "a recipe of labels takes settings of writing",
        "cli/train.py",
        "if recipe.data.task != TEXT:",
        "if False:",
        f"{LIMITS}::test_settings_of_writing_are_refused_where_labels_are_learned",
    ),
    Mutant(
        "of two looks one is taken",
        "cli/train.py",
        "if len(asked) > 1:",
        "if False:",
        f"{BEFORE}::test_one_look_at_a_time",
    ),
    Mutant(
        "one name of the mistakes hides the other",
        "cli/train.py",
        'if "training.broken" in arguments.changes:',
        "if False:",
        f"{BEFORE}::test_a_mistake_is_named_once",
    ),
    Mutant(
        "a search is told to people alone",
        "cli/train.py",
        "else noise)(recipe, as_json=as_json)",
        "else noise)(recipe, as_json=False)",
        BEFORE,
    ),
    Mutant(
        "every loss rises in the end",
        "train/estimate/find_rate.py",
        "self.tried[-1].rate > self.lowest",
        "True",
        f"{BEFORE}::test_rates_for_people_and_for_programs",
    ),
    Mutant(
        "JSON has what is no number",
        "cli/before.py",
        "return value if math.isfinite(value) else None",
        "return value",
        f"{BEFORE}::test_noise_for_people_and_for_programs",
    ),
    Mutant(
        "a setting that becomes none is not typed",
        "train/run/changes.py",
        '"none" if each.new is None else str(each.new)',
        "str(each.new)",
        "tests/train/run/test_changes.py::test_changed_setting_is_refused_with_both_values",
    ),
    Mutant(
        "half a rate lies below the least",
        "train/run/running.py",
        'training.min_learning_rate > float(halves["training.learning_rate"])',
        "False",
        "tests/train/run/test_session.py::test_advice_after_a_divergence_is_taken",
    ),
    Mutant(
        "what a resume decides is not written down",
        "train/run/session.py",
        "unused=now.updates == 0)\n    if changed and ranks.first:\n"
        '        write_text_atomically(run / "recipe.toml", dumps_recipe(prepared.recipe))',
        "unused=now.updates == 0)\n    if changed and ranks.first:\n"
        '        write_text_atomically(run / "recipe.toml", dumps_recipe(recipe))',
        "tests/train/sources/test_text_run.py::test_documents_are_decided_anew_where_a_resume_asks",
    ),
    Mutant(
        "the dense map of a head is no hidden matrix",
        "train/optim/optimizer.py",
        "for module in model.modules() if isinstance(",
        'for name, module in model.named_modules() if name[:4] != "head" and isinstance(',
        "tests/train/optim/test_optimizer.py::test_the_dense_map_of_a_head_is_a_hidden_matrix",
    ),
    Mutant(
        "a value asks for help",
        "cli/arguments.py",
        "not takes_value(verb, before) for",
        "True for",
        "tests/cli/test_arguments.py::test_a_value_asks_for_no_help",
    ),
    Mutant(
        "a switch has the next word",
        "cli/arguments.py",
        "return not is_switch(kind_of(section, key, verb.sections)[1])",
        "return True",
        "tests/cli/test_arguments.py::test_a_value_asks_for_no_help",
    ),
    Mutant(
        "a count has no end",
        "cli/arguments.py",
        "not 1 <= int(given) <= most",
        "int(given) < 1",
        "tests/cli/test_arguments.py::test_what_counts_is_a_whole_number",
    ),
    Mutant(
        "a warm-up without end goes without a word",
        "train/run/chosen.py",
        "if training.warmup < training.steps:",
        "if True:",
        "tests/train/run/test_chosen.py::test_a_warmup_that_takes_the_whole_run_is_told",
    ),
]
