"""Faults in the C++ of training: convolutions, dropout, cross-entropy, and attention in bfloat16."""

from __future__ import annotations

from mutant_runner import Mutant

CROSS, CROSS_CPP = "tests/train/test_native_cross_entropy.py", "parts/cpp/cross_entropy.cpp"
CROSS_TOLD = "train/native_cross_entropy.py"
CONV, CONV_CPP, CONV_TOLD = (
    "tests/parts/test_native_convolution.py",
    "parts/cpp/convolution.cpp",
    "parts/trained/native_convolution.py",
)
DROP, DROP_CPP, DROP_TOLD = (
    "tests/parts/test_native_dropout.py",
    "parts/cpp/dropout.cpp",
    "parts/trained/native_dropout.py",
)
HALF, NATIVE = "parts/cpp/bfloat16.h", "parts/native.py"
SUMS, NARROW = f"{CROSS}::test_it_is_what_torch_computes", f"{CROSS}::test_narrow_numbers_are_widened_and_rounded_once"
SAME, ONCE = f"{CONV}::test_it_is_what_torch_computes", f"{CONV}::test_bfloat16_is_rounded_once"
DROPS, LEFT = f"{DROP}::test_it_is_what_torch_computes", f"{DROP}::test_what_it_leaves_to_others"

