"""Faults in the ways to choose an answer beyond the likeliest token and a draw."""

from __future__ import annotations

from mutant_runner import Mutant

BEAM = "tests/decode/test_beam.py"
COVERAGE = "tests/decode/test_coverage.py"
WORDS = "tests/decode/choose/test_words.py"
CONTRAST = "tests/decode/test_contrastive.py"
GUESS = "tests/decode/test_speculative.py"
CACHE = "tests/parts/test_cache.py"
GRAMMAR = "tests/decode/choose/test_constrained.py"
EQUATION = f"{COVERAGE}::test_scores_are_the_equation_and_ranked_by_it"
LINKS = f"{COVERAGE}::test_links_are_what_each_token_read_most"
FIGURES = "tests/cli/test_end_to_end.py::test_translate_with_figures"
GROUPS = f"{BEAM}::test_groups_search_apart[3.0]"

SHARES = "tests/decode/test_speculative_shares.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("what is read twice makes up for what is not", "decode/coverage.py",
        "clamp(torch.finfo(self._sums.dtype).tiny, 1.0)", "clamp(torch.finfo(self._sums.dtype).tiny)", EQUATION),
    Mutant("the end of a source is to be read", "decode/coverage.py",
        "torch.arange(int(lengths.max()) + 1) < lengths", "torch.arange(int(lengths.max()) + 1) <= lengths", EQUATION),
    Mutant("what was read is that of another beginning", "decode/beam.py",
        "        covered.follow(rows)\n", "        covered.follow([i % len(covered._sums) for i in range(len(rows))])\n",
        EQUATION),
    Mutant("the last layer says what is read", "decode/coverage.py",
        "names[max(0, len(names) - 2)]", "names[-1]", f"{EQUATION}[3-1]"),
    Mutant("a link is that of the token before", "decode/read_back.py",
        "links = [(most[j], j)", "links = [(most[j - 1], j)", LINKS),
    Mutant("the end of a source is linked", "decode/read_back.py",
        "if id != EOS and most[j] < len(batch[row])]", "if id != EOS]", LINKS),
    Mutant("what is banned may come in two tokens", "decode/choose/words.py",
        "for n in range(len(word)) if tail", "for n in range(1) if tail", f"{WORDS}::test_what_is_banned_is_nowhere_in_the_text[byte]"),
    Mutant("what is banned may stand inside of a token", "decode/choose/words.py",
        "each.startswith(rest) if there else rest in each", "each.startswith(rest)",
        f"{WORDS}::test_what_is_banned_is_nowhere_in_the_text[bpe]"),
    Mutant("a text begins as it likes", "decode/choose/words.py",
        "            only[row] = -math.inf\n", "", f"{WORDS}::test_a_text_begins_as_it_is_told"),
    Mutant("what is forbidden is only unlikely", "decode/choose/likely.py",
        "(values - scores.whole).masked_fill(values.isneginf(), -torch.inf)", "(values - scores.whole).nan_to_num(-1e9)",
        f"{WORDS}::test_a_beam_of_which_nothing_may_go_on_is_refused"),
    Mutant("what is alike is sought", "decode/contrastive.py",
        "(1 - alpha) * p - alpha * alike", "(1 - alpha) * p + alpha * alike", f"{CONTRAST}::test_equals_its_equation"),
    Mutant("padding is something to be unlike", "decode/contrastive.py",
        ".masked_fill(~seen.real[:, None], -torch.inf)", "", f"{CONTRAST}::test_equals_its_equation"),
    Mutant("the cache of another candidate is kept", "decode/contrastive.py",
        "run.cache.select(rows * k + best)", "run.cache.select(rows * k)", f"{CONTRAST}::test_equals_its_equation"),
    Mutant("a forbidden candidate is taken", "decode/contrastive.py",
        ".masked_fill(p == 0, -torch.inf).argmax(-1)", ".argmax(-1)", f"{CONTRAST}::test_filters_hold"),
    Mutant("a full context is read ahead of itself", "decode/contrastive.py",
        "context = None if max_context is None else max_context - 1", "context = max_context",
        f"{CONTRAST}::test_a_text_longer_than_its_context"),
    Mutant("a draft sets the threads", "train/finished/guessing.py",
        'placed_like(load_recipe(asked.draft / "recipe.toml"), recipe)', 'load_recipe(asked.draft / "recipe.toml")', "tests/train/finished/test_writing.py::test_a_draft_has_the_threads_of_the_run_that_writes"),
    Mutant("every guess stays", "decode/speculative.py",
        "float(q[token])) < float(p[token])", "float(q[token])) >= 0", f"{SHARES}::test_what_settles_is_distributed_as_p"),
    Mutant("a guess that went comes again", "decode/speculative.py",
        "rest = (p - (sure if q is None else q)).clamp(min=0)", "rest = p",
        f"{SHARES}::test_what_settles_is_distributed_as_p[drawn]"),
    Mutant("a guess is weighed as if it were certain", "decode/speculative.py",
        "1.0 if q is None else float(q[token])", "1.0", f"{SHARES}::test_what_settles_is_distributed_as_p[drawn]"),
    Mutant("guesses stay in the cache", "parts/cache.py",
        "            layer.truncate(length)\n", "            pass\n", f"{GUESS}::test_a_reader_reads_what_is_new_alone"),
    Mutant("penalties do not see the guesses", "decode/draft.py",
        "[*context.written[i], *tokens]", "[*context.written[i]]", f"{GUESS}::test_greedy_is_the_plain_text"),
    Mutant("guesses reach beyond the context", "decode/speculative.py",
        "self.begin(length + n) == begin", "n", f"{GUESS}::test_a_text_longer_than_its_context"),
    Mutant("what one row takes back all rows take back", "parts/cache.py",
        "torch.where(keys < lengths[:, None], keys, -1)", "torch.where(keys < lengths.min(), keys, -1)",
        f"{CACHE}::test_each_row_takes_back_its_own"),
    Mutant("what a row took back is still read", "parts/cache.py",
        "        if self._ragged is not None or bool((keys < 0).any()):\n            self._ragged = keys\n", "",
        f"{CACHE}::test_each_row_takes_back_its_own"),
    Mutant("columns that nobody holds stay", "parts/cache.py",
        "self.truncate(int(held[-1]) + 1 if len(held) else 0)", "self.truncate(self.length)",
        f"{CACHE}::test_each_row_takes_back_its_own"),
    Mutant("guesses are read a row after another", "decode/reader.py",
        "for together, these in asked.items():", "for together, these in ((of, [each]) for of, all in asked.items() for each in all):",
        f"{GUESS}::test_all_rows_are_read_together"),
    Mutant("a row that ended goes on as padding", "decode/reader.py",
        "if len(places) <= 0.75 * len(together.rows):", "if False:", f"{GUESS}::test_all_rows_are_read_together"),
    Mutant("a prefix stays when its beginning leaves", "decode/speculative.py",
        "len(self.rows.prompts[wanted.row]) - gone) if", "len(self.rows.prompts[wanted.row])) if",
        f"{GUESS}::test_a_prefix_is_read_both_ways_also_where_guesses_are_taken_back[window]"),
    Mutant("the draft and the test share their numbers", "decode/choose/draw.py",
        "numbers(each, row, block, lane)", "numbers(each, row, block)",
        "tests/decode/choose/test_draw.py::test_each_lane_has_numbers_of_its_own"),
    Mutant("the way to cut a text is forced", "decode/choose/constrained.py",
        "grammar_from_lark(FREELY + made)", "grammar_from_lark(made)",
        f"{GRAMMAR}::test_a_token_may_come_just_where_the_text_can_still_match[bpe]"),
    Mutant("all texts have come as far as the last", "decode/choose/constrained.py",
        "(root, ids[:known]), root).deep_copy()", "(root, ids[:known]), root)",
        f"{GRAMMAR}::test_with_a_beam_and_with_states_forgotten"),
    Mutant("a group goes where those before it went", "decode/beam.py",
        "totals - less.gather(1, tokens)", "totals + less.gather(1, tokens)", GROUPS),
    Mutant("diversity counts in the score", "decode/beam.py",
        "for each in (totals, tokens))", "for each in (ranks, tokens))", GROUPS),
    Mutant("a beam reads a prefix in one direction", "decode/beam.py",
        "._replace(prefix=prefix)", "", f"{BEAM}::test_one_beam_is_greedy_behind_a_prefix"),
    Mutant("what a beam writes is a prefix, too", "decode/beam.py",
        "keep=None, prefix=None)", "keep=None)", f"{BEAM}::test_one_beam_is_greedy_behind_a_prefix"),
    Mutant("a wide beam ranks by another length", "decode/beam.py",
        "score = value / rule.lengths(rule.step)", "score = value / rule.lengths(max(rule.step, 2))",
        "tests/decode/test_beam_exhaustive.py::test_wide_enough_it_is_exhaustive"),
    Mutant("what groups find alike is returned for each", "decode/hypotheses.py",
        "once.setdefault((each.complete, *each.ids), each)", "once.setdefault((search.row, each.complete, *each.ids), each)",
        f"{FIGURES} {BEAM}::test_groups_search_apart"),
    Mutant("a blank line has as many lines as another", "cli/figures.py",
        "or [empty(arguments)]", "or [empty(arguments)] * 3", FIGURES),
    Mutant("groups know nothing of one another", "decode/beam.py",
        "        if group:\n", "        if False:\n", GROUPS),
    Mutant("a group that is done diverts no more", "decode/hypotheses.py",
        "rows = {each.row // groups for each in searches if not each.closed}\n"
        "    return [each for each in searches if each.going and each.row // groups in rows]",
        "return [each for each in searches if not each.closed]",
        f"{BEAM}::test_groups_hang_on_no_bound"),
]
# fmt: on
