"""Faults in drawing tokens: filters, random numbers, texts that roll, stream and stop."""

from __future__ import annotations

from mutant_runner import Mutant

FILTERS = "tests/decode/test_filters.py"
DRAW = "tests/decode/test_draw.py"
STREAM = "tests/decode/test_stream.py"
BEAM = "tests/decode/test_beam.py"
GENERATE = "tests/decode/test_generate.py"
DEFINITION = f"{FILTERS}::test_equals_its_definition_on_ten_thousand_rows"
ALONE = f"{DRAW}::test_a_row_gets_the_same_text_alone_and_beside_others[plain-decoder]"
ROLLS = f"{GENERATE}::test_a_text_longer_than_its_context_is_read_from_its_end[2-rotary-decoder]"
CLI = "tests/cli/test_generate.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("temperature multiplies", "decode/filters.py",
        "(logits - largest) / max(value, least)", "(logits - largest) * max(value, least)", f"{DEFINITION}[temperature-0.7]"),
    Mutant("top k keeps all ties", "decode/filters.py",
        "above | (equal & (equal.cumsum(-1) <= room))", "above | equal",
        f"{FILTERS}::test_of_equals_the_lowest_ids_stay"),
    Mutant("top k keeps one more", "decode/filters.py", "room = k - above", "room = k + 1 - above",
        f"{DEFINITION}[top_k-4]"),
    Mutant("the token that reaches the mass is lost", "decode/filters.py",
        "before = torch.nn.functional.pad(mass[:, :-1], (1, 0))", "before = mass", f"{DEFINITION}[top_p-0.9]"),
    Mutant("a nucleus of all loses what rounding hides", "decode/filters.py",
        "return logits if p == 1 else only(", "return only(",
        f"{FILTERS}::test_top_p_of_one_keeps_what_rounding_would_lose"),
    Mutant("ties stand in any order", "decode/filters.py",
        "rank.argsort(dim=-1, stable=True)", "rank.flip(-1).argsort(dim=-1, stable=True).sub(rank.shape[-1] - 1).neg()",
        f"{FILTERS}::test_of_equals_the_lowest_ids_stay"),
    Mutant("min p is a share of all", "decode/filters.py",
        "logits.max(-1, keepdim=True).values + floor", "logits.logsumexp(-1, keepdim=True) + floor",
        f"{DEFINITION}[min_p-0.05]"),
    Mutant("typical is the likeliest", "decode/filters.py",
        "(-log_p - entropy).abs()", "-log_p - entropy", f"{DEFINITION}[typical-0.2]"),
    Mutant("a penalty rewards what is unlikely", "decode/penalties.py",
        "torch.where(logits > 0, logits / penalty, logits * penalty)", "logits / penalty",
        f"{DEFINITION}[repetition_penalty-1.3]"),
    Mutant("a repeated prompt costs nothing", "decode/penalties.py",
        "seen = counts(context.read, logits) > 0", "seen = counts(context.written, logits) > 0",
        f"{DEFINITION}[repetition_penalty-1.3]"),
    Mutant("a frequency counts once", "decode/penalties.py",
        "penalty * counts(context.written, logits).to(logits.dtype)",
        "penalty * (counts(context.written, logits) > 0).to(logits.dtype)", f"{DEFINITION}[frequency_penalty-0.7]"),
    Mutant("an n-gram is one token longer", "decode/penalties.py",
        "alike >= n - 1]", "alike >= n]", f"{DEFINITION}[no_repeat_ngram-2]"),
    Mutant("the last n-gram is forgotten", "decode/penalties.py",
        "if back and alike", "if back > 1 and alike", f"{DEFINITION}[no_repeat_ngram-2]"),
    Mutant("what is banned is banned everywhere", "decode/penalties.py",
        "if ends_with(ids, each[:-1])]", "]", f"{DEFINITION}[banned-given]"),
    Mutant("an end comes one token too early", "decode/penalties.py",
        "if len(ids) < least else", "if len(ids) < least - 1 else", f"{DEFINITION}[min_new_tokens-3]"),
    Mutant("counts are those of the row above", "decode/penalties.py",
        "[i for i, row in enumerate(rows) for _ in row]", "[max(i - 1, 0) for i, row in enumerate(rows) for _ in row]",
        f"{DEFINITION}[presence_penalty-0.7]"),
    Mutant("the draw is shifted by one token", "decode/draw.py",
        "at, right=True)", "at, right=False)", f"{DRAW}::test_draw_is_the_inverse_of_the_cumulative_distribution"),
    Mutant("the mass is not normalised", "decode/draw.py",
        "torch.searchsorted(mass / mass[:, -1:], at", "torch.searchsorted(mass, at",
        f"{DRAW}::test_draw_is_the_inverse_of_the_cumulative_distribution"),
    Mutant("random numbers are those of the place in the batch", "decode/draw.py",
        ", context.numbers, places, strict", ", range(len(context.numbers)), places, strict", ALONE),
    Mutant("every block has the same numbers", "decode/draw.py",
        "counter=[0, block, lane, 0]", "counter=[0, 0, lane, 0]", f"{DRAW}::test_numbers_of_one_row_are_uniform_and_its_own"),
    Mutant("the seed is not asked", "decode/draw.py",
        "np.array([seed, row], np.uint64)", "np.array([0, row], np.uint64)",
        f"{DRAW}::test_numbers_of_one_row_are_uniform_and_its_own"),
    Mutant("temperature comes after the nucleus", "decode/draw.py",
        "        (s.temperature not in (0, 1), lambda: filters.temperature(s.temperature)),\n"
        "        (s.top_k is not None and not s.contrastive_alpha, lambda: filters.top_k(s.top_k or 0)),\n"
        "        (s.top_p != 1, lambda: filters.top_p(s.top_p)),\n",
        "        (s.top_k is not None and not s.contrastive_alpha, lambda: filters.top_k(s.top_k or 0)),\n"
        "        (s.top_p != 1, lambda: filters.top_p(s.top_p)),\n"
        "        (s.temperature not in (0, 1), lambda: filters.temperature(s.temperature)),\n",
        "tests/parity/test_transformers_filters.py::test_the_filters_stand_in_their_order"),
    Mutant("all forbidden goes unnoticed", "decode/draw.py",
        "    check_possible(logits, context)\n    return logits", "    return logits", f"{DRAW}::test_all_but_one_forbidden_and_all"),
    Mutant("rows that ended are drawn for", "decode/generate.py",
        "logits if len(live) == len(run.going) else logits[live]", "logits[: len(live)]", ALONE),
    Mutant("a full context loses one token too many", "decode/generate.py",
        "max(0, length - max_context)", "max(0, length - max_context + 1)", ROLLS),
    Mutant("rows that roll keep their old cache", "decode/generate.py",
        "if any(begins[i] != run.begins[i] for i in live):", "if False:", ROLLS),
    Mutant("half a character is told", "decode/stream.py",
        ".removesuffix(INCOMPLETE), last", ", last", f"{STREAM}::test_half_a_character_waits_for_its_other_half"),
    Mutant("the beginning of a stop text is told", "decode/stream.py",
        "- (0 if last else begun(text[self._told :], self.stops))", "- 0", f"{STREAM}::test_stop_texts"),
    Mutant("what was held back is lost at the end", "decode/stream.py",
        "            text += self.end()\n", "            pass\n", f"{STREAM}::test_texts_of_rows"),
    Mutant("a row that stopped goes on", "decode/stream.py",
        "stop=stopped,", "stop=None,",
        f"{STREAM}::test_a_row_that_stopped_is_written_no_further"),
    Mutant("answers to one source share their numbers", "decode/answer.py",
        "[row if numbers is None else numbers[row] for row in rows]", "[0 for row in rows]",
        "tests/decode/test_answer.py::test_drawn_answers_hang_on_seed_and_place_alone"),
    Mutant("a beam stops as if answers came no longer", "decode/beam.py",
        "for length in (step + 1, search.limit))", "for length in (step + 1,))",
        f"{BEAM}::test_stopping_early_loses_nothing"),
    Mutant("a beam stops at its first answer", "decode/beam.py",
        "best(search.found, n_best)[-1].score >= bound", "True", f"{BEAM}::test_stopping_early_loses_nothing"),
    Mutant("a beam never stops early", "decode/beam.py",
        "best(search.found, n_best)[-1].score >= bound", "False", f"{BEAM}::test_the_bound_saves_steps"),
    Mutant("a beam ends with unlikely ends", "decode/beam.py",
        "elif rank < beam and not search.closed:", "elif not search.closed:", f"{BEAM}::test_stopping_early_loses_nothing"),
    Mutant("ends take the places of what goes on", "decode/beam.py",
        "topk(min(2 * beam,", "topk(min(beam,", f"{BEAM}::test_stopping_early_loses_nothing"),
    Mutant("beginnings keep the cache of others", "decode/beam.py",
        "run.cache.select(rows)", "run.cache.select(rows.sort().values)", f"{BEAM}::test_stopping_early_loses_nothing"),
    Mutant("the end has no length", "decode/beam.py",
        "value / lengths(step)", "value / lengths(step - 1)", f"{BEAM}::test_stopping_early_loses_nothing"),
    Mutant("one beam looks further than greedy", "decode/beam.py",
        "if early_stop or width == 1 else None", "if early_stop else None", f"{BEAM}::test_one_beam_is_greedy"),
    Mutant("texts come as they are done", "cli/generate.py",
        "            if not ready[-1].end:\n                break\n", "", f"{CLI}::test_rows_come_in_turn"),
    Mutant("an interrupted text has no line end", "cli/generate.py",
        '        if not last.endswith(b"\\n"):', "        if False:",
        f"{CLI}::test_what_was_written_stays_and_ends_its_line"),
]
# fmt: on
