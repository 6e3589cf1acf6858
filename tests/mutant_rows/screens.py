"""Faults in what the screens of the explorer say beyond the weights: orders, sums, scores, pairs of heads."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

ARRANGE, COPY = (f"tests/lens/page/test_{name}.py" for name in ("arrange", "copy"))
FIGURES, RUNS = "tests/lens/server/test_figures.py", "tests/lens/page/test_runs.py"
CLI = "tests/cli/test_explore.py"
SCORE = f"{ARRANGE}::test_the_score_is_that_before_softmax"

# fmt: off
PYTHON: list[Mutant] = [
    Mutant("heads of an older version are never asked again", "lens/server/run.py",
        "if kept.get(\"weights_sha256\") == digest and all(name in kept for name in FOUND):\n        return {name: kept[name] for name in FOUND}",
        "if kept.get(\"weights_sha256\") == digest:\n        return {name: kept.get(name) for name in FOUND}", f"{CLI}::test_the_heads_are_found_out_once"),
    Mutant("a speed is that of the step before", "lens/server/figures.py",
        "if step in asked and SPEED in told:\n            asked[step]", "if step + 1 in asked and SPEED in told:\n            asked[step + 1]", f"{FIGURES}::test_steps_have_their_speed"),
    Mutant("any folder is a study", "cli/explore.py",
        'if run.parent.name != "runs" or not path.is_file():', "if False:", f"{CLI}::test_other_runs_and_a_study_stand_beside"),
]
BROWSER: list[Mutant] = [
    Mutant("parallel branches stand one above another", "lens/page/stack.js",
        'model.parallel_branches ? "block parallel" : "block"', '"block"', f"{RUNS}::test_branches_in_parallel_are_told_and_stand_side_by_side"),
    Mutant("parallel branches do not fit their block", "lens/page/screens.css",
        ".stack:has(.parallel) { min-width: max-content; max-width: none; }\n", "", f"{RUNS}::test_branches_in_parallel_are_told_and_stand_side_by_side"),
    Mutant("the least is sorted before the most", "lens/page/arrange.js",
        "figure(b) - figure(a) || 0", "figure(a) - figure(b) || 0", f"{ARRANGE}::test_heads_are_sorted_and_left_out"),
    Mutant("a head is needed whatever its verdict", "lens/page/arrange.js",
        "/needs it$|^needed/.test(", "/needed/.test(", f"{ARRANGE}::test_heads_are_sorted_and_left_out"),
    Mutant("arrow keys go by layers in any order", "lens/page/grid.js",
        "this.keyed = there[Math.max(0, Math.min(there.length - 1, column))];", "this.keyed = { layer: row, head: Math.min(there.length - 1, column) };", f"{ARRANGE}::test_keys_go_where_the_heads_stand"),
    Mutant("controls lose the focus", "lens/page/dom.js",
        "  again.focus({ preventScroll: true });\n", "", f"{ARRANGE}::test_keys_go_where_the_heads_stand"),
    Mutant("entropy is in bits", "lens/page/marginals.js",
        "inside += value * Math.log(value)", "inside += value * Math.log2(value)", f"{ARRANGE}::test_figures_beside_a_map"),
    Mutant("masked queries count as readers", "lens/page/marginals.js",
        "    if (!data.allowed(q, k)) continue;\n    sum += data.value(q, k);", "    sum += data.value(q, k);", f"{ARRANGE}::test_figures_beside_a_map"),
    Mutant("a score leaves out what it is divided by", "lens/page/trace.js",
        "Math.log(this.decode(at)) + sum;", "Math.log(this.decode(at));", SCORE),
    Mutant("a score knows of no bias", "lens/trace/sight.py",
        "    if call.mask.bias is not None:\n        scores = scores + call.mask.bias\n", "", SCORE),
    Mutant("pairs of heads are said where nobody looked", "lens/page/similar.js",
        "  if (!pairs) return null;\n", "  pairs ??= [];\n", f"{COPY}::test_heads_that_read_alike"),
    Mutant("an interval is that of the normal distribution", "lens/page/study.js",
        "return T[df - 1] ??", "return 1.96 ||", f"{RUNS}::test_a_study_compares_its_settings"),
    Mutant("differences are not paired", "lens/page/study.js",
        "arm.figure - /** @type {number} */ (before.get(arm.seed))", "arm.figure - other.arms[0].figure", f"{RUNS}::test_a_study_compares_its_settings"),
    Mutant("a checkpoint is marked with the next figures", "lens/page/curves.js",
        "if (more.lines.length || String(more.kept ?? kept) !== String(kept)) {", "if (more.lines.length) {", f"{RUNS}::test_checkpoints_that_come_are_marked"),
    Mutant("runs look alike", "lens/page/curves.js",
        "c: number ?? undefined, points", "c: 0, points", f"{RUNS}::test_runs_side_by_side"),
    Mutant("what was given counts as written", "lens/page/trace.js",
        "step.pos >= begun - (target ? 1 : 0)", "step.pos > begun - (target ? 1 : 0)", f"{RUNS}::test_other_inputs_are_a_click_away"),
]
ROWS = PYTHON + (BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else [])
