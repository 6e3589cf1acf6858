"""Faults in what the explorer compares, saves, and says for help; and in how it follows a run in training."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

BESIDE, HELP, SAVED = (f"tests/lens/page/test_{name}.py" for name in ("beside", "help", "saved"))
HISTORY = "tests/lens/server/test_history.py"
TWO, FILES = f"{BESIDE}::test_heads_of_two_inputs", f"{SAVED}::test_every_screen_saves_what_it_shows"
COMPARED, SUMS = (
    f"{BESIDE}::test_what_is_compared_is_saved_as_it_is_shown",
    f"{BESIDE}::test_the_sums_beside_a_map_are_saved",
)

# fmt: off
PYTHON: list[Mutant] = [
    Mutant("a run in training is looked at whenever one asks", "lens/server/history.py",
        "elif waiting and self.clock() >= self.rested:", "elif waiting:", f"{HISTORY}::test_a_run_in_training_is_looked_at_seldom"),
    Mutant("the oldest checkpoint of a run in training comes first", "lens/server/history.py",
        "{waiting[-1]}", "{waiting[0]}", f"{HISTORY}::test_a_run_in_training_is_looked_at_seldom"),
    Mutant("the probe is made at every look", "lens/server/history.py",
        "            self.probe = at.diagnosis.probe\n", "", f"{HISTORY}::test_what_heads_are_probed_with_is_made_once"),
    Mutant("a look goes on while the explorer ends", "lens/server/history.py",
        "        if self.ended.is_set():", "        if False:", f"{HISTORY}::test_a_look_ends_with_the_explorer"),
    Mutant("only between checkpoints a look ends", "lens/roles/run.py",
        "effects=False, between=between)", "effects=False)", f"{HISTORY}::test_a_look_ends_with_the_explorer"),
    Mutant("a server ends without a word", "lens/server/app.py",
        "            self.end()\n", "            pass\n", f"{HISTORY}::test_a_server_says_when_it_begins_to_end"),
]
BROWSER: list[Mutant] = [
    Mutant("maps are twice as far apart", "lens/page/beside.js",
        "sum += gap / 2;", "sum += gap;", TWO),
    Mutant("the other input's figures are this one's", "lens/page/heads.js",
        "beside: figures(second, layer, head)", "beside: figures(attention, layer, head)", TWO),
    Mutant("B − A for A − B", "lens/page/heads.js",
        "a === null || b === null ? null : a - b", "a === null || b === null ? null : b - a", TWO),
    Mutant("an input is compared with itself", "lens/page/beside.js",
        "other !== trace && traces.some", "traces.some", f"{BESIDE}::test_texts_of_other_lengths_have_no_distance"),
    Mutant("maps of other lengths are compared", "lens/page/beside.js",
        "|| one.group.q_len !== other.group.q_len || one.group.k_len !== other.group.k_len", "", f"{BESIDE}::test_texts_of_other_lengths_have_no_distance"),
    Mutant("a compared head opens in the view of before", "lens/page/heads.js",
        "...(paired ? { view: \"map\" } : {})", "", f"{BESIDE}::test_a_head_of_the_table_opens_both_maps"),
    Mutant("a comparison is saved as its first map", "lens/page/attention.js",
        "if (compared) return this.comparison.svg(focus());", "", COMPARED),
    Mutant("all saved maps are the first", "lens/page/compare.js",
        "this.shown.map((data, i) => mapSvg(data, at,", "this.shown.map((_, i) => mapSvg(this.shown[0], at,", COMPARED),
    Mutant("saved maps lie on each other", "lens/page/picture.js",
        "    width += size(each, \"width\") + 12;\n", "    width = size(each, \"width\") + 12;\n", COMPARED),
    Mutant("saved bars of entropy are of received weight", "lens/page/picture.js",
        "(LONG * entropy) / most", "(LONG * receivedBy(data, q).sum) / most", SUMS),
    Mutant("the table saves the entropy of the first query", "lens/page/csv.js",
        "entropyOf(data, q).entropy", "entropyOf(data, queries[0]).entropy", SUMS),
    Mutant("a formula is saved as it is", "lens/page/csv.js",
        "`'${value}`", "value", f"{SAVED}::test_a_spreadsheet_takes_no_token_for_a_formula"),
    Mutant("a file has any name", "lens/page/files.js",
        '.replace(/[^\\p{L}\\p{N}._]+/gu, "-")', "", f"{FILES} {SAVED}::test_a_spreadsheet_takes_no_token_for_a_formula"),
    Mutant("drawings are saved in the page's own colours", "lens/page/files.js",
        'class: "paper unseen"', 'class: "unseen"', FILES),
    Mutant("all lines of a saved legend are the first", "lens/page/files.js",
        "`line ${line.className}`", "\"line c0\"", f"{SAVED}::test_a_saved_chart_says_what_its_lines_are"),
    Mutant("the table of curves has no dev lines", "lens/page/curvetable.js",
        'line.kind !== "train" || kept.has(line)', "kept.has(line)", f"{SAVED}::test_curves_as_a_table"),
    Mutant("the stack is saved without its blocks", "lens/page/stack.js",
        '".block, .box, .label"', '".box, .label"', f"{SAVED}::test_the_stack_is_saved_as_it_stands"),
    Mutant("Esc in the help frees the lock behind it", "lens/page/help.js",
        "event.stopPropagation()", "void event", f"{HELP}::test_help_by_its_key_gives_the_focus_back"),
    Mutant("help leaves the focus to its button where links were made anew", "lens/page/help.js",
        "    giveBack(); //", "    //", f"{HELP}::test_help_from_a_link_gives_the_focus_back_where_keys_were_turned_off_meanwhile"),
    Mutant("the help is no dialog of its own", "lens/page/help.js",
        "dialog.showModal()", "dialog.show()", f"{HELP}::test_help_by_its_key_gives_the_focus_back"),
    Mutant("numbers count from nought", "lens/page/help.js",
        "screens[Number(event.key) - 1]", "screens[Number(event.key)]", f"{HELP}::test_numbers_open_the_screens"),
    Mutant("keys are heard where one types", "lens/page/help.js",
        "if (typing || ", "if (", f"{HELP}::test_where_one_types_a_number_is_a_number"),
    Mutant("single keys cannot be turned off", "lens/page/help.js",
        " || !keysAreOn()) return;", ") return;", f"{HELP}::test_single_keys_can_be_turned_off"),
]
ROWS = PYTHON + (BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else [])
