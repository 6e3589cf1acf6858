"""Faults in short convolutions, in what caches keep for them and in C++, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

CONV = "tests/parts/test_convolution.py"
READING = "tests/contract/test_reading.py"
PROMPTS = "tests/decode/test_native_prompts.py"
NATIVE = "tests/decode/test_native_stack.py"
LEFT = "tests/decode/test_native_left.py"
RECENT = "tests/parts/test_recent.py"
BATCH = "tests/decode/engine/test_batching.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("a convolution reads what comes", "parts/convolution.py",
        "share = x[:, :-back] * weight", "share = x[:, back:] * weight", f"{CONV}::test_it_is_the_sum_of_its_definition"),
    Mutant("a convolution begins with a share", "parts/convolution.py",
        "torch.zeros(taps - 1, d_model)", "torch.ones(taps - 1, d_model)", f"{CONV}::test_a_new_one_changes_nothing"),
    Mutant("columns are places beside padding", "parts/convolution.py",
        "if step.in_order or in_columns:", "if True:", f"{CONV}::test_each_row_learns_what_it_learns_alone"),
    Mutant("a document goes on from the one before", "parts/convolution.py",
        "return None if places is None else Nearby", "return None if True else Nearby", f"{READING}::test_packed_documents_get_what_each_gets_alone"),
    Mutant("padded documents go on from the ones before", "parts/convolution.py",
        "step.positions if places is None else places)", "step.positions)", f"{READING}::test_padding_around_packed_documents_changes_nothing"),
    Mutant("before the first token stands the first column", "parts/convolution.py",
        "return found.masked_fill((columns < 0)[..., None], 0.0)", "return found", f"{CONV}::test_steps_are_those_of_the_whole_text"),
    Mutant("padding is read as a token before", "parts/cache.py",
        "reached = step.keys.cummax(-1).values", "reached = torch.arange(step.keys.shape[-1]).expand_as(step.keys).contiguous()",
        f"{CONV}::test_rows_that_stand_at_different_positions_and_change_places"),
    Mutant("a convolution reads any number of tokens", "model/stack_config.py",
        '        at_most(self, "", MOST_TAPS, "convolution")\n', "", f"{CONV}::test_taps_are_a_count"),
    Mutant("columns that stay are dropped twice", "parts/rolling.py",
        "self.read(), self.stay, None", "self.read(), self.stay, self.stay", "tests/parts/test_rolling.py::test_room_made_before_a_step_drops_columns_once"),
    Mutant("cross-attention has a convolution", "model/blocks.py",
        "cross = residual(attention()) if", "cross = residual(attention(), convolution()) if", f"{CONV}::test_one_stands_before_self_attention_and_feed_forward_and_none_before_cross_attention"),
    Mutant("attention and feed-forward share what they read", "parts/block.py",
        "nearby=nearby, convolved=before_forward)", "nearby=nearby, convolved=before_attention)",
        f"{CONV}::test_steps_are_those_of_the_whole_text"),
    Mutant("what convolutions read keeps its rows", "parts/cache.py",
        "            self.convolved.select(rows)\n", "            pass\n", f"{CONV}::test_rows_that_stand_at_different_positions_and_change_places"),
    Mutant("what convolutions read is not cut", "parts/cache.py",
        "            self.convolved.truncate(length)\n", "            pass\n", f"{CONV}::test_tokens_are_taken_back_where_all_is_kept"),
    Mutant("what convolutions read is not taken back", "parts/cache.py",
        "            self.convolved.take_back(lengths)\n", "            pass\n", f"{CONV}::test_tokens_are_taken_back_where_all_is_kept"),
    Mutant("what convolutions read grows", "model/transformer.py",
        "made.convolved = kept or cache_of", "made.convolved = cache_of", f"{CONV}::test_what_is_kept_for_it_does_not_grow"),
    Mutant("what convolutions read rolls away too early", "model/transformer.py",
        "Pattern(window=made.taps)", "Pattern(window=made.taps - 1)", f"{CONV}::test_rows_that_stand_at_different_positions_and_change_places"),
    Mutant("what convolutions read rolls where all is wanted", "model/transformer.py",
        "rolls = stack.convolution, capacity is None and not whole", "rolls = stack.convolution, capacity is None", f"{CONV}::test_tokens_are_taken_back_where_all_is_kept"),
    Mutant("a cache for other convolutions is taken", "model/stack.py",
        "if cache is not None and cache.taps != self.config.convolution:", "if cache is not None and cache.taps < self.config.convolution:", f"{CONV}::test_a_cache_of_another_model_is_refused_and_stays_as_it_was"),
    Mutant("a refused cache has counted the tokens", "parts/cache.py",
        "        self.check_takes_back()\n        if self.convolved is not None:\n            self.convolved.take_back(lengths)\n",
        "        if self.convolved is not None:\n            self.convolved.take_back(lengths)\n        self.check_takes_back()\n",
        f"{CONV}::test_where_tokens_cannot_be_taken_back_all_stays_as_it_was"),
    Mutant("some members of a committee took back", "model/joint.py",
        "            each.check_takes_back()\n", "            pass\n", "tests/decode/test_joint.py::test_where_one_member_cannot_take_back_none_does"),
    Mutant("what rolls away shifts the columns", "parts/rolling.py",
        "torch.arange(columns - new, columns, device", "torch.arange(columns - new - 1, columns - 1, device", f"{CONV}::test_steps_are_those_of_the_whole_text"),
    Mutant("rows that come bring nothing for convolutions", "parts/slots.py",
        "self.recent.take(other.convolved, which, lengths)", "self.recent.take(other.convolved, 0 * which, lengths)", f"{RECENT}::test_rows_go_on_with_their_last_tokens"),
    Mutant("rows that go leave theirs behind", "parts/slots.py",
        "            self.recent.leave(order)\n", "            self.recent.leave([*range(len(order))])\n", f"{BATCH}::test_each_row_gets_what_it_gets_alone"),
    Mutant("states that come bring nothing for convolutions", "parts/state_slots.py",
        "self.recent.take(other.convolved, which, lengths)", "self.recent.take(other.convolved, 0 * which, lengths)", f"{RECENT}::test_rows_go_on_with_their_last_tokens"),
    Mutant("states that go leave theirs behind", "parts/state_slots.py",
        "            self.recent.leave(order)\n", "            self.recent.leave([*range(len(order))])\n", f"{BATCH}::test_each_row_gets_what_it_gets_alone"),
    Mutant("a row brings its first tokens", "parts/recent.py",
        "places = last - (last - torch.arange(self.taps, device=rows.device)) % self.taps", "places = torch.arange(self.taps, device=rows.device) + 0 * last", f"{RECENT}::test_rows_go_on_with_their_last_tokens"),
    Mutant("before the first token stands the last column", "parts/recent.py",
        "torch.where(places >= 0, places % self.taps, -1)", "places % self.taps", f"{RECENT}::test_rows_go_on_with_their_last_tokens"),
    Mutant("C++ reads the columns of the first texts", "parts/cpp/stack.h",
        "nearby.columns[back * nearby.rows + first * tokens + row]", "nearby.columns[back * nearby.rows + row]", f"{PROMPTS}::test_columns_of_texts_that_threads_share"),
    Mutant("all threads keep what convolutions read where the first texts do", "parts/cpp/stack.h",
        "nearby.column(first * tokens + row,", "nearby.column(row,", f"{PROMPTS}::test_columns_of_texts_that_threads_share"),
    Mutant("C++ keeps what convolutions read as if each text began", "parts/cpp/keys.h",
        "at ? at[row] : first + token;", "at ? at[row] : token;", f"{PROMPTS}::test_a_prompt_and_what_follows_it"),
    Mutant("C++ reads one token before, whatever the taps", "parts/cpp/stack.h",
        "++back, shares += width)", "++back)", f"{PROMPTS}::test_a_prompt_and_what_follows_it"),
    Mutant("C++ reads attention's vectors before feed-forward", "parts/cpp/stack.h",
        "of.around_forward, reads, layer + 1, [&]", "of.around_forward, reads, layer, [&]", f"{NATIVE}::test_a_step_is_that_of_the_modules"),
    Mutant("C++ takes convolutions of any reach", "parts/described.py",
        " or len(reach) != 1:", ":", f"{LEFT}::test_convolutions_that_reach_less_far_in_one_block_are_left_to_the_modules"),
    Mutant("documents go on from each other in C++", "parts/convolution.py",
        "torch.where(nearby.real, columns, -1)", "columns", f"{PROMPTS}::test_a_decoder_without_a_cache_is_that_of_the_modules"),
    Mutant("the page says nothing of convolutions", "lens/page/overview.js",
        "(model.convolution ?? 1) > 1 ?", "(model.convolution ?? 1) > 9 ?", "tests/lens/page/test_runs.py::test_a_convolution_is_told_where_there_is_one"),
]
