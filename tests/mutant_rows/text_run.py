"""Runs on running text: what is read and scored, what is told, what is refused."""

from __future__ import annotations

from mutant_runner import Mutant

DATA, SCORE = "tests/train/test_text_data.py", "tests/train/test_text_score.py"
SAMPLES, RUN = "tests/train/test_text_samples.py", "tests/train/test_text_run.py"
DOCTOR, CLI = "tests/proof/test_doctor_text.py", "tests/cli/test_text.py"
ALONE = f"{SCORE}::test_every_token_is_scored_as_if_it_were_alone"

ROWS = [
    # what is read
    Mutant(
        "the windows of each step are those of the first",
        "train/text_data.py",
        "return self.windows.starts(step, self.rows)",
        "return self.windows.starts(0, self.rows)",
        f"{DATA}::test_batches_are_a_function_of_recipe_and_step",
    ),
    Mutant(
        "batches of text begin anew after a stop",
        "train/text_data.py",
        "step, growth = start, ",
        "step, growth = 0, ",
        f"{DATA}::test_batches_are_a_function_of_recipe_and_step",
    ),
    Mutant(
        "what is hidden is the same at every step",
        "train/text_data.py",
        "starts, length, step=step)",
        "starts, length)",
        f"{RUN}::test_cut_and_resumed_to_the_same_bits[masked] {DATA}::test_batches_are_a_function_of_recipe_and_step",
    ),
    Mutant(
        "windows lack the token behind them",
        "train/text_batches.py",
        "length + (self.objective in FOLLOWED)",
        "length",
        f"{DATA}::test_windows_stand_in_the_text",
    ),
    Mutant(
        "source and target are counted as the window alone",
        "train/text_settings.py",
        'if data.layout != "encoder-decoder":',
        "if True:",
        f"{DATA}::test_places_of_a_window",
    ),
    Mutant(
        "what an objective makes of a window is not measured against the model",
        "train/text_settings.py",
        "most = longest(data.objective, data.window, data.mask_share, data.mean_span, specials)",
        "most = data.window",
        f"{DATA}::test_the_model_takes_what_an_objective_makes_of_a_window",
    ),
    Mutant(
        "special tokens cut no hidden span in two",
        "train/text_data.py",
        "check_length(recipe.data, recipe.model, tokens.most_special(recipe.data.window))",
        "check_length(recipe.data, recipe.model)",
        f"{DATA}::test_special_tokens_of_the_text_make_windows_longer",
    ),
    Mutant(
        "a dev text without a target ends a run in its midst",
        "train/text_data.py",
        "    refuse_unscored(recipe, tokenizers.target, dev)\n",
        "",
        f"{DATA}::test_a_dev_text_without_anything_to_score_is_refused_before_the_run",
    ),
    Mutant(
        "documents are decided at every start",
        "train/text_data.py",
        'replace(recipe.data, documents=has_documents(recipe.data, parts["train"]))',
        "recipe.data",
        f"{DATA}::test_documents_are_decided_once_and_written_down",
    ),
    Mutant(
        "documents are never kept apart",
        "train/text_batches.py",
        "        data.document_mask,\n",
        "        False,\n",
        f"{DATA}::test_a_document_mask_keeps_documents_apart",
    ),
    Mutant(
        "digests of text do not see dev",
        "train/text_data.py",
        '"dev": self.dev.digest()}',
        '"dev": self.train.digest()}',
        f"{DATA}::test_fingerprints_are_those_of_the_texts",
    ),
    Mutant(
        "the batch of the next step of text is blamed",
        "train/text_data.py",
        "self._starts(step - 1, self",
        "self._starts(step, self",
        f"{DATA}::test_a_batch_is_named_by_its_places",
    ),
    Mutant(
        "a text run has an encoder",
        "model/recipe.py",
        "if two or not writes else None",
        "",
        f"{DATA}::test_the_model_is_of_the_layout_and_asks_for_something",
    ),
    # what is scored
    Mutant(
        "tokens that were scored are scored again",
        "train/text_score.py",
        "        if not skip:\n",
        "        if True:\n",
        ALONE,
    ),
    Mutant(
        "the token at the border is not scored",
        "train/text_score.py",
        "window.scored - window.start - 1",
        "window.scored - window.start",
        ALONE,
    ),
    Mutant(
        "the last windows are not scored",
        "train/text_score.py",
        "    if starts:\n        yield np.array(starts)\n",
        "",
        ALONE,
    ),
    Mutant(
        "bits are nats",
        "train/text_score.py",
        "nats / math.log(2)",
        "nats",
        f"{SCORE}::test_bits_are_those_of_the_text",
    ),
    Mutant(
        "bits a byte are bits a token",
        "train/text_score.py",
        "bits / counts.n_bytes",
        "bits / counts.n_tokens",
        f"{SCORE}::test_bits_are_those_of_the_text",
    ),
    Mutant(
        "a figure may be infinite",
        "train/text_score.py",
        "{name: math.exp(value)} if value < LARGEST else {}",
        "{name: math.exp(value) if value < LARGEST else math.inf}",
        f"{SCORE}::test_what_no_float_holds_is_left_out",
    ),
    Mutant(
        "nats are shared out among no words",
        "train/text_score.py",
        " if counts.n_words else {}),",
        "),",
        f"{SCORE}::test_a_text_without_a_word_has_no_word_perplexity",
    ),
    Mutant(
        "nothing that was hidden is scored",
        "train/text_score.py",
        "    if not n:\n",
        "    if False:\n",
        f"{SCORE}::test_a_text_of_which_nothing_can_be_hidden_is_refused",
    ),
    Mutant(
        "each batch of an evaluation hides what the first hides",
        "train/text_score.py",
        "            row += len(starts)\n",
        "",
        f"{SCORE}::test_what_is_hidden_is_scored_window_by_window",
    ),
    Mutant(
        "an evaluation hides what the run's seed says",
        "train/text_data.py",
        "reader_of(recipe.data, tokenizers.target, SCORED_WITH)",
        "reader_of(recipe.data, tokenizers.target, recipe.training.seed)",
        f"{SCORE}::test_what_is_hidden_is_the_same_at_every_evaluation_and_in_every_run",
    ),
    Mutant(
        "an evaluation of text cannot be ended",
        "train/text_score.py",
        "        poll()\n",
        "",
        f"{SCORE}::test_an_evaluation_can_be_ended",
    ),
    # what is shown
    Mutant(
        "the model goes on from the whole window",
        "train/text_samples.py",
        "else row[:read] for row in rows]",
        "else row for row in rows]",
        f"{SAMPLES}::test_the_model_goes_on_where_the_text_does",
    ),
    Mutant(
        "a text goes on from another document",
        "train/text_samples.py",
        "last_document(row[:read]) if apart",
        "row[:read] if apart",
        f"{SAMPLES}::test_a_text_goes_on_from_its_own_document_where_the_score_is_so",
    ),
    Mutant(
        "holes are filled from other documents",
        "train/text_samples.py",
        ", documents=there.documents)",
        ", documents=None)",
        f"{SAMPLES}::test_holes_are_filled_from_their_own_document_where_the_score_is_so",
    ),
    Mutant(
        "special tokens are not shown",
        "train/text_samples.py",
        "parts += [tokenizer.decode(stretch), SPECIALS[id]]",
        "parts += [tokenizer.decode(stretch)]",
        f"{SAMPLES}::test_special_tokens_show_by_name",
    ),
    # what is refused
    Mutant(
        "another objective is scored",
        "train/other_data.py",
        "if asked.objective != own.objective:",
        "if False:",
        f"{RUN}::test_what_it_cannot_do_is_named",
    ),
    Mutant(
        "a run writes among its texts",
        "train/session.py",
        "    refuse_among_texts(recipe.data, out)\n",
        "",
        f"{RUN}::test_a_run_does_not_write_among_its_texts",
    ),
    Mutant(
        "a dev split cut from a changed text is scored",
        "train/use.py",
        "            refuse_other_cut(run, recipe.data, loaded.state, data.digest())\n",
        "            pass\n",
        f"{RUN}::test_dev_is_what_was_held_out_in_training",
    ),
    Mutant(
        "a changed text is gone on with",
        "train/changes.py",
        '    *(f"data.{name}" for name in TEXTS.values()),\n',
        "",
        f"{RUN}::test_a_text_may_lie_elsewhere",
    ),
    Mutant(
        "two vocabularies for one text",
        "train/text_settings.py",
        "if not tokenizer.shared or tokenizer.source_kind is not None:",
        "if False:",
        f"{DATA}::test_settings_that_do_not_fit",
    ),
    Mutant(
        "a study of text needs a test text",
        "study/score.py",
        "recipe.data.task == TEXT and recipe.data.test_text is None else",
        "False else",
        f"{RUN}::test_a_study_scores_the_dev_text_where_there_is_no_other",
    ),
    Mutant(
        "evaluate --data.text is the training text",
        "cli/evaluate.py",
        '"data.test_text" if name == "data.text" else name',
        "name",
        f"{CLI}::test_evaluate_scores_a_whole_file",
    ),
    # the doctor
    Mutant(
        "changed text is as it was",
        "proof/doctor/running_text.py",
        "        if changed:\n",
        "        if False:\n",
        f"{DOCTOR}::test_changed_and_lost_text",
    ),
    Mutant(
        "a leak of text is well",
        "proof/doctor/running_text.py",
        "LEAKED if worst >= LEAKS / 10 else None",
        "None",
        f"{DOCTOR}::test_text_that_stands_in_both",
    ),
    Mutant(
        "probes of pairs look at text",
        "proof/doctor/text_case.py",
        "TextCase if recipe.data.task == TEXT else Case",
        "Case",
        f"{DOCTOR}::test_changed_and_lost_text",
    ),
]
