"""Faults in how our C++ reads many tokens, sources and memories."""

from __future__ import annotations

from mutant_runner import Mutant

PROMPTS, LEFT = "tests/decode/test_native_prompts.py", "tests/decode/test_native_prompts_left.py"


# fmt: off
ROWS: list[Mutant] = [
    Mutant("a token reads those after it", "parts/cpp/stack.h",
        "keys.causal ? tokens - 1 - token : 0", "0", f"{PROMPTS}::test_a_prompt_and_what_follows_it"),
    Mutant("a token reads before others have put their keys", "parts/cpp/stack.h",
        "keys.fresh && tokens > 1;", "false;", f"{PROMPTS}::test_an_encoder_is_that_of_the_modules"),
    Mutant("all threads put keys where the first texts do", "parts/cpp/stack.h",
        "column = keys.column(first * tokens + row,", "column = keys.column(row,", f"{PROMPTS}::test_columns_of_texts_that_threads_share"),
    Mutant("all threads turn keys as those of the first texts", "parts/cpp/stack.h",
        "rotate(rotation, first * tokens + row, new_k);", "rotate(rotation, row, new_k);", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("all threads turn queries as those of the first texts", "parts/cpp/stack.h",
        "rotate(rotation, first * tokens + row, q);", "rotate(rotation, row, q);", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("all threads add what belongs to the first texts", "parts/cpp/stack.h",
        "text = first + row / tokens, token", "text = row / tokens, token", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("all threads read the cache of the first texts", "parts/cpp/stack.h",
        "(of, keys, block, first + row / tokens, group)", "(of, keys, block, row / tokens, group)", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("the last text of each part is left out", "parts/cpp/stack.cpp",
        "texts * (part + 1) / parts, 1);", "texts * (part + 1) / parts - 1, 1);", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("the first of each part of the rows are left out", "parts/cpp/tiles.h",
        "part(0, groups, begin * SHARED,", "part(0, groups, begin * SHARED + 1,", f"{PROMPTS}::test_rows_that_threads_share_are_multiplied_once"),
    Mutant("the normal distribution is not symmetric", "parts/cpp/rows.h",
        "return x < 0.0f ? above : 1.0f - above;", "return 1.0f - above;", f"{PROMPTS}::test_gelu_is_exact_to_a_few_roundings"),
    Mutant("the normal distribution is cut short", "parts/cpp/rows.h",
        "all(-0.058014519f)", "all(0.0f)", f"{PROMPTS}::test_gelu_is_exact_to_a_few_roundings"),
    Mutant("pairs of tokens are told one by one", "decode/native_keys.py",
        "    if mask.only_causal:  # no", "    if False:  # no", f"{PROMPTS}::test_a_prompt_needs_no_numbers_for_pairs_of_tokens"),
    Mutant("another way through the blocks is not seen", "decode/native_stack.py",
        "(stack.through is not one_by_one) if cache is None", "False if cache is None", f"{LEFT}::test_a_path_through_the_blocks_that_was_exchanged_is_taken"),
    Mutant("a memory needs no cache", "decode/native_stack.py",
        "if cache is None or not remembers(", "if cache is not None and not remembers(", f"{LEFT}::test_an_encoder_decoder_reads_its_memory_without_a_cache_by_its_modules"),
    Mutant("weights stay told when a text of one token begins", "decode/native_stack.py",
        " or not may_go_on(cache.layers)", "", f"{LEFT}::test_weights_exchanged_before_a_text_of_one_token_are_read"),
    Mutant("keys of a memory have no norm", "parts/cpp/stack.h",
        "            if (of.key_norm.kind != NOTHING) normalise(of.key_norm, new_k, new_k, K);\n", "", f"{PROMPTS}::test_the_keys_of_a_memory_are_made_in_the_same_call"),
    Mutant("all threads read the memory of the first texts", "parts/cpp/stack.h",
        "(const T*)keys.memory + first * S * in;", "(const T*)keys.memory;", f"{PROMPTS}::test_texts_that_threads_share"),
    Mutant("a failed call leaves room for keys of a memory", "decode/native_stack.py",
        "cast(Any, layer).clear()", "pass", f"{LEFT}::test_a_call_that_failed_leaves_no_keys_of_a_memory"),
    Mutant("single tokens of long texts are left to the modules", "decode/native_stack.py",
        "return T == 1 or T * max(", "return T * max(", f"{LEFT}::test_single_tokens_of_long_texts_run_in_cpp"),
    Mutant("long texts run in C++", "decode/native_stack.py",
        "memory) <= LONG", "memory) < 1e9", f"{LEFT}::test_long_texts_are_left_to_the_modules"),
    Mutant("blocks may have keys of other sizes", "parts/described.py",
        " or not alike(told.attentions, found, crosses=crosses)", "", f"{LEFT}::test_blocks_with_keys_of_other_sizes_are_left_to_the_modules"),
    Mutant("keys are where the default device is", "parts/columns.py",
        'size, dtype=dtype, device="cpu")', "size, dtype=dtype)", f"{LEFT}::test_keys_are_on_the_cpu_whatever_the_default_device"),
    Mutant("what is compiled runs in C++", "decode/native_stack.py",
        "if torch.compiler.is_compiling():", "if False:", f"{LEFT}::test_what_is_being_compiled_runs_by_its_modules"),
    Mutant("a text reads the keys of another", "decode/native_keys.py",
        "rows == B or (rows > B and self._spare)", "rows == B or rows > B", f"{LEFT}::test_fewer_rows_than_a_cache_of_texts_has_are_refused"),
    Mutant("weights may lie as they like", "parts/described.py",
        "if not (weight.is_contiguous() and", "if not (True and", f"{LEFT}::test_weights_that_do_not_lie_row_by_row_are_left_to_the_modules"),
    Mutant("a memory of another size is read", "decode/native_stack.py",
        " and memory.shape[::2] == (len(x), width)", "", f"{LEFT}::test_a_memory_that_does_not_fit_is_refused_as_by_the_modules"),
    Mutant("a memory in other numbers is read", "decode/native_stack.py",
        "return memory.dtype == x.dtype and", "return", f"{LEFT}::test_a_memory_that_does_not_fit_is_refused_as_by_the_modules"),
    Mutant("values in C++ lie as keys do", "decode/native_keys.py",
        "strides, shape = tensors[0].stride(),", "strides, shape = pairs[0][0].stride(),", f"{PROMPTS}::test_a_cache_that_modules_began_is_gone_on_with"),
]
# fmt: on