HALVES = "tests/parts/test_native_attention.py::test_in_bfloat16_it_computes_in_float32_and_rounds_once"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a file of C++ that does not compile", DROP_CPP, "const auto* x = (const From*)of.x;", "const auto* x = of.x;", "tests/parts/test_cpp.py"),

    # bfloat16
    Mutant("bfloat16 is cut, not rounded", HALF, "(bits + 0x7fff + ((bits >> 16) & 1)) >> 16", "bits >> 16", f"{CROSS}::test_gradients_in_bfloat16_are_the_nearest"),
    Mutant("halves are rounded up", HALF, "0x7fff + ((bits >> 16) & 1)", "0x8000", f"{DROP}::test_halves_are_rounded_to_even_and_nan_stays"),
    Mutant("what is no number becomes one when it is rounded", HALF, "x == x ? nearest", "true ? nearest", f"{DROP}::test_halves_are_rounded_to_even_and_nan_stays"),
    Mutant("what a last vector lacks is filled with 0", HALF, "numbers = all<Sums<Number>>(filling)", "numbers = {}", SUMS),
    Mutant("the last numbers of a row are left out", HALF, "if (j < n) each(j, n - j);", "", SUMS),

    # cross-entropy
    Mutant("the largest logit is not taken off", CROSS_CPP, "high = here > high ? here : high;", "high += T(0) * here;", "tests/train/test_cross_entropy.py::test_large_logits_do_not_overflow"),
    Mutant("logits are not weighed by the prior", CROSS_CPP, "means = rows.prior ? fused(", "means = false ? fused(", SUMS),
    Mutant("the mean of logits is their sum", CROSS_CPP, "total(means) / T(rows.V)", "total(means)", SUMS),
    Mutant("C++ smooths by one token's share for all", CROSS_CPP, "read(rows.prior + j, n) * e", "read(rows.prior, n) * e", SUMS),
    Mutant("smoothing takes nothing off the target", CROSS_CPP, "+ (e - T(1));", "- T(1);", SUMS),
    Mutant("the target's gradient is that of its logit's gradient", CROSS_CPP, "    write(gradient + id, all<T>(of_id * scale), 1);", "    write(gradient + id, all<T>((slope(id, 1)[0] + (e - T(1))) * scale), 1);",
        "tests/train/test_cross_entropy.py::test_chunks_give_the_loss_and_gradients_of_whole_logits"),
    Mutant("C++ loses the loss's own factor", CROSS_CPP, "slope(j, n) * scale, n)", "slope(j, n), n)", SUMS),
    Mutant("logits that lie apart are read as if together", CROSS_TOLD, "logits.is_contiguous() and ", "", f"{CROSS}::test_what_it_leaves_to_others"),
    Mutant("logits in float16 are read as others", CROSS_TOLD, "logits.dtype in NAMES and ", "", f"{CROSS}::test_what_it_leaves_to_others"),

    Mutant("all targets are the first token", CROSS_TOLD, "ids.long().contiguous()", "(0 * ids).long().contiguous()", f"{CROSS}::test_it_is_what_torch_computes"),
    Mutant("a prior of another size is read", CROSS_TOLD, "prior.shape == logits.shape[1:]", "True", f"{CROSS}::test_what_it_leaves_to_others"),

    # convolutions
    Mutant("C++ convolves what comes", CONV_CPP, "read(of.x + at - back * of.D + j, n);\n            write", "read(of.x + at + j, n);\n            write", SAME),
    Mutant("padding is convolved", CONV_CPP, "(!real || real[(back - 1) * taps_apart + b * texts_apart + t])", "true", SAME),
    Mutant("all taps have the padding of the first", CONV_CPP, "(back - 1) * taps_apart + ", "", SAME),
    Mutant("gradients of later pieces are left out", CONV_CPP, "t + back < of.T && of.reads", "t + back < end && of.reads", SAME),
    Mutant("a weight learns from tokens that are not read", CONV_CPP, "if (of.reads(b, t, back)) sum", "if (t >= back) sum", SAME),
    Mutant("what padding gives has a gradient", CONV_CPP, "&& of.reads(b, t + back, back))", ")", SAME),
    Mutant("texts share the padding of the first", CONV_TOLD, "T if real[0].numel() > T else 0", "0", SAME),
    Mutant("a convolution has no second derivative", CONV_TOLD, "create_graph=True", "create_graph=False", f"{CONV}::test_its_gradients_have_gradients"),
    Mutant("each evaluation convolves in C++", "parts/convolution.py", "if self.training and native", "if native", f"{CONV}::test_training_leaves_it_to_cpp_and_nothing_else_does"),
    Mutant("convolutions without gradients are left to C++", CONV_TOLD, "torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad) and ", "", f"{CONV}::test_what_it_leaves_to_others"),
    Mutant("padding of other sizes is read", CONV_TOLD, "texts and len(real)", "len(real)", f"{CONV}::test_what_it_leaves_to_others"),
    Mutant("taps of another width are read", CONV_TOLD, "weight.shape[1:] == x.shape[2:] and ", "", f"{CONV}::test_what_it_leaves_to_others"),
    Mutant("taps in other numbers are read", CONV_TOLD, "weight.dtype == torch.promote_types(x.dtype, torch.float32) and ", "", f"{CONV}::test_what_it_leaves_to_others"),

    Mutant("taps without padding are read", CONV_TOLD, "len(real) == len(weight) and ", "", f"{CONV}::test_what_it_leaves_to_others"),
    Mutant("numbers are read as padding", CONV_TOLD, " and real.dtype == torch.bool", "", f"{CONV}::test_what_it_leaves_to_others"),
    Mutant("gradients of a convolution are read as if they lay together", CONV_TOLD, "resolve_neg().contiguous(), of_x", "resolve_neg(), of_x", f"{CONV}::test_gradients_may_lie_in_memory_in_any_way"),
    Mutant("what is frozen is asked for a second derivative", CONV_TOLD, "if need]", "]", f"{CONV}::test_what_is_frozen_gets_none"),

    # dropout
    Mutant("gradients of dropout are read as if they lay together", DROP_TOLD, "of_y.resolve_neg().contiguous()", "of_y.resolve_neg()", f"{DROP}::test_gradients_may_lie_in_memory_in_any_way"),
    Mutant("negated views are read as they lie", NATIVE, " and not each.is_neg()", "", LEFT),
    Mutant("C++ adds nothing", DROP_CPP, "onto ? read(onto + at, n) + share : share", "share", DROPS),
    Mutant("C++ drops by the words of the first vector", DROP_CPP, "load_some<Words>(of.words + at, n)", "load_some<Words>(of.words + first, n)", DROPS),
    Mutant("each piece of dropout is the first", DROP_CPP, "i * PIECE, std::min(of.n, (i + 1) * PIECE)", "0, std::min(of.n, PIECE)", DROPS),
    Mutant("dropout in bfloat16 is rounded before the sum", DROP_CPP, "read(onto + at, n) + share :", "read(onto + at, n) + (Lanes<T>)((Bits)share & 0xffff0000) :" , f"{DROP}::test_bfloat16_is_rounded_once_or_not_at_all"),
    Mutant("dropout reads what lies apart as if together", DROP_TOLD, "x.is_contiguous() and ", "", LEFT),
    Mutant("dropout adds what lies apart as if together", DROP_TOLD, " and onto.is_contiguous()", "", LEFT),
    Mutant("dropout adds what has other sizes", DROP_TOLD, "onto.shape == x.shape and ", "", LEFT),
    Mutant("dropout adds other numbers", DROP_TOLD, "onto.dtype == wide and ", "", LEFT),
    Mutant("dropped numbers have a second derivative of another kind", DROP_TOLD, "(of_y * (coins.words >= coins.zeros) * coins.factor)", "(of_y * coins.factor)", f"{DROP}::test_many_gradients_at_once"),
    Mutant("modes of torch see nothing of what C++ does", NATIVE, "plain and not followed() and ", "plain and ", LEFT),
    Mutant("C++ reads what is not in this machine's memory", NATIVE, 'all(each.device.type == "cpu" for each in given)', "True", LEFT),

    # attention in bfloat16
    Mutant("what a mask adds is rounded to bfloat16", "parts/trained/native_attention.py", "q.new_empty(0, dtype=widened(q.dtype))", "q", HALVES),
    Mutant("what lies behind a query's keys is counted", "parts/cpp/attention.cpp", "weight[s] = -INFINITY, here[s] = 0;", "here[s] = 1;", "tests/parts/test_native_attention.py::test_it_is_what_the_modules_compute_under_every_mask"),
]
# fmt: on
