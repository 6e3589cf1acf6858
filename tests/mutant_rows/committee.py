"""Faults in a committee: the mean of several classifiers."""

from __future__ import annotations

from mutant_runner import Mutant

COMMITTEE = "decode/committee.py"
MEAN = "tests/decode/test_committee.py"
RUNS = "tests/train/finished/test_committee.py"
CLI = "tests/cli/test_committee.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a committee adds up and does not divide", COMMITTEE,
        "torch.stack(aligned).mean(0)", "torch.stack(aligned).sum(0)", f"{MEAN}::test_the_mean_of_two_tables_by_hand"),
    Mutant("a committee takes the surest member", COMMITTEE,
        "torch.stack(aligned).mean(0)", "torch.stack(aligned).max(0).values", f"{MEAN}::test_the_mean_of_two_tables_by_hand"),
    Mutant("labels are met by place, not by name", COMMITTEE,
        "[names.index(label) for label in labels]", "[labels.index(label) for label in labels]",
        f"{MEAN}::test_the_mean_of_two_tables_by_hand"),
    Mutant("labels are turned the wrong way round", COMMITTEE,
        "[names.index(label) for label in labels]", "[labels.index(name) for name in names]",
        f"{MEAN}::test_the_mean_of_two_tables_by_hand"),
    Mutant("the mean is taken in float32", COMMITTEE,
        "table.double()[", "table[", f"{MEAN}::test_the_mean_of_two_tables_by_hand"),
    Mutant("all members read the ids of the first", COMMITTEE,
        "[text[place] for text in texts]", "[text[0] for text in texts]",
        f"{MEAN}::test_every_member_reads_its_own_ids_and_counts_alike"),
    Mutant("labels that a later member has alone are dropped", COMMITTEE,
        ", (name, own, first, {*labels})):", ",):",
        f"{MEAN}::test_other_labels_are_refused_by_name"),
    Mutant("numbers that are none give a label", COMMITTEE,
        "if not bool(table.isfinite().all()):", "if False:", f"{MEAN}::test_a_member_without_numbers_is_refused_by_name"),
    Mutant("other labels are found out after lengths", "train/finished/committee.py",
        "    shared_labels(members)  #", "    #", f"{RUNS}::test_other_labels_are_refused_before_a_line_is_read"),
    Mutant("a run that writes answers may give labels", "data/purpose.py",
        "if not asked.fits(data):", "if False:", f"{RUNS}::test_what_gives_no_labels_is_of_no_committee"),
    Mutant("other labels are found out after the lines are read", "train/finished/use.py",
        "names = shared_labels(members)", "names = members[0].tokenizers.labels", f"{RUNS}::test_other_labels_are_refused_before_a_line_is_read"),
    Mutant("the last member sets the threads", "train/finished/committee.py",
        'placed_like(load_recipe(each / "recipe.toml"), recipe)', 'load_recipe(each / "recipe.toml")', f"{RUNS}::test_all_run_with_the_threads_of_the_first"),
    Mutant("a finished run has the threads of its training", "train/finished/loading.py",
        "choose_threads(recipe.decode.threads)", "choose_threads(recipe.training.threads)",
        "tests/train/finished/test_loading.py::test_threads_are_not_those_of_training"),
    Mutant("a text too long for a later member is scored", "train/finished/committee.py",
        "check_lengths(own, its, split, data.origin)", "check_lengths(encoded[0], recipe, split, data.origin)",
        f"{RUNS}::test_a_text_that_is_too_long_is_told_with_the_run"),
    Mutant("nobody says whom a text is too long for", "train/finished/committee.py",
        "raise error if run is None else kind(", "raise error if True else kind(",
        f"{RUNS}::test_a_text_that_is_too_long_is_told_with_the_run"),
    Mutant("the texts are read by the tokenizer of the first", "train/finished/committee.py",
        "encode_pairs(data.pairs, each.tokenizers) for", "encode_pairs(data.pairs, members[0].tokenizers) for",
        f"{RUNS}::test_the_mean_is_scored_on_the_split_of_the_first"),
    Mutant("the loss of a committee is that of its mean share", "train/score/labels.py",
        "wanted].log().mean()", "wanted].mean().log()", f"{RUNS}::test_the_mean_is_scored_on_the_split_of_the_first"),
    Mutant("what the last member lacks is all that is told", "train/score/labels.py",
        "max(ids.count(UNK) for ids in text)", "text[-1].count(UNK)",
        f"{RUNS}::test_what_a_text_lacks_is_told_of_the_member_that_lacks_the_most"),
    Mutant("the newest checkpoints of the first alone are averaged", "train/finished/committee.py",
        "load_run(run, recipe, average) for run, recipe in recipes", "load_run(run, recipe, average if run == recipes[0][0] else None) for run, recipe in recipes",
        f"{RUNS}::test_the_mean_of_checkpoints_is_taken_of_every_member"),
    Mutant("decoding that nobody does is set", "cli/idle.py",
        "    if idle:", "    if False:", f"{CLI}::test_mistakes"),
    Mutant("a page at the usual port of HTTP is refused itself", "lens/server/app.py",
        "NAMES if port == USUAL_OF_HTTP else ()", "", "tests/lens/server/test_server.py::test_browsers_leave_out_the_usual_port"),
    Mutant("a run may be named twice", "cli/runs.py",
        "if places.count(place) > 1:", "if False:", f"{CLI}::test_mistakes"),
    Mutant("only the first run is asked for labels", "cli/classify.py",
        "lines, size, average, others)", "lines, size, average)", f"{CLI}::test_each_verb_hands_all_runs_on"),
    Mutant("only the first run is scored", "cli/evaluate.py",
        "others=others, ready=tell)", "ready=tell)", f"{CLI}::test_each_verb_hands_all_runs_on"),
]
# fmt: on
