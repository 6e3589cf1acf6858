"""Faults in what learns from labels, tags and numbers, and in what is said of them."""

from __future__ import annotations

from mutant_runner import Mutant

OBJECTIVE, LOSS, LOOP, SCORES, CLASSIFIER = (
    f"tests/train/{name}.py"
    for name in ("test_objective", "test_loss", "test_loop", "score/test_scores", "test_classifier")
)

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("padding is tagged", "train/objective.py",
        "    asked = batch.label_keep if batch.label_keep is not None else batch.keep\n", "    asked = batch.label_keep\n",
        f"{LOSS}::test_padded_batch_is_the_sum_of_its_rows {OBJECTIVE}::test_targets_are_counted"),
    Mutant("a classifier pools padding in training", "train/loss.py",
        "model.head(x, asked.inputs_keep)", "model.head(x)",
        f"{LOSS}::test_padded_batch_is_the_sum_of_its_rows"),
    Mutant("the squared error is a mean over the batch", "train/loss.py",
        ".square().sum()", ".square().mean()", f"{LOOP}::test_any_split_is_the_whole_batch"),
    Mutant("a label that there is not is scored", "train/loss.py",
        "((ids < 0) | (ids >= n_labels))", "(ids < 0)",
        f"{LOSS}::test_targets_that_the_head_does_not_have_are_refused"),
    Mutant("confusion is turned round", "train/score/scores.py",
        "(np.asarray(wanted, np.int64), np.asarray(given, np.int64))",
        "(np.asarray(given, np.int64), np.asarray(wanted, np.int64))", f"{SCORES}::test_by_hand"),
    Mutant("labels that never occur count in macro F1", "train/score/scores.py",
        'if row["n"] or row["given"]]', "]", f"{SCORES}::test_by_hand"),
    Mutant("F1 is the mean of precision and recall", "train/score/scores.py",
        "2 * right / (n + given) if n + given else 0.0",
        "(right / max(n, 1) + right / max(given, 1)) / 2", f"{SCORES}::test_as_counted_one_by_one"),
    Mutant("probabilities come sorted by length", "decode/classify.py",
        "found[rows] = scores", "found[first : first + len(rows)] = scores",
        f"{CLASSIFIER}::test_probabilities_of_any_batches_are_those_of_each_alone"),
    Mutant("a text is read without <bos>", "decode/classify.py",
        "[BOS, *texts[row]]", "[*texts[row]]",
        f"{CLASSIFIER}::test_probabilities_of_any_batches_are_those_of_each_alone"),
    Mutant("dropout is active when labels are told", "decode/classify.py",
        "    model.eval()\n", "", f"{CLASSIFIER}::test_probabilities_of_any_batches_are_those_of_each_alone"),
    Mutant("a long line is labelled anyway", "train/finished/use.py",
        "if limit is not None and length > limit:", "if False:",
        f"{CLASSIFIER}::test_a_line_longer_than_the_model_takes_is_named_and_not_cut"),
    Mutant("labels of dev may be any", "train/sources/pairs_data.py",
        "loaded = load_pairs(recipe.data, name, recipe.training.seed, known_labels(tokenizers))",
        "loaded = load_pairs(recipe.data, name, recipe.training.seed)",
        f"{CLASSIFIER}::test_labels_of_dev_and_test_must_be_those_of_train"),
]
# fmt: on
