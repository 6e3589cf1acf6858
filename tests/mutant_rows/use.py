"""Faults in decoding, in what is learned, and in what is done with a run."""

from __future__ import annotations

from mutant_runner import Mutant

UNEQUAL = "tests/parity/test_transformers_decoding.py::test_the_greedy_text_behind_unequal_prompts_is_theirs"
CACHED = "tests/decode/test_cached.py"
GENERATE = "tests/decode/test_generate.py"
ANSWER = "tests/decode/test_answer.py"
USE = "tests/train/finished/test_use.py"
LINES = "tests/train/finished/test_lines.py"
TASKS = "tests/learn/test_tasks.py"
FILES = "tests/learn/test_text_files.py"
PREPARE = "tests/train/sources/test_prepare.py"
RECIPE = "tests/train/test_recipe.py"
EVALUATE = "tests/train/score/test_evaluate.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a later answer to a source hides an earlier one", "train/score/evaluate.py",
        "found.get(source, False) or each", "each", f"{EVALUATE}::test_any_of_several_targets_will_do"),
    Mutant("a source that repeats has several targets", "train/score/evaluate.py",
        "targets.add((source, target))", "targets.add((source, len(targets)))",
        f"{EVALUATE}::test_any_of_several_targets_will_do"),
    # decoding
    Mutant("rows that ended are told on", "decode/generate.py",
        "live = [i for i, row in enumerate(run.going) if not rows.done[row]]\n            going",
        "live = [*range(len(run.going))]\n            going", f"{CACHED}::test_equals_the_naive_loop"),
    Mutant("rows that ended never leave", "decode/generate.py",
        "if len(run.going) - len(live) < (1 if full else max(1, len(run.going) // 4)):", "if live:",
        f"{GENERATE}::test_rows_that_finished_leave_the_batch"),
    Mutant("a row that ended goes beyond max_len", "decode/generate.py",
        "full = max_len is not None and run.cache.length >= max_len", "full = False",
        f"{GENERATE}::test_every_row_may_go_to_max_len"),
    Mutant("who stays gets the cache of who left", "decode/run.py",
        "self.cache.select(at)", "self.cache.select(torch.arange(len(rows)))",
        f"{CACHED}::test_equals_the_naive_loop"),
    Mutant("who stays gets the source padding of who left", "decode/run.py",
        "return memory, keep\n", "return memory, None if keep is None else self.memory_keep[: len(rows)]\n", f"{CACHED}::test_equals_the_naive_loop"),
    Mutant("a prompt stands at the beginning of its padding", "decode/run.py",
        "return tokens.flip(1), None if keep is None else keep.flip(1)", "return tokens.flip(1), keep",
        f"{CACHED}::test_equals_the_naive_loop {UNEQUAL}"),
    Mutant("the padding of a prompt is read", "decode/run.py",
        "keep = None if keep is None else keep.to(device)\n    lengths", "keep = None\n    lengths", f"{CACHED}::test_equals_the_naive_loop"),
    Mutant("a row writes one token too many", "decode/rows.py",
        "len(ids) >= self.limits[row]", "len(ids) > self.limits[row]", f"{GENERATE}::test_rows_that_finished_leave_the_batch"),
    Mutant("the source has no end", "decode/run.py",
        "pad([[*source, EOS] for source in sources])", "pad([[*source] for source in sources])",
        f"{CACHED}::test_equals_the_naive_loop"),
    Mutant("dropout while writing", "decode/generate.py",
        "    model.eval()\n    with torch.no_grad():  # around", "    with torch.no_grad():  # around",
        f"{GENERATE}::test_leaves_gradients_on_and_the_model_in_evaluation"),
    Mutant("writing builds a graph", "decode/generate.py",
        "        with torch.no_grad():\n            run, hidden", "        if True:\n            run, hidden",
        f"{GENERATE}::test_chooser_sees_the_logits_of_the_last_token"),
    Mutant("blanks are read off the end of the padding", "decode/blanks.py",
        "each[len(row) - length : len(row)]", "each[len(each) - length :]",
        f"{GENERATE}::test_blanks_are_filled_as_alone"),
    Mutant("answers come by length", "decode/answer.py",
        "zip(rows, these, strict=True)", "zip(sorted(rows), these, strict=True)",
        f"{ANSWER}::test_order_is_kept_and_each_is_as_alone"),
    Mutant("a cut answer says it is whole", "decode/answer.py",
        "else Answer(ids, False,", "else Answer(ids, True,",
        f"{ANSWER}::test_answers_that_do_not_end_are_cut_and_say_by_what"),
    Mutant("answers go beyond max_len", "decode/answer.py",
        "limit if longest is None or limit.tokens <= longest else", "limit if True else",
        f"{ANSWER}::test_answers_that_do_not_end_are_cut_and_say_by_what"),
    # learning, and what is done with a run
    Mutant("no order is added", "model/stack.py", "x = x + added", "x = x + 0.0 * added",
        f"{TASKS}::test_reverse_is_learned_to_the_last_example"),
    Mutant("text is scored without text scores", "train/sources/pairs_data.py",
        'as_text=recipe.data.task == PAIRS', "as_text=False", f"{FILES}::test_scores"),
    Mutant("the last lines are not translated", "train/finished/use.py",
        "    if group:\n        yield group\n", "", f"{FILES}::test_lines_come_back_translated_and_in_order"),
    Mutant("what the vocabulary lacks is not told", "train/finished/use.py",
        "loaded.tokenizers.source.lacks(line) if UNK in ids else ()", "()", f"{LINES}::test_lines_are_answered_in_order_whatever_the_batches"),
    Mutant("a cut answer is told as whole", "train/finished/use.py",
        "None if first.complete else", "None if True else",
        f"{LINES}::test_lines_are_answered_in_order_whatever_the_batches"),
    Mutant("the newest checkpoint is scored, not the best", "store/folders.py",
        "if best is None:\n        return found", "if True:\n        return found",
        f"{USE}::test_scores_are_those_of_the_best_checkpoint"),
    Mutant("lines are decoded in batches of another setting", "train/finished/use.py",
        "            batch_size=batch_size,\n            sampling", "            sampling",
        f"{LINES}::test_as_many_lines_as_asked_are_decoded_together"),
    Mutant("all lines are read before the first answer", "train/finished/use.py",
        "for number, line in lines:\n        ids", "for number, line in list(lines):\n        ids",
        f"{LINES}::test_lines_are_read_as_they_come"),
    Mutant("lines share a batch as they come", "train/finished/use.py",
        "return 1 if batch_size == 1 else AHEAD * batch_size", "return batch_size",
        f"{LINES}::test_lines_of_like_length_share_a_batch"),
    Mutant("a dialogue waits for lines to come", "train/finished/use.py",
        "return 1 if batch_size == 1 else AHEAD", "return AHEAD",
        f"{LINES}::test_lines_are_read_as_they_come"),
    Mutant("what was skipped is no part of the score", "train/finished/use.py",
        "if recipe.data.skip_empty else", "if False else", f"{USE}::test_skipped_pairs_are_part_of_the_score"),
    Mutant("a shared matrix is counted twice", "train/finished/use.py",
        " if row.same_as is None]", "]", f"{USE}::test_every_parameter_has_its_row"),
    Mutant("two vocabularies of one size share a matrix", "train/sources/prepare.py",
        "config if source is target else replace(config, share_embeddings=False)", "config",
        f"{PREPARE}::test_two_vocabularies_have_two_matrices_also_where_they_are_of_one_size"),
    Mutant("one stack may have answers of any length", "train/recipe.py",
        "if self.data.task not in EQUAL_LENGTHS:", "if False:",
        "tests/train/test_recipe_bounds.py::test_one_stack_fills_answers_as_long_as_their_sources"),
    Mutant("one stack reads two vocabularies", "train/recipe.py",
        "if not self.tokenizer.shared:", "if False:", "tests/train/test_recipe_bounds.py::test_one_stack_has_one_vocabulary"),
    Mutant("no layers are taken for n_layers", "model/recipe.py",
        "self.n_layers if own is None else own", "own or self.n_layers", f"{RECIPE}::test_mistake_in_a_file"),
    Mutant("an answer is compared with spaces it cannot write", "train/score/evaluate.py",
        "zip(outputs, wanted, strict=True)", "zip(outputs, targets, strict=True)",
        f"{EVALUATE}::test_a_target_is_compared_as_the_tokenizer_writes_it"),
    Mutant("an unknown word is a right answer", "train/score/evaluate.py",
        "return target if UNK in ids else", "return", f"{EVALUATE}::test_an_unknown_word_is_never_right"),
    Mutant("unknown words are not counted", "train/score/evaluate.py",
        '{"unknown": unknown} if unknown else {}', "{}",
        f"{EVALUATE}::test_unknown_words_of_the_sources_are_counted"),
]
# fmt: on
