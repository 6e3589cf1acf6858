"""Faults in how the explorer's page tells, colours and draws anew what it shows."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

COLOURS = "tests/lens/page/test_colours.py"
LABELS = "tests/lens/page/test_map_labels.py"
APART = f"{LABELS}::test_labels_are_a_line_apart_and_all_of_it_fits"
DENSE = "tests/lens/page/test_dense.py"
LARGE = "tests/lens/page/test_large.py"
LATE = "tests/lens/page/test_late.py"
REDRAWN = "tests/lens/page/test_redrawn.py"
TOLD = "tests/lens/page/test_told.py"
SHARES = f"{TOLD}::test_a_share_of_what_is_moved_is_called_no_attention"

# fmt: off
BROWSER: list[Mutant] = [
    Mutant("shares of what is moved are told as weights", "lens/page/words.js",
        "moved ? SHARES : WEIGHTS", "moved ? WEIGHTS : WEIGHTS", SHARES),
    Mutant("a share is as exact as the weight", "lens/page/inspector.js",
        "data.allowed(q, k) && !data.moved &&", "data.allowed(q, k) &&", SHARES),
    Mutant("masked keys are listed with a weight of 0", "lens/page/inspector.js",
        "(_, i) => i).filter(may)", "(_, i) => i).filter(() => may)", f"{TOLD}::test_what_is_masked_is_not_listed"),
    Mutant("a step reads masked keys with a weight of 0", "lens/page/generate.js",
        "(attention.allowed(step.pos, i)\n", "(attention\n", f"{TOLD}::test_a_step_reads_nothing_that_is_masked"),
    Mutant("a late input stands beside", "lens/page/attention.js",
        "if (wanted()) this.other = found;", "this.other = found;", f"{LATE}::test_a_late_input_is_not_put_beside"),
    Mutant("a late failure is shown", "lens/page/main.js",
        "wanted() && fail(error)", "fail(error)", f"{LATE}::test_a_late_failure_is_not_told_of"),
    Mutant("sums that come later move the map", "lens/page/marginals.js",
        "    this.name.textContent =", "    if (this.data === data) this.name.textContent =", f"{LARGE}::test_what_is_drawn_when_there_is_time_moves_nothing"),
    Mutant("late figures are saved", "lens/page/heads.js",
        "if (wanted()) [other", "[other", f"{LATE}::test_late_figures_are_not_saved"),
    Mutant("what is drawn anew is scrolled back", "lens/page/dom.js",
        "  if (all.length === element.childNodes.length && all.every((each, i) => each === element.childNodes[i])) return;\n", "", f"{REDRAWN}::test_what_is_scrolled_stays_where_it_is"),
    Mutant("arcs lose the focus to the pointer", "lens/page/attention.js",
        "this.arcs.mark(at);", "{ this.arcs.draw(data, this.detail.clientWidth); this.arcs.mark(at); }", f"{REDRAWN}::test_the_pointer_leaves_the_focus_on_arcs_alone"),
    Mutant("Space scrolls the page from a drawing", "lens/page/dom.js",
        "    event.preventDefault();\n    does();", "    does();", f"{REDRAWN}::test_space_presses_what_is_a_button"),
    Mutant("colours of tokens and tables stay as they were", "lens/page/colour.js",
        '["light", "dark"].map(colour)', "[theme(), theme()].map(colour)", f"{COLOURS}::test_what_is_coloured_follows_the_theme"),
    Mutant("figures of a difference have the ink of the page", "lens/page/heatmap.js",
        "inkFor((data.paint ?? ofLevel)(", "data.paint ? themed(\"ink\") : inkFor(ofLevel(", f"{COLOURS}::test_figures_of_a_difference_can_be_read"),
    Mutant("bars of the loss are pale", "lens/page/screens.css",
        "background: var(--accent); opacity: .75;", "background: var(--accent); opacity: .55;", f"{COLOURS}::test_bars_of_the_loss_stand_out"),
    Mutant("each cell of a large map is a shape", "lens/page/picture.js",
        "> SHAPES ? image : cells", "> 9999 ? image : cells", f"{DENSE}::test_a_large_map_is_saved_as_one_picture"),
    Mutant("a saved picture has the page's colours", "lens/page/picture.js",
        'cellsOf(data, "light")', "cellsOf(data)", f"{DENSE}::test_a_large_map_is_saved_as_one_picture"),
    Mutant("a large picture hatches no cell", "lens/page/picture.js",
        "    hidden && s(", "    !hidden && s(", f"{DENSE}::test_a_large_map_is_saved_as_one_picture"),
    Mutant("at the end it still plays", "lens/page/generate.js",
        "if (at >= steps.length - 1) stop();", "if (at > steps.length) stop();", f"{LATE}::test_play_ends_with_the_last_step"),
    Mutant("two clicks look twice as often", "lens/page/history.js",
        "      if (mine !== turn) return;\n      const text", "      const text", f"{LATE}::test_a_history_that_is_asked_for_twice_is_followed_once"),
    Mutant("a difference is told as a weight", "lens/page/heatmap.js",
        'data.paint ? ", A − B" : ""', 'data.paint ? "" : ""', "tests/lens/page/test_page.py::test_two_inputs_side_by_side"),
    Mutant("slanted labels lie over one another", "lens/page/maplabels.js",
        "slanted >= SLANTED", "slanted >= LINE", APART),
    Mutant("slanted labels have no room at the right", "lens/page/maplabels.js",
        "overhang: slope", "overhang: 0", APART),
    Mutant("labels that nobody draws keep their room", "lens/page/maplabels.js",
        "cell: side(8), margin: 8", "cell: side(widths.read + 14), margin: 8", APART),
    Mutant("what is predicted takes the room of all labels", "lens/page/maplabels.js",
        "widths.said ? [widths.said, 0] : [0]", "[widths.said]", APART),
    Mutant("labels on end are cut off", "lens/page/maplabels.js",
        "head: widths.keys + 16", "head: 24", f"{LABELS}::test_a_map_draws_its_labels_so"),
    Mutant("labels are drawn level", "lens/page/heatmap.js",
        "      top.rotate(-frame.turn);\n", "", f"{LABELS}::test_a_map_draws_its_labels_so"),
    Mutant("what is predicted is drawn without room", "lens/page/heatmap.js",
        "said === null || !frame.said", "said === null", f"{LABELS}::test_a_map_draws_its_labels_so"),
]
ROWS = BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else []
