"""Faults in what rows that begin alike share."""

from __future__ import annotations

from mutant_runner import Mutant

ALIKE = "tests/decode/test_alike.py"
ALONE = f"{ALIKE}::test_rows_write_what_each_would_alone"
SOURCE = f"{ALIKE}::test_a_prompt_is_alike_only_with_the_same_source"
BEAMS = f"{ALIKE}::test_beams_read_them_once"
CONTRAST = f"{ALIKE}::test_contrastive_search_reads_them_once"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("rows that begin alike are each read", "decode/run.py",
        "first.setdefault(text, row)", "first.setdefault((row,), row)", ALONE),
    Mutant("prompts are alike whatever their sources", "decode/run.py",
        "(tuple(source), tuple(prompt)) for", "((), tuple(prompt)) for", SOURCE),
    Mutant("rows that begin alike go on as the first", "decode/run.py",
        "places[row] for row in firsts", "places[firsts[0]] for row in firsts", ALONE),
    Mutant("rows that begin alike share a memory that is not theirs", "decode/run.py",
        "*self.memory_of(rows), prefix)", "self.memory, self.memory_keep, prefix)", ALONE),
    Mutant("contrastive search forgets who begins alike", "decode/contrastive.py",
        "    run, hidden = forward(model, run)", "    run, hidden = forward(model, run._replace(alike=None))", CONTRAST),
    Mutant("coverage forgets who begins alike", "decode/coverage.py",
        "(weights if alike is None else weights[alike])", "(weights if alike is None else weights[[0] * len(alike)])", BEAMS),
    Mutant("blanks that are no numbers are named by their place in a batch", "decode/answer.py",
        "[lengths[row] for row in rows], never, which)", "[lengths[row] for row in rows], never)",
        "tests/decode/test_answer.py::test_blanks_of_what_is_no_number_are_refused_by_the_place_of_their_source"),
]
