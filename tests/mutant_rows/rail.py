"""Faults in how screens are laid out: a rail at the left or a bar on top, figures in their card, lines of an axis."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

FILES = ("rail", "narrow", "axis", "evaluated", "map_labels")
RAIL, NARROW, AXIS, EVALUATED, LABELS = (f"tests/lens/page/test_{name}.py" for name in FILES)

# fmt: off
BROWSER: list[Mutant] = [
    Mutant("a wide window has a bar", "lens/page/base.css",
        "@media screen and (min-width: 1100px)", "@media screen and (min-width: 11000px)", f"{RAIL}::test_a_rail_at_the_left_of_a_wide_window"),
    Mutant("a narrow window has a rail", "lens/page/base.css",
        "@media screen and (min-width: 1100px)", "@media screen and (min-width: 1000px)", f"{RAIL}::test_a_bar_on_top_of_a_narrow_one"),
    Mutant("a rail is printed", "lens/page/base.css",
        "@media screen and (min-width: 1100px)", "@media (min-width: 1100px)", f"{RAIL}::test_no_rail_on_paper"),
    Mutant("the focus jumps over the rail", "lens/page/base.css",
        "  .tools { margin-top: auto;", "  .tools { order: -1;", f"{RAIL}::test_focus_goes_as_the_eye_does[1280]"),
    Mutant("a rail is longer than its window", "lens/page/base.css",
        "height: 100vh; overflow-y: auto;", "min-height: 100vh;", f"{RAIL}::test_a_short_window_scrolls_its_rail"),
    Mutant("a key is part of its screen's name", "lens/page/base.css",
        ' content: attr(aria-keyshortcuts) / "";', "", f"{RAIL}::test_each_screen_has_its_key_beside_it"),
    Mutant("keys that are off are told", "lens/page/shell.js",
        "keys ? String(i + 1) : null", "String(i + 1)", f"{RAIL}::test_each_screen_has_its_key_beside_it"),
    Mutant("the rail does not hear that keys are off", "lens/page/main.js",
        '  window.addEventListener("keyschange", safely);\n', "", f"{RAIL}::test_each_screen_has_its_key_beside_it"),
    Mutant("the link of the open screen is as it was drawn", "lens/page/shell.js",
        'setAttribute("href", address(now()))', 'setAttribute("href", link.hash)', "tests/lens/page/test_address.py::test_the_sorting_of_a_table_is_found_again"),
    Mutant("what sticks hides behind three rows", "lens/page/base.css",
        "  html { --above: 146px; }", "  html { --above: 118px; }", f"{RAIL}::test_what_sticks_stands_clear_of_the_bar[375]"),
    Mutant("long words leave the page", "lens/page/base.css",
        " overflow-wrap: break-word; }", " }", f"{NARROW}::test_a_file"),
    Mutant("what sticks hides behind the bar", "lens/page/base.css",
        "html { --above: 118px;", "html { --above: 22px;", f"{RAIL}::test_what_sticks_stands_clear_of_the_bar[1024]"),
    Mutant("what sticks leaves room for a bar that is not there", "lens/page/base.css",
        "  html { --above: 22px; }\n", "", f"{RAIL}::test_what_sticks_stands_clear_of_the_bar[1280]"),
    Mutant("the open screen is out of sight", "lens/page/base.css",
        "scroll-initial-target: nearest", "scroll-margin: 0", f"{RAIL}::test_the_open_screen_is_among_those_seen"),
    Mutant("figures of an evaluation stand in one line", "lens/page/parts.css",
        "repeat(auto-fit, minmax(114px, 1fr)); gap: 8px 18px;", "none; grid-auto-flow: column; gap: 8px 18px;", f"{EVALUATED}::test_figures_stand_in_their_card[lm]"),
    Mutant("the name of a sum is wider than what it stands below", "lens/page/screens.css",
        ".map-below-name { grid-area: 3 / 3; padding: 4px 0 0 4px; }", ".map-below-name { grid-area: 3 / 1; padding: 4px 8px 0 0; }", f"{LABELS}::test_a_map_and_the_sums_beside_it_fit_in_their_card[63]"),
    Mutant("what an evaluation measured last is left out", "lens/page/overview.js",
        "const FIGURES = 6;", "const FIGURES = 4;", f"{EVALUATED}::test_figures_stand_in_their_card[seq2seq]"),
    Mutant("a log scale has powers of ten alone", "lens/page/axis.js",
        "length >= LEAST && length <= MOST", "length <= MOST", f"{AXIS}::test_any_range_has_three_to_six_round_places[log]"),
    Mutant("many decades are counted in pairs of lines", "lens/page/axis.js",
        "digits.length > 1 ? 1 : ", "", f"{AXIS}::test_a_log_scale_of_decades_is_even_to_the_eye"),
    Mutant("lines of an axis read alike", "lens/page/axis.js",
        ": String(at)", ": String(Number(at.toPrecision(3)))", f"{AXIS}::test_any_range_has_three_to_six_round_places[linear]"),
    Mutant("long labels leave their drawing", "lens/page/chart.js",
        "Math.max(PAD.left, 8 + LETTER * Math.max(...up.map((at) => written(at).length)))", "PAD.left", f"{AXIS}::test_charts_of_a_loss_have_labels_that_can_be_read"),
    Mutant("the last label leaves its drawing", "lens/page/chart.js",
        "x: inside(at), y: height", "x: x(at), y: height", f"{AXIS}::test_charts_of_a_loss_have_labels_that_can_be_read"),
]
ROWS = BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else []
