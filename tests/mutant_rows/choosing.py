"""Faults in what is chosen from: rows that are full, numbers that are none, guesses that filters forbid."""

from __future__ import annotations

from mutant_runner import Mutant

ANSWER, BEAM, CONTRAST, GUESS = (
    f"tests/decode/test_{name}.py" for name in ("answer", "beam", "contrastive", "speculative")
)
DRAW, FILTERS, REPEATS = (f"tests/decode/choose/test_{name}.py" for name in ("draw", "filters", "repeats"))
GREEDY, GENERATE = "tests/decode/choose/test_greedy.py", "tests/decode/test_generate.py"
ENGINE = "tests/decode/engine/test_engine.py"
BEHIND = f"{GUESS}::test_filters_are_not_asked_what_comes_behind_what_they_forbid"
REFUSED = f"{ENGINE}::test_what_cannot_be_written_is_refused"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a row is as full as the longest", "decode/contrastive.py",
        "lengths = [len(ids) - begin for ids, begin in zip(context.read, run.begins, strict=True)]",
        "lengths = [run.cache.length] * n", f"{CONTRAST}::test_a_row_is_full_by_its_own_tokens"),
    Mutant("beside a full row none is looked ahead for", "decode/contrastive.py",
        "if not bool(room.any()):", "if not bool(room.all()):", f"{CONTRAST}::test_a_row_is_full_by_its_own_tokens"),
    Mutant("a full row goes on for ever", "decode/contrastive.py",
        "[length != model.config.stack.max_len for", "[length < (model.config.stack.max_len or 99) for",
        f"{CONTRAST}::test_beyond_what_the_model_takes_it_is_refused"),
    Mutant("all that is read leaves", "decode/contrastive.py",
        "drop = drop if context is None else min(drop, context)", "drop = drop",
        f"{CONTRAST}::test_a_text_longer_than_its_context[4-4]"),
    Mutant("contrastive search writes what is forbidden", "decode/contrastive.py",
        "logits = apply(filters, seen.logits, context)\n",
        "logits = seen.logits\n    for each in filters:\n        logits = each(logits, context)\n",
        f"{CONTRAST}::test_where_nothing_may_come_or_nothing_is_a_number_it_is_refused"),
    Mutant("filters count as roughly as the model", "decode/choose/draw.py",
        "    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))\n", "",
        f"{BEAM}::test_filters_count_in_float32_where_logits_are_rounded"),
    Mutant("a beam takes what is no number", "decode/choose/draw.py", "    check_numbers(logits, context)\n", "",
        f"{BEAM}::test_what_is_no_number_is_refused"),
    Mutant("penalties count after the temperature", "decode/choose/draw.py",
        "    return [make() for wanted, make in asked if wanted]",
        "    return [make() for wanted, make in asked[5:] + asked[:5] if wanted]",
        f"{DRAW}::test_draws_follow_the_definition_of_each_setting"),
    Mutant("a draw takes the likeliest a little too often", "decode/choose/draw.py",
        "return pick(in_float64(logits).softmax(-1), uniforms)", "return pick(in_float64(logits).softmax(-1) ** 1.1, uniforms)",
        f"{DRAW}::test_draws_follow_the_definition_of_each_setting"),
    Mutant("a guess stays a little too often", "decode/speculative.py",
        "< float(p[token]):", "< 1.03 * float(p[token]):",
        "tests/decode/test_speculative_shares.py::test_over_all_random_numbers_what_settles_has_the_shares_of_p"),
    Mutant("greedy takes what is no number", "decode/choose/greedy.py", "    if not sound:", "    if False:",
        f"{GREEDY}::test_what_is_no_number_is_refused {GENERATE}::test_logits_that_are_no_numbers_are_refused"),
    Mutant("greedy takes a NaN and refuses infinity", "decode/choose/greedy.py",
        "values[np.arange(len(best)), best] < math.inf", "values[np.arange(len(best)), best] != math.inf",
        f"{GREEDY}::test_what_is_no_number_is_refused"),
    Mutant("greedy does not look at every row", "decode/choose/greedy.py",
        "values[np.arange(len(best)), best]", "values[0, best]", f"{GREEDY}::test_what_is_no_number_is_refused"),
    Mutant("a blank takes what is no number", "decode/blanks.py",
        "    check_numbers(highest, Context(numbers or range(len(rows)), sources, []))\n", "",
        f"{GENERATE}::test_blanks_are_not_filled_from_what_is_no_number"),
    Mutant("what a filter leaves is not looked at", "decode/choose/draw.py", "    if steps:\n", "    if False:\n",
        f"{DRAW}::test_what_a_filter_leaves_is_numbers"),
    Mutant("a setting that overflows is not named", "decode/choose/penalties.py",
        "if (place := unbounded(logits)) is not None:", "if False:",
        f"{ENGINE}::test_settings_that_overflow_end_their_own_text_alone"),
    Mutant("a bias may be infinite after all", "decode/choose/penalties.py",
        'return bounded(logits + row, context, "logit_bias", max(biases.values(), default=0.0))', "return logits + row",
        f"{FILTERS}::test_what_cannot_be_held_is_refused_by_row_and_setting"),
    Mutant("a choice may be any number", "decode/engine/rows.py",
        "if len(ids) != n or not all(0 <= id < size for id in ids):", "if False:",
        f"{ENGINE}::test_a_choice_that_is_none_ends_its_own_text_alone"),
    Mutant("keys of random numbers have no end", "decode/engine/requests.py", "if last >= 2**64:", "if False:", REFUSED),
    Mutant("guesses go on behind an end", "decode/speculative.py",
        "if stayed and token != self.eos:", "if stayed:", f"{BEHIND}[itself]"),
    Mutant("a draft guesses behind an end", "decode/draft.py",
        "most[i] = n + 1 if token == self.eos else most[i]", "pass", f"{BEHIND}[itself]"),
    Mutant("what followed an end is guessed", "decode/draft.py",
        "[: ids.index(self.eos) + 1] if self.eos in ids else ids", "", f"{GUESS}::test_no_guess_stands_behind_an_end"),
    Mutant("what is alike is compared again", "decode/choose/repeats.py",
        "n = min(alike[at - begin], end - at) if at < end else 0\n        if at + n >= end:", "n = 0\n        if True:",
        f"{REPEATS}::test_it_is_found_in_linear_time"),
    Mutant("the first place is guessed from", "decode/draft.py",
        "range(1, len(alike))", "range(len(alike) - 1, 0, -1)", f"{REPEATS}::test_guesses_are_those_of_the_definition"),
    Mutant("a length that counts nothing is taken", "decode/answer.py",
        "    check_lengths(model, max_new_tokens, lengths)\n", "",
        f"{ANSWER}::test_a_length_that_the_model_does_not_go_by_is_refused"),
]
# fmt: on
