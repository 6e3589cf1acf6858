"""Settings that nothing reads, options that nothing hears, and advice that does not work."""

from __future__ import annotations

from mutant_runner import Mutant

UNREAD = "tests/train/test_unread.py"
REFUSED = f"{UNREAD}::test_what_nothing_reads_is_refused"
LEFT = f"{UNREAD}::test_another_choice_leaves_behind_what_it_does_not_read"

ROWS: list[Mutant] = [
    Mutant(
        "a layout ignores what it does not read", "model/recipe.py", "        self._check_use(layout)\n", "", REFUSED
    ),
    Mutant(
        "a cap without its rule is ignored",
        "model/contradictions.py",
        'config.attention_rule != "softcap" and config.softcap != type(config).softcap',
        "False",
        REFUSED,
    ),
    Mutant(
        "a beginning without its warm-up is ignored",
        "train/settings.py",
        "and not getattr(self, warmup)",
        "and False",
        REFUSED,
    ),
    Mutant(
        "an end that is not come to is ignored",
        "train/settings.py",
        'self.schedule not in USES["min_learning_rate"]',
        "False",
        REFUSED,
    ),
    Mutant("another rule keeps the cap", "train/recipe.py", '["softcap"] if chosen', "[] if chosen", LEFT),
    Mutant(
        "another layout keeps the other's layers", "train/recipe.py", 'unread(str(chosen["data.layout"]))', "[]", LEFT
    ),
    Mutant(
        "another schedule keeps the cooldown",
        "train/recipe.py",
        "if schedule is not None and schedule not in users",
        "if False",
        LEFT,
    ),
]
