"""Faults in where the columns of rows lie that follow others."""

from __future__ import annotations

from mutant_runner import Mutant

LINEAGE = "tests/decode/test_lineage.py"
FOUND = f"{LINEAGE}::test_columns_are_found_where_they_lie"
FOLLOWS = f"{LINEAGE}::test_rows_that_follow_others_read_what_those_wrote"
STAY = f"{LINEAGE}::test_rows_stay_where_they_are"
THREADS = f"{LINEAGE}::test_texts_that_threads_share_read_what_others_wrote"
THERE = f"{LINEAGE}::test_rows_that_are_not_there_are_refused"
MEMORY = f"{LINEAGE}::test_a_memory_has_one_row_for_all_that_read_it"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("new columns of all rows lie in the first", "parts/columns.py",
        "own = torch.arange(n, device=self._held[0].device)", "own = torch.zeros(n, dtype=torch.long)", FOUND),
    Mutant("rows follow those of one step before", "parts/columns.py",
        "return own if self.lineage is None else torch.cat([self.lineage, own], dim=1)", "return torch.arange(n)[:, None].expand(-1, self.used)", FOUND),
    Mutant("modules add to columns that lie elsewhere", "parts/columns.py",
        "        self.settle()\n        return super().append(k, v)", "        return super().append(k, v)", f"{LINEAGE}::test_modules_go_on_where_rows_have_left"),
    Mutant("modules read columns of other rows", "parts/columns.py",
        "        self.settle()\n        return super().read()", "        return super().read()", FOUND),
    Mutant("what was taken back has a lineage", "parts/columns.py",
        "        self.settle()\n        self.used = min(self.used, length)\n\n\nclass Once", "        self.used = min(self.used, length)\n\n\nclass Once", FOUND),
    Mutant("a buffer moves without looking where columns lie", "parts/columns.py",
        "        if self.lineage is not None:\n            device = k.device", "        if False:\n            device = k.device", FOUND),
    Mutant("a short answer moves", "parts/columns.py",
        "return max(SHORT, 2 * (n + 1))", "return n", f"{LINEAGE}::test_a_short_answer_never_moves"),
    Mutant("a memory has room for more than it holds", "parts/columns.py",
        "return n  # no more will come", "return super()._first_room(n)", f"{LINEAGE}::test_a_short_answer_never_moves"),
    Mutant("more rows than there were are those in order", "parts/columns.py",
        "slice(None) if rows is None else rows, slice", "slice(None) if rows is None else rows.sort().values, slice", f"{LINEAGE}::test_more_rows_keep_the_room_of_their_buffer"),
    Mutant("rows that C++ reads are copied", "parts/columns.py",
        "        self._stays = True\n", "", STAY),
    Mutant("rows that end keep their room", "parts/columns.py",
        "self._stays and room < 2 * len(rows) and", "self._stays and", STAY),
    Mutant("more rows have no room of their own", "parts/columns.py",
        "and (len(rows) <= room or self.complete)", "", STAY),
    Mutant("a memory is copied for all that read it", "parts/columns.py",
        "(len(rows) <= room or self.complete)", "len(rows) <= room", MEMORY),
    Mutant("the memory is read to count its rows", "parts/cache.py",
        "held = cast(Once, self.cross[0]).buffers ", "held = self.cross[0].read() ", FOLLOWS),
    Mutant("steps of numbers in 8 bits move where these stay", "parts/rounded.py",
        "for each in (self.numbers, self.steps) if isinstance(each, Growing)]", "for each in (self.numbers,) if isinstance(each, Growing)]", FOLLOWS),
    Mutant("rows that do not fit the lineage are read", "decode/native_keys.py",
        "fits = len(lineage) == B and", "fits = ", THERE),
    Mutant("layers may lie in other rows", "decode/native_keys.py",
        "if any((each is None) != (lineage is None) for each in lineages):", "if False:", f"{LINEAGE}::test_layers_that_modules_have_read_are_not_taken_for_those_that_follow_others"),
    Mutant("C++ is not told where columns lie", "decode/native_keys.py",
        "return lineage.data_ptr(), lineage.shape[1]", "return None, 0", FOLLOWS),
    Mutant("convolutions read what other rows wrote", "decode/native_stack.py",
        "    told.lineage, told.known = mine", "    mine", FOLLOWS),
    Mutant("C++ reads the columns of its own row", "parts/cpp/keys.h",
        "return column < known ? from[column] : text;", "return text;", FOLLOWS),
    Mutant("C++ reads a lineage to its end and on", "parts/cpp/keys.h",
        "return column < known ? from[column] : text;", "return from ? from[column < known ? column : 0] : text;", FOLLOWS),
    Mutant("steps of columns lie in the row that reads them", "parts/cpp/keys.h",
        "step[of_steps.at(row<FOLLOWS>(column), 0, column)]", "step[of_steps.at(lineage.text, 0, column)]", FOLLOWS),
    Mutant("threads share the lineage of the first texts", "parts/cpp/stack.h",
        "nearby.of(first + text).at(column)", "nearby.of(text).at(column)", THREADS),
]
