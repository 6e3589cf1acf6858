"""Faults in caches that hold less than all keys and values as they are."""

from __future__ import annotations

from mutant_runner import Mutant

ROLLING = "tests/parts/test_rolling.py"
ROUNDED = "tests/parts/test_rounded.py"
LONG = f"{ROLLING}::test_a_thousand_tokens_have_the_logits_of_a_cache_that_keeps_all"
RAGGED = f"{ROLLING}::test_rows_that_stand_at_different_positions_and_change_places"

ORDERS = "tests/parts/test_cache_in_any_order.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("the last key of a window leaves too soon", "parts/rolling.py",
        "held > last - self.reach", "held > last - self.reach + 1", LONG),
    Mutant("sinks leave", "parts/rolling.py", "| (held < self.first)", "", LONG),
    Mutant("no key ever leaves", "parts/rolling.py",
        "return stay if gone >= SLACK else None", "return None", LONG),
    Mutant("keys leave that another row reads", "parts/rolling.py",
        "torch.atleast_2d(needed).any(0)", "torch.atleast_2d(needed).all(0)", RAGGED),
    Mutant("a window takes texts of any length", "parts/rolling.py",
        "self.dropped = Plan(keys, stay), self.length + T - keys.shape[-1]", "self.dropped = Plan(keys, stay), 0",
        f"{ROLLING}::test_a_text_is_as_long_as_the_model_takes_though_keys_are_dropped"),
    Mutant("positions of forgotten tokens stay", "parts/cache.py",
        "None if self._ragged is None else self._ragged[:, :length]", "self._ragged",
        f"{ORDERS}::test_all_short_orders_leave_what_lists_hold[growing]"),
    Mutant("tokens that were taken back are still there", "parts/fixed.py",
        "keys < lengths[:, None], keys, -1)", "keys < lengths[:, None], keys, 0)", f"{ORDERS}::test_all_short_orders_leave_what_lists_hold[fixed]"),
    Mutant("more tokens than there are can be kept", "parts/cache.py",
        "        length = min(length, self.length)\n", "", f"{ORDERS}::test_all_short_orders_leave_what_lists_hold[growing]"),
    Mutant("rows cannot take back all that they have", "parts/cache.py",
        "int(held[-1]) + 1 if len(held) else 0", "int(held[-1]) + 1", f"{ORDERS}::test_all_short_orders_leave_what_lists_hold[growing]"),
    Mutant("fewer than no tokens are kept", "parts/cache.py",
        "if length < 0:", "if False:", f"{ORDERS}::test_fewer_than_no_tokens_cannot_be_kept"),
    Mutant("steps stay where rows changed places", "parts/rounded.py",
        "        for each in (self.numbers, self.steps):\n            each.select(rows)", "        self.numbers.select(rows)",
        f"{ROUNDED}::test_it_holds_what_a_growing_cache_holds_in_a_quarter_of_the_memory"),
    Mutant("the steps of a joining row stay behind", "parts/rounded.py",
        "        self.steps.take(other.steps, rows, columns, most_rows)\n", "        self.steps.take(other.steps, rows * 0, columns, most_rows)\n",
        f"{ROUNDED}::test_a_joining_row_is_not_rounded_again"),
    Mutant("a batch that runs rounds nothing", "model/transformer.py",
        "room = RoundedRoom if self.rounds_cache else Room", "room = Room", f"{ROUNDED}::test_a_joining_row_is_not_rounded_again"),
    Mutant("the setting rounds nothing", "decode/prepare.py", "        made.rounds_cache = True\n", "",
        f"{ROUNDED}::test_logits_are_those_of_exact_keys_but_for_the_rounding"),
]
# fmt: on
