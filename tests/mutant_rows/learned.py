"""Faults in the attention of training in our C++, and in what is left to it."""

from __future__ import annotations

from mutant_runner import Mutant

LAW, LAYERS = "tests/parts/test_native_attention.py", "tests/parts/test_native_attention_in_layers.py"
MASKED, TURNED = (
    f"{LAW}::test_it_is_what_the_modules_compute_under_every_mask",
    f"{LAW}::test_it_normalises_and_rotates_as_the_modules_do",
)
LEFT = f"{LAYERS}::test_what_it_leaves_to_others"
SIZES, ANGLES, NORMS = (
    f"{LAYERS}::test_sizes_that_do_not_fit_are_left_to_those_who_broadcast_or_refuse",
    f"{LAYERS}::test_angles_that_do_not_fit_are_left_to_those_who_broadcast_or_refuse",
    f"{LAYERS}::test_norms_that_may_change_dtype_or_shape_are_called_themselves",
)
TOLD = "tests/train/run/test_chosen.py::test_our_cpp_is_told_of_where_it_will_learn"
CPP, PYTHON, LAYER = "parts/cpp/attention.cpp", "parts/trained/native_attention.py", "parts/attention.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a query reads one key too many", CPP, "S - call.T_ + t + 1", "S - call.T_ + t + 2", MASKED),
    Mutant("C++ adds nothing to the scores that it learns from", CPP, "weights[i][s] += more[s]", "weights[i][s] += 0 * more[s]", MASKED),
    Mutant("scores are not scaled where they are learned", CPP, "q[i][j] *= T(call.scale)", "q[i][j] *= T(1)", MASKED),
    Mutant("the gradient of queries is not scaled", CPP, "found[i][j] *= T(call.scale)", "found[i][j] *= T(1)", MASKED),
    Mutant("weights are not divided by their sum", CPP, "found[i][j] *= factor[i];", ";", MASKED),
    Mutant("the mean of a softmax's gradient stays", CPP, "(load<Lanes<T>>(here + s) - mean)", "(load<Lanes<T>>(here + s))", MASKED),
    Mutant("what is not read has a gradient", CPP, "weight[s] = here[s] = 0", "weight[s] = 0", MASKED),
    Mutant("what is not read has a weight", CPP, "for (int64_t s = n; s < most; ++s) scores[s] = 0;", "", MASKED),
    Mutant("keys learn from the last block of queries", CPP,
        "near_product(transposed(of_scores), q, of_k, n, most, K, true)", "near_product(transposed(of_scores), q, of_k, n, most, K)", MASKED),
    Mutant("values learn from the last block of queries", CPP,
        "near_product(transposed(weights), of_out, of_v, n, most, K, true)", "near_product(transposed(weights), of_out, of_v, n, most, K)", MASKED),
    Mutant("keys keep the gradient of another text", CPP, "std::fill(of_k[0], of_k[S - 1] + K, T(0));", "", MASKED),
    Mutant("values keep the gradient of another text", CPP, "std::fill(of_v[0], of_v[S - 1] + K, T(0));", "", MASKED),
    Mutant("the first heads stand for all", CPP, "int64_t h = g * (call.H / call.G); h <", "int64_t h = 0; h <", MASKED),
    Mutant("vectors beyond a square are not transposed", CPP, "for (int64_t i = 0; i < K; i += SQUARE)", "for (int64_t i = 0; i < 1; i += SQUARE)", MASKED),
    Mutant("the largest score is not taken off", CPP,
        "- (largest == -INFINITY ? T(0) : largest))", "- T(0))", f"{LAW}::test_scores_of_any_size_are_powers_of_e_relative_to_the_largest"),
    Mutant("the numbers behind a tile are left out", "parts/cpp/products.h",
        "for (int64_t j = 0; j < columns; j += TILE<T>)", "for (int64_t j = 0; j + TILE<T> <= columns; j += TILE<T>)", MASKED),
    Mutant("gradients are rotated on", CPP, "token, g, true)", "token, g)", TURNED),
    Mutant("all texts have the angles of the first", CPP, "text * by.texts_apart + token, y)", "token, y)", TURNED),
    Mutant("the gradient of a norm keeps what its size takes", CPP, "load<Part>(x + i) * mean) * r", "load<Part>(x + i) * T(0)) * r", TURNED),
    Mutant("a norm's weight does not weigh its gradient", CPP, "here * load<Part>(weight + i));", "here);", TURNED),
    Mutant("the weight's gradient is that of the last vector", CPP, "load<Part>(of_weight + i) + here", "here", TURNED),
    Mutant("keys have the norm of queries where they are learned", PYTHON, "zip((of_q, of_k), asked.eps, of_weights", "zip((of_q, of_q), asked.eps, of_weights", TURNED),
    Mutant("one row of angles stands for other texts too", PYTHON, "if texts and texts[0] > 1 else 0", "if texts else 0", f"{LAW}::test_one_row_of_angles_for_many_texts"),
    Mutant("a prefix is hidden", PYTHON, "mask.placed and mask.prefix is None", "mask.placed", MASKED),
    Mutant("columns stand for positions", PYTHON, "not mask.placed and mask.prefix is None", "mask.prefix is None", MASKED),
    Mutant("a query that reads nothing gets a mean", PYTHON,
        "out if lowered is None else lowered.zero_blind(out)", "out", f"{LAW}::test_a_query_that_may_read_nothing_gets_zeros_and_gives_no_gradient"),
    Mutant("a second derivative is none", PYTHON, "create_graph=True", "create_graph=False", f"{LAW}::test_it_can_be_differentiated_twice"),
    Mutant("hooks of all modules see no norm", PYTHON, " or _has_any_global_hook():", ":", f"{LAYERS}::test_hooks_of_norms_see_what_passes"),
    Mutant("hooks of gradients see no norm", PYTHON, ', "_backward_hooks", "_backward_pre_hooks")', ")", f"{LAYERS}::test_hooks_of_norms_see_what_passes"),
    Mutant("hooks of norms see nothing", PYTHON, "any(own[kind] for kind in HOOKS)", "False", f"{LAYERS}::test_hooks_of_norms_see_what_passes"),
    Mutant("a learned bias learns nothing", PYTHON, "(mask.bias is not None and mask.bias.requires_grad)", "False", LEFT),
    Mutant("patterns are read as if they hid nothing", PYTHON, "mask.sparse is None and ", "", LEFT),
    Mutant("some threads have nothing to do", PYTHON, " or len(k) * k.shape[1] < torch.get_num_threads():", ":", LEFT),
    Mutant("angles of other numbers are read as those of queries", PYTHON,
        "and each.dtype == dtype and not each.requires_grad", "and not each.requires_grad", ANGLES),
    Mutant("angles of few tokens are read as those of all", PYTHON, "== T and 2 * pairs", "and 2 * pairs", ANGLES),
    Mutant("more angles than pairs are read", PYTHON, "2 * pairs <= q.shape[3]", "True", ANGLES),
    Mutant("angles of other texts are read", PYTHON, " and texts in ([], [1], [len(q)])", "", ANGLES),
    Mutant("sines are read where there are cosines", PYTHON, " and cos.shape == sin.shape", "", ANGLES),
    Mutant("learned angles learn nothing", PYTHON, " and not each.requires_grad for", " for", f"{LAYERS}::test_learned_angles_get_gradients"),
    Mutant("values of other sizes are read", PYTHON, " and k.shape == v.shape", "", SIZES),
    Mutant("keys of other texts or widths are read", PYTHON, "k.shape[::3] != q.shape[::3] or ", "", SIZES),
    Mutant("heads without a group are read", PYTHON, " or q.shape[1] % k.shape[1]:", ":", SIZES),
    Mutant("a bias of other sizes is read", PYTHON, " or broadcasts(lowered.added.shape, sizes)", " or True", SIZES),
    Mutant("a bias of more dimensions is read", PYTHON, "len(shape) <= len(to) and ", "", SIZES),
    Mutant("norms of other numbers are read", PYTHON, "each.dtype == widened(x.dtype) and each.shape", "each.shape", NORMS),
    Mutant("norms of other sizes are read", PYTHON, " and each.shape == x.shape[-1:]", "", NORMS),
    Mutant("any norm is taken for a known one", PYTHON, "type(norm) not in (nn.Identity, RMSNorm, LayerNorm) or ", "", NORMS),
    Mutant("a norm's own way is not taken", PYTHON, '"forward" in own or ', "", NORMS),
    Mutant("a bias is read as if it lay row by row", PYTHON, "return last_together(added.expand(*added.shape[:-1], sizes[-1])).expand(sizes)", "return added.expand(sizes)",
        f"{LAW}::test_a_bias_may_lie_in_memory_in_any_way"),
    Mutant("weights of norms are read as if they lay together", PYTHON, "norm.weight.contiguous()", "norm.weight", f"{LAW}::test_weights_of_norms_may_lie_in_memory_in_any_way"),
    Mutant("what is given twice gets its gradient twice", PYTHON, "else each.view_as(each) for", "else each for", f"{LAW}::test_what_is_given_twice_gets_the_gradient_of_both_places_once"),
    Mutant("many gradients at once are read by address", "foundation/tracing.py", " or is_legacy_batchedtensor(gradient)", "", f"{LAW}::test_many_gradients_at_once"),
    Mutant("a file that was cut is loaded", "foundation/native.py", 'if path.stem == f"{key}-{digest(path)}":', "if True:", "tests/foundation/test_native.py::test_what_was_damaged_is_compiled_again"),
    Mutant("forward mode meets a softmax of ours", "foundation/tracing.py", "mapped or forward_ad._current_level >= 0", "mapped", "tests/attend/test_softmax.py::test_functions_of_torch_and_forward_mode_follow_it"),
    Mutant("C++ is said to serve a text alone", "train/run/chosen.py", "if needed > 1 else", "if False else", "tests/train/run/test_chosen.py::test_our_cpp_is_told_of_with_the_texts_that_it_needs"),
    Mutant("mapped functions get the numbers of all", "foundation/tracing.py",
        "traced() or is_in", "is_in", f"{LAYERS}::test_it_leaves_alone_what_functions_of_torch_map"),
    Mutant("a watched layer computes by C++", LAYER, 'self.attend is ATTEND["softmax"]["auto"]', "True", f"{LAYERS}::test_a_watched_layer_computes_by_the_steps_that_are_watched"),
    Mutant("a model that is not trained computes by C++", LAYER, "self.training and self.plain", "self.plain", f"{LAYERS}::test_outside_of_training_steps_are_taken_one_by_one"),
    Mutant("C++ drops no weights", LAYER, " and self.dropout == 0", "", f"{LAYERS}::test_a_layer_that_drops_weights_or_names_its_backend_leaves_it_alone"),
    Mutant("C++ is said to learn in narrow numbers", "train/run/chosen.py", "plain and known and", "plain and", TOLD),
    Mutant("C++ is said to drop weights", "train/run/chosen.py", "and chance == 0 ", "", TOLD),
    Mutant("C++ is said to learn a bias", "train/run/chosen.py", "    with watch_attention", "    import torch\n    with torch.no_grad(), watch_attention", TOLD),
]
