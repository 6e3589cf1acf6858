"""Faults in continuous batching: rows that come and go, their slots, and what one request may do to another."""

from __future__ import annotations

from mutant_runner import Mutant

TESTS = "tests/decode/test_batching.py"
ENGINE = "tests/decode/test_engine.py"
ALONE = f"{TESTS}::test_each_row_gets_what_it_gets_alone"
ACROSS = f"{TESTS}::test_each_answer_is_that_of_its_source_alone"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a row moves without its keys", "parts/slots.py", "if place != row:", "if place > row:",
        f"{ENGINE}::test_rows_move_into_the_slots_of_those_that_leave[softmax]"),
    Mutant("a slot keeps what its last row left", "parts/slots.py", "held[self.n_rows : n] = 0\n", "pass\n",
        f"{ENGINE}::test_numbers_that_are_none_stay_in_their_row[softmax]"),
    Mutant("larger room forgets what was there", "parts/slots.py",
        "if old is not None and self.n_rows:", "if old is not None and self.n_rows > 99:",
        f"{ENGINE}::test_rows_move_into_the_slots_of_those_that_leave[softmax]"),
    Mutant("a memory is read beyond its end", "parts/slots.py",
        "return places < torch.tensor(self.lengths, device=device)[:, None]",
        "return places.expand(len(self.lengths), -1) >= 0", f"{ACROSS}[positions=sinusoidal]"),
    Mutant("memories stay when their rows leave", "parts/slots.py",
        "        if self.crossing.lengths:\n            self.crossing.leave(order)\n        return order\n\n\nclass StateSlots",
        "        return order\n\n\nclass StateSlots", f"{ACROSS}[positions=sinusoidal]"),
    Mutant("a state joins in another order", "parts/state.py", "new = other._sums[rows]", "new = other._sums[rows.flip(0)]",
        f"{ENGINE}::test_rows_move_into_the_slots_of_those_that_leave[linear]"),
    Mutant("the logits are those of the last column", "decode/batching.py", "lengths - 1])", "-1])",
        f"{ALONE}[positions=rotary]"),
    Mutant("a prompt is read once for each text", "decode/batching.py",
        "cache = self.model.new_cache(whole=True)\n", "cache = self.model.new_cache(whole=True)\n        self.model.hidden(tokens)\n",
        f"{ENGINE}::test_a_prompt_is_read_once_for_all_its_texts"),
    Mutant("all rows draw from one seed", "decode/draw.py", "context.seeds or [seed]", "[seed] or [seed]",
        f"{TESTS}::test_drawn_rows_too[decoder]"),
    Mutant("texts of a request share their numbers", "decode/batching.py", "request.first + row.text", "request.first",
        f"{TESTS}::test_drawn_rows_too[decoder]"),
    Mutant("whoever fits overtakes", "decode/batching.py",
        "                    break\n", "                    self.waiting.rotate(-1)\n                    break\n",
        f"{ENGINE}::test_room_is_rows_times_the_longest"),
    Mutant("cancelled while it waits, written all the same", "decode/batching.py",
        "if not self.waiting[0].over:", "if True:", f"{ENGINE}::test_a_cancelled_request_leaves_and_the_next_one_enters"),
    Mutant("room is made for the rows alone", "decode/batching.py",
        "or rows * columns > self.limits.tokens", "", f"{ENGINE}::test_room_is_rows_times_the_longest"),
    Mutant("one row's refusal is everybody's", "decode/batching.py",
        "            return [each for i, row in enumerate(rows) for each in self._chosen(choose, logits[i : i + 1], [row])]",
        "            return [failure(row, error) for row in rows]",
        f"{ENGINE}::test_a_row_for_which_all_is_forbidden_fails_alone"),
    Mutant("a broken step leaves its slots behind", "decode/batching.py",
        "self.rows, self._slots = [], self.model.new_slots(self.limits.rows)", "self.rows = []",
        f"{ENGINE}::test_after_a_step_that_failed_the_next_request_is_served[softmax]"),
    Mutant("the queue has no end", "decode/batching.py",
        "if len(self.waiting) >= self.limits.waiting:", "if False:", f"{ENGINE}::test_no_more_wait_than_may"),
    Mutant("probabilities after the filters", "decode/rows.py",
        "log_p = wide.log_softmax(-1)", "log_p = (wide * 2).log_softmax(-1)",
        f"{ENGINE}::test_probabilities_are_the_models_own"),
    Mutant("a text that rolls is not read anew", "decode/batching.py",
        "if not row.over and row.begin != self._begin(row)]", "if row.over and row.begin != self._begin(row)]",
        f"{TESTS}::test_a_text_longer_than_its_context_goes_on_from_its_end"),
    Mutant("what rolls is read from the prompt's beginning", "decode/rows.py",
        "[*request.prompt, *row.written][begin:]", "[*request.prompt, *row.written][:-begin]",
        f"{TESTS}::test_a_text_longer_than_its_context_goes_on_from_its_end"),
]
