"""Faults in what no text holds, in beginnings, and in whose limit is told."""

from __future__ import annotations

from mutant_runner import Mutant

UNWRITTEN = "tests/train/finished/test_unwritten.py"
LIKED = f"{UNWRITTEN}::test_what_a_model_likes_best_is_not_written_where_it_is_special"
APART = f"{UNWRITTEN}::test_a_beginning_counts_apart_where_no_length_is_asked_for"
NAMED = (
    "tests/train/finished/test_writing_committee.py::test_the_shortest_member_says_how_long_a_text_may_be_and_is_named"
)

# fmt: off
ROWS: list[Mutant] = [
    Mutant("translate writes special tokens", "train/finished/use.py",
        "            never=unwritten(recipe.data.layout, recipe.data.objective),\n", "", LIKED),
    Mutant("special tokens are scored as answers", "train/score/evaluate.py",
        "        never=unwritten(layout),\n", "        never=(),\n", LIKED),
    Mutant("generate writes special tokens", "train/finished/writing.py",
        "first = [without(never), *wanted]", "first = wanted", LIKED),
    Mutant("a beam writes special tokens", "decode/answer.py",
        "        never=never,\n        forced", "        forced", LIKED),
    Mutant("a beam's scores leave out what is never written", "decode/choose/likely.py",
        "whole = wide.logsumexp", "whole = forbid(wide, never).logsumexp",
        "tests/decode/test_beam.py::test_scores_are_the_models_own_though_some_tokens_are_never_written"),
    Mutant("blanks are filled with special tokens", "decode/blanks.py",
        "forbid(logits, never).argmax", "logits.argmax", LIKED),
    Mutant("an unknown word is written", "decode/choose/unwritten.py",
        "else [PAD, BOS, UNK, SEP, BLANK]", "else [PAD, BOS, SEP, BLANK]",
        f"{UNWRITTEN}::test_which_tokens_are_never_written"),
    Mutant("an answer holds <sep>", "decode/choose/unwritten.py",
        "else [PAD, BOS, UNK, SEP, BLANK]", "else [PAD, BOS, UNK, BLANK]",
        f"{UNWRITTEN}::test_which_tokens_are_never_written"),
    Mutant("hidden spans cannot be told apart", "decode/choose/unwritten.py",
        'if objective == "spans"', "if False", f"{UNWRITTEN}::test_which_tokens_are_never_written"),
    Mutant("generate forgets that a model writes hidden spans", "train/finished/writing.py",
        "unwritten(data.layout, data.objective, ", "unwritten(data.layout, ",
        f"{UNWRITTEN}::test_only_a_model_of_hidden_spans_writes_what_separates_them"),
    Mutant("the usual length cuts a beginning", "train/finished/use.py", "            begun=begun,\n", "", APART),
    Mutant("the usual length of generate leaves a beginning no room", "train/finished/writing.py",
        "limit_of(self.model, each, asked, begun) for", "limit_of(self.model, each, asked) for", APART),
    Mutant("a beginning is cut where the model takes no more", "train/finished/use.py",
        '    if recipe.data.layout != "encoder":\n', "    if False:\n",
        f"{UNWRITTEN}::test_a_beginning_that_has_no_room_is_refused"),
    Mutant("nobody tells whose limit a line of a committee meets", "train/finished/use.py",
        'whose = "" if run is None else f"{run}: "', 'whose = ""', NAMED),
    Mutant("nobody tells whose limit a prompt of a committee meets", "train/finished/writing.py",
        'whose = f"{self.shortest}: " if self.shortest and', 'whose = "" if self.shortest and', NAMED),
    Mutant("the first run is said to take the shortest texts", "train/finished/committee.py",
        "str(runs[longest.index(shortest)])", "str(runs[0])", NAMED),
]
# fmt: on
