"""Faults in the rules of attention, their patterns and the state, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

PATTERN, SPARSE, LINEAR, RULES, STATE = (
    "tests/attend/test_pattern.py",
    "tests/attend/test_sparse.py",
    "tests/attend/test_linear.py",
    "tests/attend/test_rules.py",
    "tests/parts/test_state.py",
)
SPECIFIED = "tests/contract/test_backends.py::test_reference_is_the_equation"
EQUAL = "tests/contract/test_backends.py::test_backend_equals_reference"
ALONE = "tests/contract/test_padding.py::test_each_row_of_a_padded_batch_gets_what_it_gets_alone"
STEPS = "tests/contract/test_cache.py::test_steps_give_the_logits_of_one_forward"
RAGGED = "tests/contract/test_cache.py::test_rows_that_stand_at_different_positions_share_a_batch"
OBSERVE = "tests/lens/test_observe.py::test_weights_are_those_that_the_rule_uses"
CONFIG = "tests/model/test_attention_settings.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # patterns
    Mutant("dilation makes no gaps", "attend/pattern.py",
        "near = near & (back % pattern.dilation == 0)", "pass", PATTERN),
    Mutant("dilation reaches no further", "attend/pattern.py",
        "pattern.window * pattern.dilation", "pattern.window", PATTERN),
    Mutant("sinks are one short", "attend/pattern.py",
        "near | (keys < pattern.sinks)", "near | (keys < pattern.sinks - 1)", PATTERN),
    Mutant("global tokens are read but do not read", "attend/pattern.py",
        " | (queries < pattern.global_tokens)", "", PATTERN),
    Mutant("the stride leaves its column", "attend/pattern.py",
        "back % pattern.stride == 0", "keys % pattern.stride == 0", PATTERN),
    Mutant("the summary is the first of a block", "attend/pattern.py",
        "keys % pattern.block >= pattern.block - pattern.summary", "keys % pattern.block < pattern.summary", PATTERN),
    Mutant("a stride looks ahead", "foundation/pattern.py",
        "if given and not causal:", "if False:", PATTERN),
    Mutant("two local rules are taken", "foundation/pattern.py",
        "if len(given) > 1:", "if len(given) > 2:", PATTERN),
    Mutant("sinks without a window are taken", "foundation/pattern.py",
        "if given and self.window is None:", "if False:", PATTERN),
    Mutant("a query reads other documents", "attend/mask.py",
        "rules.append(self.documents_of_queries(T, S)[:, :, None] == torch.atleast_2d(self.documents)[:, None, :])",
        "pass", PATTERN),
    Mutant("queries take the documents of the first keys", "attend/mask.py",
        "torch.atleast_2d(self.documents)[:, S - T :]", "torch.atleast_2d(self.documents)[:, :T]", SPECIFIED),

    # blocks
    Mutant("the blocks before are forgotten", "attend/sparse.py",
        "[wide.narrow(-3, j, M) for j in range(self.back + 1 + self.ahead)]",
        "[wide.narrow(-3, self.back, M) for j in range(self.back + 1 + self.ahead)]", f"{SPARSE}::test_odd_lengths"),
    Mutant("sinks inside the window count twice", "attend/sparse.py",
        "((q - s).abs() < reach) & (s >= first)", "((q - s).abs() < reach)", f"{SPARSE}::test_each_pair_belongs_to_one_part"),
    Mutant("the stride's column counts the near keys again", "attend/sparse.py",
        "return q - s >= stride", "return q >= s", f"{SPARSE}::test_each_pair_belongs_to_one_part"),
    Mutant("blocks read padding", "attend/sparse.py",
        "allowed = allowed & mask.keep[:, keys]", "pass", f"{SPARSE}::test_odd_lengths"),
    Mutant("blocks read other documents", "attend/sparse.py",
        "(documents[:, keys] == own[:, :, None])", "(documents[:, keys] >= 0)", f"{SPARSE}::test_odd_lengths"),
    Mutant("blocks shift the bias", "attend/sparse.py",
        "gather(-1, keys.expand(", "gather(-1, keys.flip(0).expand(", f"{SPARSE}::test_odd_lengths"),
    Mutant("global queries read their window alone", "attend/sparse.py",
        "n = 0 if mask.causal else min(pattern.global_tokens, S)", "n = 0", f"{SPARSE}::test_odd_lengths"),
    Mutant("blocks take columns for places", "attend/sparse.py",
        "if pattern is None or mask.placed or q.shape[2] != S:", "if pattern is None or q.shape[2] != S:",
        f"{SPARSE}::test_rows_that_stand_anywhere"),
    Mutant("all queries meet all keys", "attend/sparse.py",
        "if pattern is None or mask.placed or q.shape[2] != S:", "if True:", f"{SPARSE}::test_all_scores_are_never_formed"),
    Mutant("left padding is taken for right", "model/stack.py",
        "return bool(((step.keys == columns) | (step.keys < 0)).all())", "return True", ALONE),

    # rules
    Mutant("nothing is added to the denominator", "attend/plus_one.py",
        "F.pad(scores, (0, 1)).softmax(-1)[..., :-1]", "scores.softmax(-1)", SPECIFIED),
    Mutant("plus one is one more of the largest", "attend/plus_one.py",
        "(-largest).exp()", "1.0", EQUAL),
    Mutant("sigmoids have no bias", "attend/sigmoid.py",
        "(scores - n.log()).sigmoid().masked_fill", "scores.sigmoid().masked_fill", SPECIFIED),
    Mutant("sigmoids count padding", "attend/sigmoid.py",
        "n = lowered.allowed.sum(-1, keepdim=True).clamp(min=1).to(wide.dtype)",
        "n = wide.new_tensor(float(wide.shape[-1]))", ALONE),
    Mutant("the cap is twice as high", "attend/softcap.py",
        "cap * (scores / cap).tanh()", "2 * cap * (scores / cap / 2).tanh()", SPECIFIED),
    Mutant("the setting of the cap is lost", "attend/__init__.py",
        'softcap(cap) if rule == "softcap" else', 'softcap() if rule == "softcap" else', RULES),
    Mutant("softmax is shown for every rule", "model/blocks.py",
        "            weigh=weigh,\n", "", OBSERVE),

    # linear attention
    Mutant("features can be negative", "attend/linear.py",
        "x.relu() + x.clamp(max=0).exp()", "x + 1", f"{LINEAR}::test_features_and_back"),
    Mutant("a chunk reads ahead", "attend/linear.py",
        "(q @ k.mT).tril()", "q @ k.mT", EQUAL),
    Mutant("a chunk counts itself twice", "attend/linear.py",
        "own.cumsum(2) - own", "own.cumsum(2)", f"{LINEAR}::test_any_length"),
    Mutant("keys before the queries are forgotten", "attend/linear.py",
        "before = before[:, :, None] + own", "before = own", EQUAL),
    Mutant("sums take padding in", "attend/linear.py",
        "of_k = of_k * keep[:, None, :, None]", "pass", EQUAL),
    Mutant("linear attention drops in silence", "attend/linear.py",
        "    if dropout:\n", "    if False:\n", "tests/contract/test_backends.py"),
    Mutant("all chunks are one", "attend/linear.py",
        "CHUNK = 64", "CHUNK = 1 << 30", f"{LINEAR}::test_memory_grows_with_the_length"),
    Mutant("the state takes padding in", "parts/state.py",
        "of_k = of_k * self.real[:, None, :, None]", "pass", RAGGED),
    Mutant("the state forgets", "parts/state.py",
        "self._sums = self._sums + of_k.mT @ values", "self._sums = of_k.mT @ values", STEPS),
    Mutant("the state is narrow", "parts/state.py",
        "wide = torch.promote_types(k.dtype, torch.float32)", "wide = k.dtype",
        f"{STATE}::test_many_small_numbers_are_kept_in_float32"),
    Mutant("rows of the state stay where they were", "parts/state.py",
        "self._sums = self._sums[rows]", "pass", RAGGED),
    Mutant("an empty state is read", "parts/state.py",
        "torch.where(before > 0, 0, -1)", "torch.where(before >= 0, 0, -1)",
        f"{STATE}::test_steps_say_where_tokens_and_columns_stand"),

    # settings
    Mutant("linear attention with ALiBi is built", "model/contradictions.py",
        "if config.positions in ADDS_TO_SCORES:", "if False:", CONFIG),
    Mutant("linear attention with a window is built", "model/contradictions.py",
        "if config.pattern is not None:\n        raise", "if False:\n        raise", CONFIG),
    Mutant("a recipe gives the encoder what looks back", "model/recipe.py",
        "both | {name: DEFAULTS[name] for name in LOOK_BACK} if two else both", "both", CONFIG),
]
# fmt: on
