"""Faults in what is read and refused of a user's files, settings and tensors, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

LINES, LABELLED = "tests/data/test_lines.py", "tests/data/test_labelled.py"
ARGUMENTS = "tests/cli/test_arguments.py"

# fmt: off
ROWS: list[Mutant] = [
    # files and streams
    Mutant("a line without end is read", "data/lines.py",
        "file.readline(LONGEST_LINE + 2)", "file.readline()", f"{LINES}::test_a_line_without_end_is_refused"),
    Mutant("the longest line is cut", "data/lines.py",
        "if len(bare) > LONGEST_LINE:", "if False:", f"{LINES}::test_a_line_may_be_as_long_as_the_bound"),
    Mutant("a pipe without end is read", "data/lines.py", "if room < 0:", "if False:", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("the lines of a pipe cost nothing", "data/lines.py",
        "room -= len(line) + OF_A_LINE", "room -= len(line)", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("a plain file has the bound of a pipe", "data/lines.py",
        "math.inf if seen else MOST_UNSEEN", "MOST_UNSEEN", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("a gzip file has no bound", "data/lines.py", " and not packed", "", f"{LINES}::test_a_pipe_has_a_bound"),
    Mutant("the first bytes of a pipe are lost", "data/lines.py",
        "Again(head, file)", 'Again(b"", file)', f"{LINES}::test_a_pipe_is_read_to_its_end"),
    # labelled text
    Mutant("half a character is a text", "data/labelled.py",
        "            utf8(value)\n", "            pass\n", LABELLED),
    Mutant("a label has several lines", "data/labelled.py", "if broken is not None:", "if False:", LABELLED),
    Mutant("a field may stand there twice", "data/labelled.py",
        ", object_pairs_hook=refuse_repeated_keys", "", LABELLED),
    Mutant("0 and its digit are one label", "data/labelled.py",
        "if quoted != isinstance(record[label], str):", "if False:", LABELLED),
    Mutant("a header is learned as a text", "data/labelled.py", "if unsaid and known is None and lines[0] == 1:",
        "if False:", LABELLED),
    Mutant("a header is seen where it was said that there is none", "data/labelled.py",
        "unsaid = columns.header is None and", "unsaid =", LABELLED),
    Mutant("a header is what has the usual names", "data/header.py",
        "usual or (counts and min(counts.values()) >= OFTEN)", "usual", LABELLED),
    Mutant("a rare label at the head is a header", "data/header.py",
        "min(counts.values()) >= OFTEN", "max(counts.values()) >= OFTEN", LABELLED),
    Mutant("a name that is met again is a header", "data/header.py", "if counts.pop(label) > 1:", "if False:", LABELLED),
    Mutant("a column beyond the line is looked for in it", "data/labelled.py",
        "(named or column is not None) and place > len(first)", "named and place > len(first)", LABELLED),
    Mutant("a switch that is not said is off", "cli/arguments.py",
        "return place, value if on else not value", "return place, value is on", ARGUMENTS),
]
# fmt: on
