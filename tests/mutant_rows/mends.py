"""Faults met on the way: in decoding; and by a reader: what is asked late, the focus, what the address holds, narrow windows."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

ASKING, FOCUS, ADDRESS, NARROW, KINDS, AXE, SOURCE, LIMITS = (
    f"tests/lens/page/test_{name}.py"
    for name in ("asking", "focus", "address", "narrow", "kinds", "axe", "source", "limits")
)
LINES, WRITING = (f"tests/train/finished/test_{name}.py" for name in ("lines", "writing"))
WORDS = "tests/decode/choose/test_words.py"
ANSWERED = "tests/lens/server/test_answered.py::test_what_is_answered_without_heads"

# fmt: off
PYTHON: list[Mutant] = [
    Mutant("a page writes HTML", "lens/page/dom.js",
        "  element.replaceChildren(...all);", "  element.innerHTML = \"\";\n  element.append(...all);", f"{SOURCE}::test_no_text_becomes_html_or_script"),
    Mutant("without heads a classifier writes tokens", "lens/server/traces.py",
        'if "labels" in header:', "if False:", f"{ANSWERED}[label]"),
    Mutant("what was given is answered", "lens/server/traces.py",
        'if header["run"]["mode"] == "forced":', "if False:", f"{ANSWERED}[likeliest]"),
    Mutant("a line that cannot be written takes the ones before it along", "train/finished/use.py",
        "            yield from in_order(group[:before], place, write)\n", "            pass\n", f"{LINES}::test_line_that_cannot_be_written_is_named_after_the_answers_before_it"),
    Mutant("a line is named by its place", "train/finished/use.py",
        'f"line {group[before].number}"', 'f"line {before}"', f"{LINES}::test_line_that_cannot_be_written_is_named_after_the_answers_before_it"),
    Mutant("each text has a prompt of its own", "train/finished/writing.py",
        "error.row // n + 1", "error.row + 1", f"{WRITING}::test_a_text_without_a_next_token_is_named_by_its_prompt"),
    # decoding
    Mutant("half a character is wished for", "decode/choose/words.py",
        "            utf8(text)\n        if self.regex", "            pass\n        if self.regex", f"{WORDS}::test_half_a_character_is_no_text[banned]"),
    Mutant("what is unknown cannot be banned", "decode/choose/words.py",
        "    spelled[UNK] = tokenizer.adds(UNK)", "    spelled[UNK] = spelled[UNK]", f"{WORDS}::test_an_unknown_part_is_banned_as_it_is_shown"),
    Mutant("a word is glued to its prompt", "data/tokens/decoding.py",
        "self._begun = behind", "self._begun = False", "tests/decode/test_stream.py::test_words_go_on_from_their_prompt"),
    Mutant("a beam counts its rows by length", "decode/answer.py",
        "        numbers=numbers,\n        poll=poll,\n    )\n    return [\n        [\n", "        poll=poll,\n    )\n    return [\n        [\n", "tests/decode/test_answer.py::test_a_beam_knows_its_rows_as_the_caller_has_them"),
    Mutant("one dead beginning ends a beam", "decode/choose/constrained.py",
        "            if not searched:\n", "            if True:\n", "tests/decode/choose/test_constrained.py::test_a_dead_end_ends_no_beam"),
    Mutant("a source is called a prompt", "serve/wanted.py",
        ', field="text")', ")", "tests/serve/test_refusals.py::test_a_source_at_fault_is_named_by_its_field"),
    Mutant("a beginning is cut", "decode/choose/words.py",
        "self.begun(tokenizer)) > limit.tokens:", "self.begun(tokenizer)) > limit.tokens + 99:", "tests/train/finished/test_writing.py::test_a_beginning_that_has_no_room_is_refused"),
]
BROWSER: list[Mutant] = [
    Mutant("what was read is right because it was read", "lens/page/judged.js",
        "(given ? step.top[0]?.[0] : step.chosen)", "step.chosen", f"{KINDS}::test_of_given_tokens_the_likeliest_are_counted"),
    Mutant("a label is told as tokens", "lens/page/ablations.js",
        "outcome.say(trace.header.labels ?", "outcome.say(false ?", f"{KINDS}::test_a_classifier_gives_a_label_without_heads"),
    Mutant("the address names a second screen", "lens/page/state.js",
        'name === "screen" || ', "", f"{ADDRESS}::test_what_is_no_setting_does_nothing"),
    Mutant("what every object has is a setting", "lens/page/state.js",
        "!Object.hasOwn(DEFAULTS, name)", "!(name in DEFAULTS)", f"{ADDRESS}::test_what_is_no_setting_does_nothing"),
    Mutant("a table forgets what it was sorted by", "lens/page/table.js",
        'keep({ by: [...all]', 'void ({ by: [...all]', f"{ADDRESS}::test_the_sorting_of_a_table_is_found_again"),
    Mutant("the usual sorting is told", "lens/page/table.js",
        "if (text === usual)", "if (!text)", f"{ADDRESS}::test_the_sorting_of_a_table_is_found_again"),
    Mutant("a link sorts downwards alone", "lens/page/table.js",
        "const down = chosen !== known?.name;", "const down = true;", f"{ADDRESS}::test_the_sorting_of_a_table_is_found_again"),
    Mutant("a sorting goes along to another screen", "lens/page/state.js",
        "screen === state.screen ? state", "screen ? { ...state, screen }", f"{ADDRESS}::test_the_sorting_of_a_table_is_found_again"),
    Mutant("an unknown column sorts as none", "lens/page/table.js",
        "known ?? columns.find((each) => each.name === sorted)", "known", f"{ADDRESS}::test_what_is_no_column_sorts_nothing"),
    Mutant("all tables of a screen are sorted as one", "lens/page/table.js",
        "sorting().get(name) ?? usual", 'sorting().get("") ?? usual', f"{ADDRESS}::test_each_table_of_a_screen_has_a_sorting_of_its_own"),
    Mutant("boxes forget which heads they were", "lens/page/ablations.js",
        "box.checked = names.has(name)", "box.checked = false", f"{ADDRESS}::test_back_from_a_moved_head_finds_the_boxes_checked"),
    Mutant("dials are not kept", "lens/page/nexttoken.js",
        "set({ [key]: input.value })", "changed()", f"{ADDRESS}::test_dials_are_found_again"),
    Mutant("a late answer opens its trace", "lens/page/generate.js",
        "leave: () => { stop(); stopAsking(); }", "leave: stop", f"{ASKING}::test_a_late_answer_leaves_the_reader_alone"),
    Mutant("two questions run at once", "lens/page/ask.js",
        "  stopAsking();\n  const mine", "  const mine", f"{ASKING}::test_the_next_question_ends_the_one_before"),
    Mutant("what stands beside is shown before it is there", "lens/page/generate.js",
        "    const found = await besideOf(context);\n", "    const found = other = await besideOf(context);\n", f"{ASKING}::test_what_stands_beside_is_shown_once_it_is_there"),
    Mutant("an old turn says what stands beside", "lens/page/generate.js",
        "if (wanted()) other = found;", "other = found;", f"{ASKING}::test_what_stands_beside_is_shown_once_it_is_there"),
    Mutant("the focus goes by place alone", "lens/page/dom.js",
        "after.filter((each) => known(each) === name)[Number(nth)] ?? ", "", f"{FOCUS}::test_what_is_pressed_keeps_the_focus"),
    Mutant("buttons of the steps lose the focus", "lens/page/main.js",
        "  keepFocus(document.body, () => {\n", "  [0].forEach(() => {\n", f"{FOCUS}::test_what_is_gone_leaves_the_focus_to_the_picture"),
    Mutant("a table that is looked at shuts", "lens/page/history.js",
        'outcome.shown.querySelector("details")?.open ?? false', "false", f"{FOCUS}::test_what_comes_while_one_looks_leaves_the_focus_alone"),
    Mutant("a picker is as wide as its titles", "lens/page/parts.css",
        ".picker select { min-width: 0; max-width: min(320px, 100%); }", ".picker select { max-width: 320px; }", f"{NARROW}::test_a_file"),
    Mutant("boxes of heads stand in one line", "lens/page/screens.css",
        "fieldset .row { display: flex; flex-wrap: wrap;", "fieldset .row { display: flex;", f"{NARROW}::test_live"),
    Mutant("a classifier is told how to write", "lens/page/prompt.js",
        "...(writes(context.trace) ? { decode } : {})", "decode", f"{KINDS}::test_a_text_alone_is_asked"),
    Mutant("the roles are asked for once", "lens/page/history.js",
        "if (source.live) waiting", "if (source.live && shown) waiting", f"{KINDS}::test_where_the_server_has_ended_the_page_says_so"),
    Mutant("curves follow a run that has ended", "lens/page/curves.js",
        "      tell(mistake(error));\n", "", f"{KINDS}::test_where_the_server_has_ended_the_page_says_so"),
    Mutant("quiet words are pale", "lens/page/base.css",
        "--quiet: #5d626c;", "--quiet: #8d929c;", f"{AXE}::test_a_file"),
    Mutant("a chart that scrolls has no keys", "lens/page/dom.js",
        '{ class: "scroll", tabindex: "0", role', '{ class: "scroll", role', f"{AXE}::test_a_file"),
    Mutant("rows of what is not drawn are kept", "lens/page/beams.js",
        "laid(all.filter((each) => each.best < Infinity))", "all.filter((each) => each.best < Infinity)", f"{LIMITS}::test_rows_of_what_is_not_drawn_are_not_kept"),
    Mutant("a failure is kept for good", "lens/page/data.js",
        "      found.catch(() => known.get(id) === found && known.delete(id)); // what failed once may go well the next time\n", "", f"{LIMITS}::test_a_page_keeps_eight_traces_and_no_failure"),
    Mutant("every trace is kept", "lens/page/data.js",
        "if (known.size > MOST_KNOWN)", "if (!known.size)", f"{LIMITS}::test_a_page_keeps_eight_traces_and_no_failure"),
    Mutant("checkpoints forget what was chosen", "lens/page/chart.js",
        'address(onScreen("heads"))', '"#heads"', f"{LIMITS}::test_checkpoints_lead_on_and_keep_what_is_chosen"),
]
ROWS = PYTHON + (BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else [])
