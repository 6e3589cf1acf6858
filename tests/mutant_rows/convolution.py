"""Faults in short convolutions, in what caches keep for them and in C++, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

CONV = "tests/parts/test_convolution.py"
READING = "tests/contract/test_reading.py"
PROMPTS = "tests/decode/test_native_prompts.py"
NATIVE = "tests/decode/test_native_stack.py"
LEFT = "tests/decode/test_native_left.py"
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
        "        found = held[:, at] if at.ndim == 1 else held.gather(1, at[..., None].expand(-1, -1, held.shape[-1]))\n    return".replace("        found", "    found"),
        "    found = held[:, at] if at.ndim == 1 else held.gather(1, at[..., None].expand(-1, -1, held.shape[-1]))\n    return found\n    return",
        f"{CONV}::test_steps_are_those_of_the_whole_text"),
    Mutant("padding is read as a token before", "parts/convolution.py",
        "reached = step.keys.cummax(-1).values", "reached = torch.arange(step.keys.shape[-1]).expand_as(step.keys).contiguous()",
        f"{CONV}::test_rows_that_stand_at_different_positions_and_change_places"),
    Mutant("cross-attention has a convolution", "model/blocks.py",
        "cross = residual(attention(), near=False)", "cross = residual(attention())", f"{CONV}::test_one_stands_before_self_attention_and_feed_forward_and_none_before_cross_attention"),
    Mutant("attention and feed-forward share what they read", "parts/block.py",
        "self.feed_forward(x, nearby=nearby, read=before_forward)", "self.feed_forward(x, nearby=nearby, read=before_attention)",
        f"{CONV}::test_steps_are_those_of_the_whole_text"),
    Mutant("what convolutions read keeps its rows", "parts/cache.py",
        "            self.near.select(rows)\n", "            pass\n", f"{CONV}::test_rows_that_stand_at_different_positions_and_change_places"),
    Mutant("what convolutions read is not cut", "parts/cache.py",
        "            self.near.truncate(length)\n", "            pass\n", f"{CONV}::test_tokens_are_taken_back_where_all_is_kept"),
    Mutant("what convolutions read is not taken back", "parts/cache.py",
        "            self.near.take_back(lengths)\n", "            pass\n", f"{CONV}::test_tokens_are_taken_back_where_all_is_kept"),
    Mutant("what convolutions read grows", "model/transformer.py",
        "RollingCache(2 * n_layers, reach) if rolls else Cache", "Cache(2 * n_layers) if rolls else Cache", f"{CONV}::test_what_is_kept_for_it_does_not_grow"),
    Mutant("what convolutions read rolls away too early", "model/transformer.py",
        "Pattern(window=stack.convolution)", "Pattern(window=stack.convolution - 1)", f"{CONV}::test_rows_that_stand_at_different_positions_and_change_places"),
    Mutant("a cache without what convolutions read is taken", "model/stack.py",
        "        if cache.near is None:\n            raise ConfigError(", "        if cache.near is None:\n            return None\n        if False:\n            raise ConfigError(", f"{CONV}::test_a_cache_of_another_model_is_refused"),
    Mutant("rows that come bring nothing for convolutions", "parts/slots.py",
        "slots.near.take(other.near, rows, lengths, columns)", "slots.near.take(other.near, [0 for _ in rows], lengths, columns)", f"{BATCH}::test_hundreds_of_prompts"),
    Mutant("rows that go leave theirs behind", "parts/slots.py",
        "        slots.near.leave(gone)\n", "        slots.near.leave([max(range(len(slots.near.lengths)))] * len(gone))\n", f"{BATCH}::test_each_row_gets_what_it_gets_alone"),
    Mutant("C++ reads convolutions of the first texts", "parts/cpp/stack.h",
        "(T*)nearby.layers[layer] + first * lie.text : added", "(T*)nearby.layers[layer] : added", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("C++ reads the columns of the first texts", "parts/cpp/stack.h",
        "nearby.columns[back * nearby.rows + first * tokens + row]", "nearby.columns[back * nearby.rows + row]", f"{PROMPTS}::test_columns_of_texts_that_threads_share"),
    Mutant("C++ reads one token before, whatever the taps", "parts/cpp/stack.h",
        "++back, shares += width)", "++back)", f"{PROMPTS}::test_a_prompt_and_what_follows_it"),
    Mutant("C++ reads attention's vectors before feed-forward", "parts/cpp/stack.h",
        "residual(member, of.around_forward, layer + 1, [&]", "residual(member, of.around_forward, layer, [&]", f"{NATIVE}::test_a_step_is_that_of_the_modules"),
    Mutant("C++ takes convolutions of any reach", "parts/described.py",
        " or len(reach) != 1:", ":", f"{LEFT}::test_convolutions_that_reach_less_far_in_one_block_are_left_to_the_modules"),
    Mutant("documents go on from each other in C++", "parts/convolution.py",
        "torch.where(nearby.real, columns, -1)", "columns", f"{PROMPTS}::test_a_decoder_without_a_cache_is_that_of_the_modules"),
]
