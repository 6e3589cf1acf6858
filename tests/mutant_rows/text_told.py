"""Faults in which text is scored, and in what a run says of its texts."""

from __future__ import annotations

from mutant_runner import Mutant

ROWS: list[Mutant] = [
    Mutant(
        "the last token is neither hidden nor read",
        "train/sources/text_batches.py",
        "len(tokens) - (self.objective in FOLLOWED)",
        "len(tokens) - 1",
        "tests/train/score/test_text_score.py::test_what_is_hidden_is_scored_window_by_window",
    ),
    Mutant(
        "what is said of dev counts other windows",
        "train/sources/text_data.py",
        "count_evaluation_windows(self.reader.n_read(self.dev.tokens),",
        "count_evaluation_windows(len(self.dev.tokens),",
        "tests/train/score/test_text_score.py::test_what_is_hidden_is_scored_window_by_window",
    ),
    Mutant(
        "a run is to be scored on a test file that it has not",
        "data/purpose.py",
        'return "dev" if train and not test else "test"',
        'return "test"',
        "tests/data/test_purpose.py",
    ),
    Mutant(
        "test sources may be dev sources",
        "proof/doctor/texts.py",
        "    if len(sources) == 2:",
        "    if False:",
        "tests/proof/test_doctor.py::test_sources_of_test_in_dev_are_told",
    ),
    Mutant(
        "a test text may be the dev text",
        "proof/doctor/running_text.py",
        'overlap(parts["dev"], parts["test"])',
        'overlap(train, parts["test"])',
        "tests/proof/test_doctor_text.py::test_a_test_text_that_is_the_dev_text_is_told",
    ),
    Mutant(
        "windows that overlap cost nothing",
        "train/sources/text_data.py",
        " * data.window / (data.stride or data.window)",
        "",
        "tests/train/sources/test_long_evaluation.py::test_a_dev_text_that_takes_longer_than_the_steps_is_told",
    ),
    Mutant(
        "an evaluation may take longer than the run unsaid",
        "train/sources/text_data.py",
        "between = min(training.evaluate_every or training.steps, training.steps)",
        "between = training.steps",
        "tests/train/sources/test_long_evaluation.py::test_a_dev_text_that_takes_longer_than_the_steps_is_told",
    ),
]
