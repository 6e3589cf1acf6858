"""Faults in the foundation and in attention, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

REGISTRY = "src/glassformer/foundation/registry.py"  # its examples are its tests
RUNTIME, MASK, AUTO = "tests/foundation/test_runtime.py", "tests/attend/test_mask.py", "tests/attend/test_auto.py"
BACKENDS = "tests/contract/test_backends.py"
SPECIFIED, EQUAL = f"{BACKENDS}::test_reference_is_the_equation", f"{BACKENDS}::test_backend_equals_reference"
BLIND = f"{BACKENDS}::test_a_query_that_may_read_nothing_gets_zeros"
COINS = f"{BACKENDS}::test_dropout_falls_on_the_weights"
NARROW = f"{BACKENDS}::test_narrow_numbers_stay_near_the_wide_reference"
CAUSALITY, PADDING = "tests/contract/test_causality.py", "tests/contract/test_padding.py"
ALONE = f"{PADDING}::test_each_row_of_a_padded_batch_gets_what_it_gets_alone"
STEPS = "tests/contract/test_cache.py::test_steps_give_the_logits_of_one_forward"
GRADCHECK, SHAPES = "tests/contract/test_gradcheck.py", "tests/parts/test_shapes.py"
MODEL = "tests/model/test_transformer.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # foundation
    Mutant("an unknown name is answered without the nearest", "foundation/registry.py",
        "if nearest else text", "if False else text", REGISTRY),
    Mutant("an unknown name is answered without the known ones", "foundation/registry.py",
        '", ".join(repr(each) for each in names)', '"many"', REGISTRY),
    Mutant("the field is not named", "foundation/registry.py",
        'f"{what}={name!r} is not', 'f"{name!r} is not', REGISTRY),
    Mutant("a far-fetched name is suggested", "foundation/registry.py",
        "cutoff=0.5", "cutoff=0.0", "tests/foundation/test_registry.py"),
    Mutant("a diverged run ends like bad input", "foundation/errors.py",
        "exit_code = 4", "exit_code = 2", "tests/foundation/test_errors.py"),
    Mutant("more threads than pay", "foundation/runtime.py",
        "min(allowed, USUAL_THREADS)", "allowed", RUNTIME),
    Mutant("a bound thread has one processor", "foundation/processors.py",
        "if of_openmp is None else max(of_this_thread, of_openmp())", "", "tests/foundation/test_runtime.py::test_threads_that_are_bound_have_all_processors_still"),
    Mutant("a device out of reach is chosen", "foundation/runtime.py",
        "torch.empty(0, device=device).is_meta", "device.type == 'meta'", RUNTIME),

    # softmax over few keys
    Mutant("the pull of the row's sum is forgotten", "attend/softmax.py",
        "(weighted - wide * weighted.sum(-1, keepdim=True))", "weighted",
        "tests/attend/test_softmax.py::test_equals_torch"),
    Mutant("the logarithm of 0 has a gradient", "attend/linear.py",
        "torch.where(y > 0, y, 1.0).clamp(max=1).log()", "y.clamp(max=1).log()",
        "tests/parts/test_state.py::test_padding_alone_has_no_gradient_and_makes_none_nan"),
    Mutant("gradients of short rows are rounded before they are subtracted", "attend/softmax.py",
        "wide = weights.to(torch.promote_types(weights.dtype, torch.float32))", "wide = weights",
        "tests/attend/test_softmax.py::test_gradients_of_narrow_numbers_are_as_exact_as_torch_computes_them"),
    Mutant("large scores overflow", "attend/softmax.py",
        "(wide - wide.amax(-1, keepdim=True)).exp_()", "wide.exp()", "tests/attend/test_softmax.py::test_equals_torch"),
    Mutant("short bfloat16 rows are summed in bfloat16", "attend/softmax.py",
        "torch.promote_types(scores.dtype, torch.float32)", "scores.dtype",
        "tests/attend/test_softmax.py::test_narrow_numbers_are_summed_in_float32"),
    Mutant("the scores are overwritten", "attend/softmax.py",
        "(wide - wide.amax(-1, keepdim=True)).exp_()", "wide.sub_(wide.amax(-1, keepdim=True)).exp_()",
        "tests/attend/test_softmax.py::test_the_scores_are_left_as_they_were"),

    # the mask
    Mutant("causal queries read one token ahead", "attend/mask.py",
        "before = places[0] >= places[1]", "before = places[0] >= places[1] - 1",
        f"{CAUSALITY}::test_a_changed_token_leaves_earlier_logits_bit_equal"),
    Mutant("gradients flow back in time", "attend/mask.py",
        "before = places[0] >= places[1]", "before = places[0] >= places[1] - 1", f"{CAUSALITY}::test_no_gradient_reaches_a_later_token"),
    Mutant("the window is one too wide", "attend/pattern.py",
        "back.abs() < pattern.window", "back.abs() <= pattern.window", MASK),
    Mutant("the window looks back only", "attend/pattern.py",
        "back.abs() < pattern.window", "back < pattern.window", f"{CAUSALITY}::test_a_window_reaches_as_far_as_it_says"),
    Mutant("padding in the source is read", "attend/mask.py",
        "rules.append(self.keep[:, None, :])", "rules.append(torch.ones_like(self.keep)[:, None, :])", ALONE),
    Mutant("keys at no position are read", "attend/mask.py",
        "torch.atleast_2d(self.key_positions >= 0)", "torch.atleast_2d(self.key_positions >= -1)", ALONE),
    Mutant("padding is learned from", "attend/mask.py",
        "torch.atleast_2d(self.key_positions >= 0)", "torch.atleast_2d(self.key_positions >= -1)",
        f"{PADDING}::test_a_padded_batch_learns_what_its_rows_learn"),
    Mutant("keys at no position are read in a cache with room to spare", "attend/mask.py",
        "torch.atleast_2d(self.key_positions >= 0)", "torch.atleast_2d(self.key_positions >= -1)", SPECIFIED),
    Mutant("queries are the first of the keys", "attend/mask.py",
        "queries = torch.arange(S - T, S, device=device)", "queries = torch.arange(T, device=device)", STEPS),
    Mutant("a blind query divides by zero", "attend/mask.py",
        "torch.where(allowed | blind, zeros", "torch.where(allowed, zeros", BLIND),
    Mutant("a blind query reads everything", "attend/mask.py",
        "output if self.blind is None else output.masked_fill(self.blind, 0.0)", "output", BLIND),
    Mutant("a row of nothing but padding is NaN", "attend/mask.py",
        "torch.where(allowed | blind, zeros", "torch.where(allowed, zeros",
        f"{PADDING}::test_a_row_of_padding_alone_harms_nobody"),
    Mutant("more queries than keys are taken to see", "attend/mask.py",
        "return T <= S and all(", "return all(", EQUAL),
    Mutant("the bias gets lost in a causal mask", "attend/mask.py",
        "zeros = like.new_zeros(()) if bias is None else bias", "zeros = like.new_zeros(())", EQUAL),
    Mutant("the bias that learns is lowered once", "attend/mask.py",
        "return build() if self.bias is not None and self.bias.requires_grad else self.kept", "return self.kept", MASK),
    Mutant("one mask for every dtype", "attend/mask.py",
        '(T, S, like.dtype, like.device)', '(T, S, like.device)', MASK),
    Mutant("a causal mask with a window is taken for a causal one", "attend/mask.py",
        "others = (self.sparse, self.keep, self.bias, self.value_bias, self.documents, self.prefix)",
        "others = (self.keep, self.bias, self.value_bias, self.documents, self.prefix)", MASK),
    Mutant("a mask of keys hides nothing", "attend/mask.py",
        "self.value_bias, self.key_positions, self.documents)", "self.value_bias, self.documents)", MASK),
    Mutant("a keep of numbers is taken", "foundation/tensors.py",
        'getattr(keep, "dtype", None) != torch.bool', "keep.is_complex()", f"{MASK} {MODEL}::test_a_keep_of_numbers_is_refused"),
    Mutant("a window of zero is taken", "foundation/pattern.py",
        "self.window < 1", "self.window < 0", MASK),
    Mutant("a shape is not said", "attend/mask.py",
        'Float[Tensor, "*#batch H T S"]', "Tensor", SHAPES),

    # the backends
    Mutant("the reference does not scale", "attend/reference.py",
        "return q @ k.mT * scale", "return q @ k.mT", SPECIFIED),
    Mutant("the reference subtracts the bias", "attend/reference.py",
        "scores + mask.bias", "scores - mask.bias", SPECIFIED),
    Mutant("the reference lets a blind query read", "attend/reference.py",
        ".softmax(-1).masked_fill(~allowed, 0.0)", ".softmax(-1)", BLIND),
    Mutant("the reference deals key heads out in turn", "attend/reference.py",
        "x.repeat_interleave(n_heads // x.shape[1], dim=1)", "x.repeat(1, n_heads // x.shape[1], 1, 1)", SPECIFIED),
    Mutant("the reference drops nothing", "attend/reference.py",
        "F.dropout(attention_weights(q, k, mask, scale=scale), dropout)",
        "attention_weights(q, k, mask, scale=scale)", COINS),
    Mutant("matmul does not scale", "attend/matmul.py",
        "(q * scale)", "q", EQUAL),
    Mutant("matmul deals heads out in turn", "attend/matmul.py",
        "(q * scale).reshape(B, G, H // G * T, K)",
        "(q * scale).view(B, H // G, G, T, K).transpose(1, 2).reshape(B, G, H // G * T, K)", EQUAL),
    Mutant("matmul forgets the mask", "attend/matmul.py",
        "softmax(scores if lowered.added is None else scores + lowered.added)", "softmax(scores)", EQUAL),
    Mutant("matmul lets a blind query read", "attend/matmul.py",
        "return lowered.zero_blind(output)", "return output", BLIND),
    Mutant("matmul drops nothing", "attend/matmul.py",
        "F.dropout(normalise(scores, lowered).to(v.dtype), dropout)", "normalise(scores, lowered).to(v.dtype)", COINS),
    Mutant("matmul rounds its weights", "attend/matmul.py",
        "normalise(scores, lowered).to(v.dtype)", "normalise(scores, lowered).bfloat16().to(v.dtype)", NARROW),
    Mutant("matmul hides a slope", "attend/matmul.py",
        "scores = (grouped @ k.mT)", "scores = (grouped @ k.detach().mT)", f"{GRADCHECK}::test_attend"),
    Mutant("the fused kernel counts from the first key", "attend/sdpa.py",
        "mask.only_causal and T in (1, S)", "mask.only_causal and T <= S", EQUAL),
    Mutant("the fused kernel hides all but the first key from one query", "attend/sdpa.py",
        "causal = mask.causal and T > 1", "causal = mask.causal", EQUAL),
    Mutant("the fused kernel scales as it likes", "attend/sdpa.py",
        "attn_mask=lowered.added, scale=scale", "attn_mask=lowered.added", EQUAL),
    Mutant("the fused kernel drops nothing", "attend/sdpa.py",
        "is_causal=causal, scale=scale, dropout_p=dropout", "is_causal=causal, scale=scale", COINS),
    Mutant("the fused kernel lets a blind query read", "attend/sdpa.py",
        "return lowered.zero_blind(output)", "return output", BLIND),
    Mutant("the crossing is one off", "attend/auto.py",
        "T * S <= MATMUL_UP_TO", "T * S < MATMUL_UP_TO", AUTO),
    Mutant("auto runs the other one", "attend/auto.py",
        '"matmul": matmul, "sparse": sparse, "sdpa": sdpa, "flex"',
        '"matmul": sdpa, "sparse": sparse, "sdpa": matmul, "flex"', AUTO),
]
# fmt: on
