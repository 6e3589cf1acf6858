"""Faults in what C++ tells a beam of the logits."""

from __future__ import annotations

from mutant_runner import Mutant

LIKELY = "tests/decode/choose/test_likely.py"
FIRST = f"{LIKELY}::test_the_largest_come_first_and_of_equals_the_lowest_id"
SUMS = f"{LIKELY}::test_sums_are_those_of_torch"

NONE = f"{LIKELY}::test_the_sum_of_what_is_no_number_is_none"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("of equal logits the later comes first", "parts/cpp/likely.cpp",
        "values[place - 1] < value; --place", "values[place - 1] <= value; --place", FIRST),
    Mutant("the last of the largest stays", "parts/cpp/likely.cpp",
        "if (held == k && !(value > least())) return;", "if (held == k) return;", FIRST),
    Mutant("one vector of several is looked at", "parts/cpp/likely.cpp",
        "high = here > high ? here : high;\n                }", "}", FIRST),
    Mutant("the largest logit is not taken off the sum", "parts/cpp/likely.cpp",
        "exponential(read(logits + j, n, -INFINITY) - largest)", "exponential(read(logits + j, n, -INFINITY))", SUMS),
    Mutant("what lies behind the vocabulary counts in its sum", "parts/cpp/likely.cpp",
        "sums += exponential(read(logits + j, n, -INFINITY)", "sums += exponential(read(logits + j, n, largest)", SUMS),
    Mutant("a sum of nothing is a number", "parts/cpp/likely.cpp",
        "    if (largest == -INFINITY) return largest;\n", "", f"{LIKELY}::test_what_is_all_forbidden_has_no_sum_and_every_id_once"),
    Mutant("a sum passes over what is no number", "parts/cpp/likely.cpp",
        "(here > high) | (here != here) ? here", "here > high ? here", NONE),
    Mutant("no sum is looked at", "decode/choose/likely.py",
        "if bool((scores.whole.isnan() | scores.whole.isposinf()).any()):", "if False:", NONE),
    Mutant("a beam goes on with what is no number", "decode/beam.py",
        "            check_summed(scores, logits, context)\n", "", "tests/decode/test_beam.py::test_what_is_no_number_is_refused"),
    Mutant("rows of logits lie one behind the other", "decode/choose/native_likely.py",
        "logits.stride(0), logits.shape[1]", "logits.shape[1], logits.shape[1]", f"{LIKELY}::test_rows_that_lie_apart_and_many_on_any_number_of_threads"),
    Mutant("logits in any numbers are read as float32", "decode/choose/native_likely.py",
        "logits.dtype == torch.float32 and", "", f"{LIKELY}::test_other_numbers_are_left_to_torch"),
    Mutant("any number of tokens is looked for", "decode/choose/native_likely.py",
        "1 <= k <= MOST and", "", f"{LIKELY}::test_gradients_and_very_many_tokens_are_left_to_torch"),
    Mutant("gradients are lost in a sum", "decode/choose/native_likely.py",
        "not (logits.requires_grad and torch.is_grad_enabled())", "True", f"{LIKELY}::test_gradients_and_very_many_tokens_are_left_to_torch"),
    Mutant("a beam looks where the default device is", "decode/beam.py",
        "at = likely.ids.new_tensor(rows)", "at = torch.tensor(rows)", "tests/decode/test_beam.py::test_a_search_with_fewer_hypotheses_is_extended_beside_others"),
    Mutant("what cannot be extended is extended", "decode/beam.py",
        "[-torch.inf] * lacks", "[0.0] * lacks", "tests/decode/test_beam.py::test_a_search_with_fewer_hypotheses_is_extended_beside_others"),
]
