"""Faults in a committee that writes: several models as one."""

from __future__ import annotations

from mutant_runner import Mutant

JOINT = "model/joint.py"
LOAD = "train/committee.py"
WRITES = "tests/decode/test_joint.py"
RUNS = "tests/train/test_writing_committee.py"
TOGETHER = f"{WRITES}::test_it_writes_what_the_definition_writes"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a committee multiplies in place of adding", JOINT,
        "torch.logaddexp(log_p, scores)", "log_p + scores", f"{WRITES}::test_chances_are_the_mean"),
    Mutant("a member with larger scores counts more", JOINT,
        "scores = scores - wholes[-1]", "scores = scores - 0.0", f"{WRITES}::test_chances_are_the_mean"),
    Mutant("a penalty does to a committee of one what it does to no model", JOINT,
        "sum(wholes) / len(wholes) - math", "-math", f"{WRITES}::test_chances_are_the_mean"),
    Mutant("a committee may be a member", JOINT,
        " or isinstance(each, Joint):\n", ":\n", f"{WRITES}::test_other_numbers_and_slots_are_refused"),
    Mutant("only the first member is asked whether guesses can be taken back", "decode/speculative.py",
        "for one in members_of(each))", "for one in [each])", f"{WRITES}::test_one_model_is_asked_for"),
    Mutant("a committee is saved", "store/snapshot.py",
        '    refuse_joint(model, "A checkpoint", "Save each member.")\n', "", f"{WRITES}::test_one_model_is_asked_for"),
    Mutant("the logits of a committee exist whole", "train/objective.py",
        "rows = max(1, WHOLE // head.n_tokens)", "rows = len(ids)",
        f"{WRITES}::test_the_logits_of_a_large_vocabulary_never_exist_whole"),
    Mutant("rows leave the first member's cache alone", JOINT,
        "            each.select(rows)", "            self.members[0].select(rows)", TOGETHER),
    Mutant("guesses are taken back of the first member alone", JOINT,
        "            each.take_back(lengths)", "            self.members[0].take_back(lengths)", TOGETHER),
    Mutant("a committee does not count what it read", JOINT,
        "            cache.count()\n", "            pass\n", TOGETHER),
    Mutant("the longest member says how long texts may be", JOINT,
        "min(limits, default=None)", "max(limits, default=None)", f"{WRITES}::test_the_shortest_member_says_how_long"),
    Mutant("members may have other vocabularies", JOINT,
        '                "vocab_size": config.vocab_size,\n', "", f"{WRITES}::test_what_cannot_write_together_is_refused"),
    Mutant("members may have other numbers", JOINT,
        '                "dtype": parameter.dtype,\n', "", f"{WRITES}::test_other_numbers_and_slots_are_refused"),
    Mutant("a committee reads a source as its first member does", "decode/coverage.py",
        "torch.stack(told).mean(0)", "told[0]",
        f"{WRITES}::test_what_is_read_of_a_source_is_the_mean_of_what_they_read"),
    Mutant("a committee is not made ready for decoding", "decode/prepare.py",
        "Joint([prepared(each, precision, cache, compile=compile) for each in model.members])", "model",
        f"{WRITES}::test_made_ready_each_member_is"),
    Mutant("members may read other tokens", LOAD,
        "if its.to_json() != own.to_json():", "if False:", f"{RUNS}::test_other_vocabularies_are_refused"),
    Mutant("members may have learned in other ways", LOAD,
        ', "objective": data.objective}', "}", f"{RUNS}::test_runs_that_answer_in_other_ways_are_refused"),
    Mutant("a committee of one kind may hold another", LOAD,
        "if (second := manner(its.data)[name]) != first:", "if (second := first) != first:",
        f"{RUNS}::test_runs_that_answer_in_other_ways_are_refused"),
    Mutant("a member's own device stands", LOAD,
        '{"device": recipe.training.device, "threads"', '{"threads"',
        f"{RUNS}::test_the_device_and_threads_are_those_of_the_first"),
    Mutant("a text is too long for a member at last", LOAD,
        "    if not isinstance(model, Joint):\n        return recipe", "    if True:\n        return recipe",
        f"{RUNS}::test_the_shortest_member_says_how_long_a_text_may_be"),
    Mutant("the mean of checkpoints is that of the best", LOAD,
        "[load_run(*each, average) for each in recipes]", "[load_run(*each) for each in recipes]",
        f"{RUNS}::test_the_mean_of_checkpoints_is_that_of_every_member"),
    Mutant("lines are answered by the first run alone", "train/use.py",
        "loaded = load_runs(run, recipe, others, average)\n    decode", "loaded = load_runs(run, recipe, (), average)\n    decode",
        f"{RUNS}::test_they_answer_lines_as_one_model"),
    Mutant("a committee is scored as its first run", "train/use.py",
        "loaded = load_runs(run, recipe, others, average)\n        data", "loaded = load_runs(run, recipe, (), average)\n        data",
        f"{RUNS}::test_they_are_scored_as_one_model"),
    Mutant("texts are written by the first run alone", "train/writing.py",
        "load_runs(run, recipe, others)", "load_runs(run, recipe)", f"{RUNS}::test_of_running_text"),
]
# fmt: on
