"""Texts that a beam finds: stops in a search, what fits into the context, and the flag of `generate`."""

from __future__ import annotations

from mutant_runner import Mutant

STOPS = "tests/decode/test_beam_stops.py"
TEXTS = "tests/decode/test_search_texts.py"
RUNS = "tests/train/finished/test_searching.py"
CLI = "tests/cli/test_generate_beam.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a beam goes on behind a stop", "decode/beam.py",
        "if not complete and step < search.limit:", "if token != eos and step < search.limit:", f"{STOPS}::test_wide_enough_it_is_exhaustive"),
    Mutant("what stops at the limit is only cut", "decode/beam.py",
        "complete = token == eos or stopped", "complete = token == eos or (stopped and step < search.limit)", f"{STOPS}::test_wide_enough_it_is_exhaustive"),
    Mutant("a stopped answer loses its last token", "decode/beam.py",
        "Hypothesis(ids[:-1] if token == eos else ids,", "Hypothesis(ids[:-1] if complete else ids,", f"{STOPS}::test_one_beam_is_greedy"),
    Mutant("a stop hears of groups as rows", "decode/beam.py",
        "stop(search // groups, ids)", "stop(search, ids)", f"{STOPS}::test_groups_stop_in_their_rows"),
    Mutant("a stop ends a text before what is forced", "decode/forced.py",
        "                fits = self._held_before_stop(ids)\n", "                fits = True\n", f"{STOPS}::test_what_is_forced_stands_before_the_stop"),
    Mutant("what is forced counts within the stop text", "decode/forced.py",
        "word in text[: stop_in(text, self.stops)]", "word in text", f"{STOPS}::test_what_is_forced_stands_before_the_stop"),
    Mutant("a text stops at the stop text that begins first", "decode/stops.py",
        "[(at + len(each), at) for each", "[(at, at) for each", "tests/decode/test_stops.py"),
    Mutant("a stop text is looked for in too few bytes", "decode/search_texts.py",
        "len(spelled[ids[-1]]) + longest)", "len(spelled[ids[-1]]))", f"{TEXTS}::test_a_stop_is_where_the_text_has_it"),
    Mutant("an unknown word spells nothing at a stop", "decode/search_texts.py",
        "    spelled[UNK] = tokenizer.adds(UNK)\n", "", f"{TEXTS}::test_a_stop_is_where_the_text_has_it"),
    Mutant("the end of a text is taken for the text", "decode/search_texts.py",
        "return any(each in tail for each in words) and stops_in_stream(row, ids)", "return any(each in tail for each in words)", f"{TEXTS}::test_a_stop_is_where_the_text_has_it"),
    Mutant("a text that was found twice comes twice", "decode/search_texts.py",
        "texts.setdefault(text, Piece", "texts.setdefault(str(each.ids), Piece", f"{TEXTS}::test_a_text_that_was_found_twice_is_written_once"),
    Mutant("the end of a text counts no token", "decode/search_texts.py",
        "len(each.ids) + (each.complete and not each.stopped)", "len(each.ids)", f"{TEXTS}::test_rows_have_their_best_texts_in_order"),
    Mutant("a stopped text is taken for a cut one", "decode/search_texts.py",
        "STOPPED if stopped else ENDED if", "ENDED if", f"{TEXTS}::test_one_beam_is_greedy"),
    Mutant("texts behind other prompts have one row", "decode/search_texts.py",
        "row=row * n + k", "row=row + k", f"{TEXTS}::test_rows_have_their_best_texts_in_order"),
    Mutant("a search reads its prefix in one direction", "decode/search_texts.py",
        "        prefix=prefix,\n        stop", "        stop", f"{TEXTS}::test_a_prompt_may_be_a_prefix"),
    Mutant("a stop forgets what is forced", "decode/choose/words.py",
        "for text, stop in ((text, stop) for text in forced for stop in ends if stop in text):", "for text, stop in ():", f"{TEXTS}::test_what_is_forced_stands_in_the_text_that_is_left"),
    Mutant("a search writes special tokens", "train/finished/writing.py",
        "filters=filters, never=never, forced", "filters=filters, never=(), forced", f"{RUNS}::test_texts_are_those_of_the_search"),
    Mutant("a second batch of a search counts its texts anew", "train/finished/writing.py",
        "row=start * n // of_row + piece.row", "row=start + piece.row", f"{RUNS}::test_texts_hang_on_no_batch"),
    Mutant("the last token of a text needs room", "train/finished/context.py",
        "room = self.longest + 1 - len(ids)", "room = self.longest - len(ids)", f"{RUNS}::test_prompt_and_text_share_the_context"),
    Mutant("a text is cut where the context ends", "train/finished/context.py",
        "        if asked > room:", "        if False:", f"{RUNS}::test_prompt_and_text_share_the_context"),
    Mutant("a prompt is cropped without need", "train/finished/context.py",
        "(asked is not None or len(ids) > self.longest)", "True", f"{RUNS}::test_a_crop_leaves_what_fits"),
    Mutant("a cropped prompt leaves its text no room", "train/finished/context.py",
        "self.longest + 1 - asked", "self.longest", f"{RUNS}::test_a_prompt_is_cropped_so_that_its_text_fits"),
    Mutant("guesses for a search are ignored", "train/finished/writing.py",
        "if guessing is not None and recipe.decode.beam > 1:", "if False:", f"{RUNS}::test_what_a_search_does_not_take"),
    Mutant("generate searches because its recipe evaluates so", "cli/generate.py",
        "return override(recipe, {**NO_BEAM, **usual, **changes})", "return override(recipe, {**usual, **changes})", f"{CLI}::test_settings"),
    Mutant("a beam is given and --greedy is heard", "cli/generate.py",
        "    if greedy and searched:", "    if False:", f"{CLI}::test_mistakes"),
    Mutant("settings of a beam without one are ignored", "cli/generate.py",
        "    refuse_idle_search(decoded.decode, changes)\n", "", f"{CLI}::test_mistakes"),
    Mutant("texts that were not found hold up the others", "cli/generate.py",
        "in_order(written) if recipe.decode.beam == 1 else written", "in_order(written)", f"{CLI}::test_texts_that_were_not_found_shift_no_other"),
    Mutant("nobody says that there are fewer texts", "cli/generate.py",
        "    if len(ends) < len(prompts) * n:", "    if False:", f"{CLI}::test_texts_that_were_not_found_shift_no_other"),
    Mutant("more texts are asked for than a beam has", "cli/figures.py",
        "    if n > beam:", "    if False:", f"{CLI}::test_mistakes"),
]
