"""Faults in where the columns of rows lie that follow others."""

from __future__ import annotations

from mutant_runner import Mutant

LINEAGE = "tests/decode/test_lineage.py"
FOUND = f"{LINEAGE}::test_columns_are_found_where_they_lie"
FOLLOWS = f"{LINEAGE}::test_rows_that_follow_others_read_what_those_wrote"
STAY = f"{LINEAGE}::test_rows_stay_where_they_are"
MEMORY = f"{LINEAGE}::test_a_memory_has_one_row_for_all_that_read_it"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("new columns of all rows lie in the first", "parts/columns.py",
        "own = torch.arange(shape[0])[:, None]", "own = torch.zeros(shape[0], dtype=torch.long)[:, None]", FOUND),
    Mutant("rows follow those of one step before", "parts/columns.py",
        " if self.lineage is None else self.lineage[rows]", "", FOUND),
    Mutant("modules add to columns that lie elsewhere", "parts/columns.py",
        "        self.settle()\n        return super().append(k, v)", "        return super().append(k, v)", FOUND),
    Mutant("modules read columns of other rows", "parts/columns.py",
        "        self.settle()\n        return super().read()", "        return super().read()", FOUND),
    Mutant("what was taken back has a lineage", "parts/columns.py",
        "        self.settle()\n        self.used = min(self.used, length)\n\n\nclass Once", "        self.used = min(self.used, length)\n\n\nclass Once", FOUND),
    Mutant("a buffer grows and the lineage is not looked at", "parts/columns.py",
        "            self.settle()\n            self._held = (self._moved", "            self._held = (self._moved", FOUND),
    Mutant("rows that C++ reads are copied", "parts/columns.py",
        "        if self._claimed:\n", "        if False:\n", STAY),
    Mutant("rows that end keep their room", "parts/columns.py",
        "2 * len(rows) <= room or", "", STAY),
    Mutant("more rows have no room of their own", "parts/columns.py",
        "len(rows) > room and not self.complete", "False", STAY),
    Mutant("a memory is copied for all that read it", "parts/columns.py",
        "len(rows) > room and not self.complete", "len(rows) > room", MEMORY),
    Mutant("C++ is not told where columns lie", "decode/native_keys.py",
        "return lineage.data_ptr()", "return None", FOLLOWS),
    Mutant("convolutions read what other rows wrote", "decode/native_stack.py",
        "    told.lineage = mine.lineage(layers[0], B, held)", "    mine.lineage(layers[0], B, held)", FOLLOWS),
    Mutant("C++ reads the columns of its own row", "parts/cpp/keys.h",
        "return lineage ? lineage[column] : text;", "return text;", FOLLOWS),
    Mutant("all texts have the lineage of the first", "parts/cpp/stack.h",
        "keys.lineage + text * keys.length", "keys.lineage", FOLLOWS),
    Mutant("convolutions of all texts have the lineage of the first", "parts/cpp/keys.h",
        "lineage[text * (first + tokens) + column]", "lineage[column]", FOLLOWS),
    Mutant("steps of columns lie in the row that reads them", "parts/cpp/keys.h",
        "step[of_steps.at(row(column), 0, column)]", "step[of_steps.at(text, 0, column)]", FOLLOWS),
]
