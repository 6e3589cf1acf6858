"""Faults in beams that hold what is forced."""

from __future__ import annotations

from mutant_runner import Mutant

FORCED = "tests/decode/test_forced.py"
ALL = f"{FORCED}::test_wide_enough_it_is_the_best_of_all_that_hold_the_texts"
NARROW = f"{FORCED}::test_narrow_beams_hold_the_texts_too"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a text ends before it holds what is forced", "decode/forced.py",
        "now == self.whole or not (last or token == eos)", "True", ALL),
    Mutant("what was held is lost again", "decode/forced.py",
        "    if word in text:", "    if text.endswith(word):",
        f"{FORCED}::test_how_much_of_a_text_stands_there_is_its_longest_beginning_at_the_end"),
    Mutant("a forced token is looked at only where it is likely", "decode/beam.py",
        "    if rule.forced is not None:\n        likely", "    if False:\n        likely", NARROW),
    Mutant("an unknown word is nothing", "decode/choose/words.py",
        "return Forced(shown_of(tokenizer), forced)", "return Forced(tokenizer.spelling(), forced)", f"{FORCED}::test_an_unknown_word_parts_a_text_and_the_end_does_not"),
    Mutant("the likeliest push out those that hold more", "decode/forced.py",
        "banks.setdefault(sum(now), [])", "banks.setdefault(0, [])", NARROW),
]
# fmt: on
