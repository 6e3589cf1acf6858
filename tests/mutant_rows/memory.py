"""Faults in what training does with memory, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

RECOMPUTE, LOOP = "tests/model/test_recompute.py", "tests/train/test_loop.py"
MEMORY, SCALE = "tests/train/estimate/test_memory.py", "tests/train/test_loss_scale.py"
OUT, BEFORE = "tests/faults/test_out_of_memory.py", "tests/cli/test_before.py"
RATE, NOISE = "tests/train/estimate/test_find_rate.py", "tests/train/estimate/test_gradient_noise.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # recomputation
    Mutant("recomputation draws other coins", "model/recompute.py",
        "use_reentrant=False)", "use_reentrant=False, preserve_rng_state=False)",
        f"{RECOMPUTE}::test_the_same_bits_in_the_arithmetic_of_training"),
    Mutant("recomputation keeps everything", "model/recompute.py",
        "stack.through = partial(in_groups, size=blocks)", "pass",
        f"{RECOMPUTE}::test_only_what_goes_into_a_group_is_kept"),
    Mutant("every block is a group of its own", "model/recompute.py",
        "partial(in_groups, size=blocks)", "partial(in_groups, size=1)",
        f"{RECOMPUTE}::test_only_what_goes_into_a_group_is_kept"),
    Mutant("the last group leaves out its end", "model/recompute.py",
        "blocks[first : first + size]", "blocks[first : first + size][:size if first + size <= len(blocks) else 0]",
        f"{RECOMPUTE}::test_the_same_bits_in_the_arithmetic_of_training"),
    Mutant("a model goes on recomputing after the with", "model/recompute.py",
        "stack.through = through", "pass", f"{RECOMPUTE}::test_ends_as_it_began_after_an_error"),
    Mutant("training.recompute is not obeyed", "train/loop.py",
        "device), recomputed(model, self.recompute)", "device), recomputed(model, 0)", f"{LOOP}::test_recomputation_is_obeyed"),

    # the estimate
    Mutant("a tensor that is kept twice counts twice", "train/estimate/memory.py",
        "if reference.cdata not in seen:", "if True:", f"{MEMORY}::test_what_a_forward_keeps_is_seen"),
    Mutant("weights count as activations", "train/estimate/memory.py",
        "seen = {StorageWeakRef(each.untyped_storage()).cdata: None for each in (*model.parameters(), *model.buffers())}",
        "seen: dict[int, None] = {}", f"{MEMORY}::test_what_a_forward_keeps_is_seen"),
    Mutant("recomputed blocks count as kept", "train/estimate/memory.py",
        "each.stream if recompute and each.stack is not None else sum(each.kept)", "sum(each.kept)",
        f"{MEMORY}::test_the_fullest_moment_by_hand"),
    Mutant("no gradient passes through the backward", "train/estimate/memory.py",
        "size if each.stack is None else 2 * size", "0", f"{MEMORY}::test_the_fullest_moment_by_hand"),
    Mutant("a group goes on into the next stack", "train/estimate/memory.py",
        " and grouped[-1].stack == each.stack", "", f"{MEMORY}::test_groups"),
    Mutant("the optimizer's state is not looked at", "train/estimate/memory.py",
        "sum(each.nbytes for each in state) if state else 2 * gradients", "2 * gradients",
        f"{MEMORY}::test_weights_gradients_and_optimizer_are_counted"),
    Mutant("narrow products need no memory", "train/estimate/memory.py",
        'kernels = 0 if precision == "float32" else compiled_products(model)', "kernels = 0",
        f"{MEMORY}::test_narrow_products_are_compiled_once_for_each_shape"),
    Mutant("what is weighed goes on in training", "train/estimate/memory.py",
        "model.train(training)", "pass", f"{MEMORY}::test_what_is_weighed_is_as_before"),
    Mutant("--json alone trains", "cli/train.py",
        'if "json" in arguments.options and not asked:', "if False:", f"{BEFORE}::test_json_alone_is_refused"),

    # memory that runs out
    Mutant("memory that ran out is a bug of ours", "train/run/out_of_memory.py",
        "isinstance(error, GlassformerError) or not is_out_of_memory(error)", "True", f"{OUT}::test_before_the_first_checkpoint"),
    Mutant("every error is one of memory", "train/run/out_of_memory.py",
        "if isinstance(error, GlassformerError) or not is_out_of_memory(error):", "if False:",
        f"{OUT}::test_another_error_stays_what_it_is"),

    # float16
    Mutant("an overflow is learned from", "train/loop.py",
        "                return nll / n_targets, norm\n", "                pass\n",
        f"{SCALE}::test_what_overflows_is_skipped_and_counted"),
    Mutant("gradients stay scaled", "train/loop.py",
        "self.loss_scale.unscale(optimizer)", "pass", f"{SCALE}::test_gradients_are_of_the_loss_itself"),
    Mutant("skipped updates never end", "train/loss_scale.py",
        "if self.in_a_row >= MOST_SKIPPED:", "if False:", f"{SCALE}::test_twenty_in_a_row_are_a_divergence"),
    Mutant("a row of skipped updates never ends", "train/loss_scale.py",
        "0 if finite else self.in_a_row + 1", "self.in_a_row + (not finite)",
        f"{SCALE}::test_what_overflows_is_skipped_and_counted"),
    Mutant("the scale begins anew after a stop", "train/run/running.py",
        "self.loss_scale.load(so_far.loss_scale)", "pass", f"{SCALE}::test_a_run_resumes_to_the_same_bits"),

    Mutant("an overflow uses up what may be left out", "train/loop.py",
        "skip_nonfinite == 0 or loss_scale or ", "skip_nonfinite == 0 or ",
        f"{SCALE}::test_twenty_in_a_row_are_a_divergence"),
    Mutant("recomputation needs to be allowed", "train/run/changes.py",
        "(*FILES, *SAME_BITS)", "FILES", f"{OUT}::test_what_helps_is_said_and_nothing_is_lost"),
    Mutant("an average takes no memory", "train/estimate/memory.py",
        "2 * sum(each.nbytes for each in model.parameters()) if average else 0", "0",
        f"{MEMORY}::test_what_is_held_besides_is_counted"),
    Mutant("a checkpoint in the background takes no memory", "train/estimate/memory.py",
        "weights + held + averaged if copied else 0", "0", f"{MEMORY}::test_what_is_held_besides_is_counted"),

    # before a run
    Mutant("rates rise by one summand", "train/estimate/find_rate.py",
        "self.least * (self.peak / self.least) ** ((step - 1) / max(1, self.steps - 1))",
        "self.least + (self.peak - self.least) * ((step - 1) / max(1, self.steps - 1))",
        f"{RATE}::test_rates_rise_by_one_factor"),
    Mutant("the test moves the model's own weights", "train/estimate/find_rate.py",
        "copy.deepcopy(model)", "model", f"{RATE}::test_what_is_found"),
    Mutant("the smoothed loss begins at 0", "train/estimate/find_rate.py",
        "mean / (1 - MEMORY**report.number)", "mean", f"{RATE}::test_what_is_found"),
    Mutant("the noise of the batch counts as gradient", "train/estimate/gradient_noise.py",
        "whole - variance / targets", "whole", f"{NOISE}::test_a_quadratic_with_a_known_answer"),
    Mutant("pieces weigh by their mean size", "train/estimate/gradient_noise.py",
        "sum(1 / each for each in sizes) / len(sizes)", "len(sizes) / sum(sizes)",
        f"{NOISE}::test_a_quadratic_with_a_known_answer"),
]
