"""Faults in the grammars that a client asks for."""

from __future__ import annotations

from mutant_runner import Mutant

SERVED = "tests/serve/test_grammar.py"
CONFLICT = "tests/decode/choose/test_conflict.py"
GRAMMAR = "tests/decode/choose/test_constrained.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("blanks of JSON have no end", "decode/choose/constrained.py", "{**COMPACT, **cast(", "{**cast(",
        f"{GRAMMAR}::test_json_is_compact_and_any_value"),
    Mutant("options of a schema itself are lost", "decode/choose/constrained.py",
        '{**COMPACT, **cast("dict[str, object]", own)} if', "COMPACT if",
        f"{GRAMMAR}::test_a_schema_may_have_options_of_its_own"),
    Mutant("settings that forbid nothing are named, too", "decode/choose/conflict.py",
        "            kept = fewer\n", "            pass\n",
        f"{CONFLICT}::test_the_settings_that_forbid_are_named_and_no_others"),
    Mutant("a certain conflict is found where a model chooses", "decode/choose/conflict.py",
        "if len(left) > 1 or left[0] == EOS:", "if left[0] == EOS:",
        f"{CONFLICT}::test_what_is_certain_is_refused_and_nothing_else"),
    Mutant("a text that its limit cut matches", "decode/stream.py",
        "whole = end != LIMITED or complete is None or complete(written[row])", "whole = True",
        "tests/cli/test_text.py::test_a_text_cut_before_it_matches_is_told"),
    Mutant("what is too large to be followed ends where it is lost", "decode/choose/constrained.py",
        "if not state.is_accepting() and not may[EOS + 1 :].any():", "if False:",
        f"{GRAMMAR}::test_what_is_too_large_to_be_followed_is_refused_and_ends_nothing"),
    Mutant("a grammar takes the time it takes", "serve/grammar.py", "    if not quick:\n", "    if False:\n",
        f"{SERVED}::test_one_that_takes_too_long_to_build"),
    Mutant("all wait for a grammar of one", "serve/service.py",
        "self._reader if wanted.wish is None else self._builder", "self._reader",
        f"{SERVED}::test_nobody_waits_for_a_grammar_of_another"),
    Mutant("a grammar has all the time there is", "serve/answers.py",
        "async with asyncio.timeout_at(until):\n            await", "async with asyncio.timeout_at(None):\n            await",
        f"{SERVED}::test_a_grammar_has_the_time_of_its_answer"),
    Mutant("a grammar is built for nobody", "serve/answers.py", "        making.cancel()\n", "        pass\n",
        f"{SERVED}::test_no_grammar_is_built_for_a_client_that_left"),
    Mutant("a grammar is for all who ask alike", "serve/texts.py",
        "own if wish is None else [*own, Named(follow(wish), wish.field)]", "own", f"{SERVED}::test_texts_are_those_of_the_command_line"),
    Mutant("a text without ends goes on behind its grammar", "serve/texts.py",
        "writer.never(constrained=wish is not None)", "writer.never()",
        f"{SERVED}::test_text_without_ends_ends_with_its_grammar"),
    Mutant("an empty expression is none", "serve/grammar.py", 'inner.text("regex") or "()"', 'inner.text("regex") or ""',
        f"{SERVED}::test_what_only_the_empty_text_matches_is_answered_with_it"),
    Mutant("states of grammars are kept for ever", "decode/choose/constrained.py",
        "            self._found.popitem(last=False)\n", "            break\n",
        f"{GRAMMAR}::test_long_texts_of_several_grammars_leave_few_states"),
    Mutant("each grammar keeps states of its own", "serve/texts.py", "followed(wish, self.states)",
        "followed(wish, States(self.states.tokenizer))", f"{SERVED}::test_all_grammars_share_the_room_for_states"),
    Mutant("a step of many rows keeps states for one", "decode/choose/constrained.py", "max(self.texts, rows)", "self.texts",
        f"{GRAMMAR}::test_long_texts_of_several_grammars_leave_few_states"),
]
# fmt: on
