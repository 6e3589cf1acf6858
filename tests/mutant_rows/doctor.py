"""Faults in the mistakes on purpose and in the doctor, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

BREAKS = "tests/train/test_breaks.py"
DOCTOR = "tests/proof/test_doctor.py"
FOUND = "tests/proof/test_doctor_breaks.py::test_mistake_is_found"
HEALTHY = "tests/proof/test_doctor_breaks.py::test_healthy_run_has_no_failure"
CLI = "tests/cli/test_doctor.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # mistakes on purpose
    Mutant("a resumed run is right again", "train/run/session.py",
        "as_recipe(_model(run, loaded, recipe, may_change), recipe)", "_model(run, loaded, recipe, may_change)",
        f"{BREAKS}::test_broken_run_is_told_of_resumed_and_used[no-scale]"),
    Mutant("a run that is used is right again", "train/finished/loading.py", "    as_recipe(loaded.model, recipe)\n", "",
        f"{BREAKS}::test_broken_run_is_told_of_resumed_and_used[no-scale]"),
    Mutant("an evaluation asks what is right", "train/score/evaluate.py", "objective = objective or objective_for(model)",
        "objective = objective_for(model)", f"{BREAKS}::test_evaluation_is_as_broken_as_training"),
    Mutant("training asks what is right", "train/run/running.py", "                objective=self.objective,\n                start", "                start",
        f"{BREAKS}::test_evaluation_is_as_broken_as_training"),
    Mutant("an unused weight has no gradient", "train/breaks/surgery.py", "return output + 0.0 * sum(each.sum() for each in tensors if each is not None)",
        "return output", f"{BREAKS}::test_broken_run_is_told_of_resumed_and_used[shared-layers]"),
    Mutant("what cannot be broken is broken", "train/breaks/table.py", "if (reason := BREAKS[name].against(config)) is not None:",
        "if (reason := None) is not None:", f"{BREAKS}::test_what_cannot_be_broken_is_refused"),
    Mutant("parallel branches lose their input", "train/breaks/table.py",
        "        parallel,\n", "", f"{BREAKS}::test_branches_in_parallel_have_no_input_to_replace"),
    Mutant("two mistakes in one place", "train/breaks/table.py", "if two <= {*found}:", "if two < {*found}:", f"{BREAKS}::test_names"),
    Mutant("nobody is told what is broken", "train/run/chosen.py", ", *broken_notes(recipe)]", "]",
        f"{CLI}::test_broken_run_from_end_to_end"),
    Mutant("--break is not heard", "cli/train.py", 'arguments.changes | {"training.broken": arguments.options["break"]}', "arguments.changes", f"{CLI}::test_broken_run_from_end_to_end"),
    # the doctor
    Mutant("what needs a failed probe is probed", "proof/doctor/finding.py", "if root is not None:", "if False:", f"{CLI}::test_text"),
    Mutant("a warning is a failure", "proof/doctor/finding.py", "FAILURE if seen.serious else WARNING", "FAILURE", f"{CLI}::test_warnings_are_no_failure"),
    Mutant("a failure exits 0", "cli/doctor.py", "FAILED if any(", "0 if any(", f"{CLI}::test_text"),
    Mutant("the future is not changed", "proof/doctor/answers.py", "if id != int(tokens[0, place])", "if id == int(tokens[0, place])", f"{FOUND}[leaky-mask-encoder-decoder]"),
    Mutant("pads are never told of", "proof/doctor/answers.py", "< tokens.shape[1]\n", "< longer.shape[1]\n", f"{HEALTHY}[encoder-decoder]"),
    Mutant("pads stand before nothing", "proof/doctor/answers.py", "PADS = 3", "PADS = 0", f"{FOUND}[no-padding-mask-encoder-decoder]"),
    Mutant("order is looked for in the order there is", "proof/doctor/answers.py", "forwards[::-1]", "forwards[::1]", f"{HEALTHY}[encoder-decoder]"),
    Mutant("the cache is not used", "proof/doctor/answers.py", "yield model(token, cache=held, **memory)", "yield model(tokens, **memory)[:, :1]", f"{HEALTHY}[encoder-decoder]"),
    Mutant("the scale is not compared", "proof/doctor/heads.py", '"scale": scales(', '"scale": scales(2 *', f"{HEALTHY}[encoder-decoder]"),
    Mutant("heads are compared as trained alone", "proof/doctor/heads.py", '{"untrained": case.fresh, "trained": case.model}', '{"trained": case.model}',
        f"{DOCTOR}::test_heads_are_compared_as_they_begin"),
    Mutant("heads that share their values must differ in what they give", "proof/doctor/heads.py",
        "torch.maximum(gaps_of_heads(work.q), gaps_of_heads(work.output))", "gaps_of_heads(work.output)",
        f"{HEALTHY}[one-key-for-heads-of-one-value]"),
    Mutant("heads of one query are one", "proof/doctor/heads.py",
        "torch.maximum(gaps_of_heads(work.q), gaps_of_heads(work.output))", "gaps_of_heads(work.q)",
        f"{DOCTOR}::test_heads_of_one_query_are_two"),
    Mutant("a rare coin is not heard falling", "proof/doctor/answers.py", "NOISY if gap or drawn else None", "NOISY if gap else None",
        f"{FOUND}[dropout-in-evaluation-label-0.0-0.0001]"),
    Mutant("an embedding scaled by 1 can lose its scale", "train/breaks/table.py", "if all(each.d_model == 1 for each in stacks(config)) else None",
        "if config is None else None", f"{BREAKS}::test_what_cannot_be_broken_is_refused"),
    Mutant("idle heads are busy", "proof/doctor/heads.py", "IDLE if share < ADDS_NOTHING else ailment", "ailment", f"{DOCTOR}::test_heads_that_do_nothing_or_are_stuck"),
    Mutant("a key without weight may not be read", "proof/doctor/heads.py",
        "weights, readable = work.weights, work.allowed", "weights, readable = work.weights, work.weights > 0", f"{DOCTOR}::test_a_layer_whose_other_weights_are_exactly_0_is_stuck"),
    Mutant("saturated heads are free", "proof/doctor/heads.py", "FROZEN if frozen else", "None if frozen else", f"{DOCTOR}::test_heads_that_do_nothing_or_are_stuck"),
    Mutant("copies are one layer", "proof/doctor/layers.py", "SHARED if together else COPIES", "SHARED", f"{FOUND}[identical-layers-encoder-decoder]"),
    Mutant("the residual of the config is left out", "proof/doctor/layers.py", "scale * call.given[0] + added", "call.given[0] + added", f"{HEALTHY}[softcap-deepnorm]"),
    Mutant("a layer without gradient passes", "proof/doctor/learning.py", "if not size > 0:", "if size < 0:", f"{DOCTOR}::test_layer_without_a_gradient"),
    Mutant("branches that start at zero are called cut off", "proof/doctor/case.py", "nn.init.normal_(writer.weight, std=0.02)", "pass",
        f"{DOCTOR}::test_branches_that_start_at_zero_are_passed"),
    Mutant("any first loss will do", "proof/doctor/learning.py", "NEAR, FAR = 0.25, 0.4", "NEAR, FAR = 30.0, 100.0", f"{FOUND}[unscaled-init-encoder-decoder]"),
    Mutant("what is never learned counts as slow", "proof/doctor/learning.py", "LEARNED, HARDLY = 0.1, 0.7", "LEARNED, HARDLY = 0.1, 7.0",
        f"{DOCTOR}::test_batch_that_cannot_be_learned"),
    Mutant("labels may stand anywhere", "proof/doctor/targets.py", "if found == {right}:", "if found:", f"{FOUND}[shifted-labels-encoder-decoder]"),
    Mutant("a damaged checkpoint passes", "proof/doctor/files.py", "yield Seen(str(error), DAMAGED)", "yield Seen(str(error))",
        f"{DOCTOR}::test_every_checkpoint_has_a_finding"),
    Mutant("the first checkpoint is all", "proof/doctor/files.py",
        "Seen(str(error), DAMAGED)\n            continue\n", "Seen(str(error), DAMAGED)\n            return\n",
        f"{DOCTOR}::test_every_checkpoint_has_a_finding"),
    Mutant("changed data pass", "proof/doctor/texts.py", "if saved.get(name) != now[name]]", "if saved.get(name) is None]", f"{DOCTOR}::test_changed_data"),
    Mutant("a leak is a warning", "proof/doctor/texts.py", "serious=worst >= LEAKS", "serious=worst > 1", f"{DOCTOR}::test_leak"),
    Mutant("a text may come back as another", "proof/doctor/texts.py", "if UNK not in ids and back.split() != tokenizer.normal(text).split():", "if False:",
        f"{DOCTOR}::test_text_that_does_not_come_back"),
    Mutant("lost data are broken data", "proof/doctor/case.py", "        if gone:", "        if not gone:",
        f"{DOCTOR}::test_data_that_are_gone {DOCTOR}::test_one_file_that_is_gone"),
]
