"""Faults in steps that are recorded, and in what may be."""

from __future__ import annotations

from mutant_runner import Mutant

RECORDED = "tests/decode/test_recorded.py"
SAME = f"{RECORDED}::test_recorded_steps_write_the_same"
DRAWN = f"{RECORDED}::test_each_way_to_choose_writes_the_same"
ENDS = f"{RECORDED}::test_rows_end_where_they_would"
LOOKS = f"{RECORDED}::test_what_has_to_look_is_not_recorded"
WATCHED = f"{RECORDED}::test_who_looks_into_a_model_sees_each_step"
JUST = f"{RECORDED}::test_a_text_that_just_fits_is_recorded"
NAN = f"{RECORDED}::test_logits_that_are_no_numbers_are_refused"
FIXED = "tests/parts/test_fixed.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("each step waits for its tokens", "decode/recorded.py",
        "            after = steps.launch() if goes_on else None\n            ids = coming.ids()\n",
        "            ids = coming.ids()\n            after = steps.launch() if goes_on else None\n", SAME),
    Mutant("rows that have left are in the record", "decode/recorded.py",
        "            self._run = self._run.select(live)\n            self._forget()\n",
        "            self._run = self._run.select(live)\n", ENDS),
    Mutant("finished rows stay", "decode/recorded.py",
        ">= max(1, len(self._run.going) // 4):", "> len(self._run.going):", ENDS),
    Mutant("each step draws the first numbers", "decode/recorded.py",
        "        self._written += 1\n", "", f"{DRAWN}[decoder-drawn]"),
    Mutant("what is refused is a token", "decode/recorded.py", "            if REFUSED in chosen:\n", "            if False:\n", NAN),
    Mutant("rows go on behind their limits", "decode/recorded.py",
        "len(rows.written[row]) + 1 < rows.limits[row]", "len(rows.written[row]) < rows.limits[row]", SAME),
    Mutant("experts are recorded", "decode/recorded.py", "isinstance(each, Experts) or (", "(", LOOKS),
    Mutant("a chosen backend is recorded", "decode/recorded.py",
        'each.attend is not ATTEND["softmax"]["auto"]', "each.attend is None", WATCHED),
    Mutant("filters that read what is written are left out", "decode/choose/ahead.py",
        "    if len(steps) < len(choose.steps):\n        return None\n", "", LOOKS),
    Mutant("numbers that were given are others", "decode/choose/ahead.py", " or choose.uniforms is not None", "", LOOKS),
    Mutant("a cache that takes over knows no padding", "parts/fixed.py",
        "isinstance(other, FixedCache) else other._ragged", "isinstance(other, FixedCache) else None", SAME),
    Mutant("a larger cache begins anew", "parts/fixed.py",
        "self._next = torch.full((1,), other.length, device=device)", "self._next = torch.full((1,), 0, device=device)", SAME),
    Mutant("what convolutions read stands where it stood", "parts/fixed.py",
        "            self.convolved.stand_at(length)\n", "            pass\n", f"{FIXED}::test_all_parts_are_told_how_many_tokens_there_are"),
    Mutant("what convolutions read is not taken over", "parts/fixed.py",
        "            self.convolved.take(other.convolved)\n", "            pass\n", ENDS),
    Mutant("a cache in constant shapes forgets what it holds", "parts/fixed.py",
        "            self._keys[..., self.length :] = -1\n", "", "tests/parts/test_cache.py::test_what_was_taken_back_was_never_there"),
    Mutant("the next token stands where the last ones stood", "parts/fixed.py",
        "            self._next.fill_(self.length)\n", "", f"{FIXED}::test_what_was_taken_back_is_written_anew"),
    Mutant("all rows take back the same", "parts/fixed.py",
        "torch.where(keys < lengths[:, None], keys, -1)", "torch.where(keys < lengths.max(), keys, -1)", f"{FIXED}::test_each_row_takes_back_its_own"),
    Mutant("positions change their place", "parts/fixed.py",
        "            self._keys.copy_(step.keys)\n", "            self._keys = step.keys\n", f"{FIXED}::test_all_keeps_its_place"),
    Mutant("a record does not count", "decode/recorded.py",
        "        self._cache.stand_at(length + 1)\n", "", SAME),
    Mutant("a failed record counts", "decode/recorded.py",
        "            self._cache.stand_at(length)\n", "", f"{RECORDED}::test_a_machine_that_fails_half_way_changes_nothing"),
    Mutant("a full cache in constant shapes is not exchanged", "decode/recorded.py",
        "if length == self._cache.room:", "if length > self._cache.room:", SAME),
    Mutant("a cache has no room for the last tokens", "decode/recorded.py",
        "room = min(columns_of(self._rows), max", "room = min(columns_of(self._rows) - 2, max", SAME),
    Mutant("a cache is recorded where it lay", "decode/recorded.py",
        "self._launch, self._rehearsed, self._uniforms = None, 0, None", "self._rehearsed, self._uniforms = 0, None", SAME),
    Mutant("a record begins without a rehearsal", "decode/recorded.py",
        "self._launch, self._rehearsed, self._uniforms = None, 0, None", "self._launch, self._rehearsed, self._uniforms = None, REHEARSALS, None",
        f"{DRAWN}[decoder-filtered]"),
    Mutant("rows draw by their place in the batch", "decode/recorded.py",
        "[self._rows.numbers[row] for row in self._run.going]", "[*range(len(self._run.going))]", ENDS),
    Mutant("numbers are drawn for the first step only", "decode/recorded.py",
        "        self._machine.give(own_uniforms(self._ahead.seed, of_each), self._uniforms)\n",
        "            self._machine.give(own_uniforms(self._ahead.seed, of_each), self._uniforms)\n", f"{DRAWN}[decoder-drawn]"),
    Mutant("a token that was refused is looked up", "decode/recorded.py", "ids.clamp(min=0)[:, None]", "ids[:, None]", NAN),
    Mutant("the logits of the next step tell what is wrong", "decode/recorded.py",
        "self._answer.logits.clone())", "self._answer.logits)", f"{RECORDED}::test_who_refuses_a_token_sees_its_logits"),
    Mutant("a text that just fits is not recorded", "decode/recorded.py",
        "default=0) + max(rows.limits, default=0) - 1", "default=0) + max(rows.limits, default=0)", JUST),
    Mutant("a text that just fits the context is not recorded", "decode/recorded.py",
        "[len(prompt) + limit - 1 for", "[len(prompt) + limit for", JUST),
    Mutant("a text as long as the model takes is recorded", "decode/recorded.py",
        "columns_of(rows) <= stack.max_len", "columns_of(rows) <= 2 * stack.max_len", LOOKS),
    Mutant("lost tokens are recorded", "decode/recorded.py",
        "max_context is None or max(read, default=0) <= max_context", "True", LOOKS),
    Mutant("what a window drops is kept", "decode/recorded.py", "stack.pattern.window is not None:", "stack.pattern.window is None:", LOOKS),
    Mutant("hooks are passed by", "decode/recorded.py", " and not hooks.any", "", WATCHED),
    Mutant("a cache in 8 bits is recorded", "decode/recorded.py", " or model.rounds_cache:", ":",
        f"{RECORDED}::test_a_cache_in_8_bits_is_not_recorded"),
    Mutant("what autocast keeps is recorded", "decode/recorded.py",
        "if torch.is_autocast_enabled(next(model.parameters()).device.type):", "if False:", f"{RECORDED}::test_autocast_is_not_recorded"),
    Mutant("no rows have a longest one", "decode/recorded.py", "max(map(len, rows.prompts), default=0)", "max(map(len, rows.prompts))",
        f"{RECORDED}::test_no_rows_are_refused_as_ever"),
    Mutant("a record takes numbers from the host", "foundation/recording.py", "    if kept is None:\n", "    if True:\n",
        f"{DRAWN}[decoder-filtered]"),
    Mutant("what a window drops is held by every generation", "decode/run.py", "model.new_cache(whole=whole)", "model.new_cache(whole=True)",
        "tests/parts/test_rolling.py::test_a_text_drops_what_its_window_does_not_reach"),
    Mutant("rows leave their positions behind", "parts/fixed.py",
        "self._keys = self._keys[rows]", "self._keys = self._keys[: len(rows)]", f"{FIXED}::test_rows_keep_their_positions_where_they_go"),
]
