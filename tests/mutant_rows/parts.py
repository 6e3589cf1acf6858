"""Faults in the parts, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

CACHE, GRADCHECK = "tests/contract/test_cache.py", "tests/contract/test_gradcheck.py"
STEPS, RAGGED = (
    f"{CACHE}::test_steps_give_the_logits_of_one_forward",
    f"{CACHE}::test_rows_that_stand_at_different_positions_share_a_batch",
)
TORCH_MHA, TORCH = "tests/parity/test_torch_attention.py", "tests/parity/test_torch_transformer.py"
ENCODER_LAYER, DECODER_LAYER = f"{TORCH}::test_block_equals_encoder_layer", f"{TORCH}::test_block_equals_decoder_layer"
BRANCHES, DROPOUT, POSITIONS = (f"tests/parts/test_{part}.py" for part in ("branches", "dropout", "positions"))
PART_CACHE, VOCABULARY = "tests/parts/test_cache.py", "tests/parts/test_vocabulary.py"
MODEL, CONFIG, COMPILE = (f"tests/model/test_{part}.py" for part in ("transformer", "config", "compile"))

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # attention and the branches
    Mutant("scores are divided by the width, not by its root", "parts/attention.py",
        "self.d_head**-0.5", "self.d_head**-1.0", TORCH_MHA),
    Mutant("heads are cut across", "parts/attention.py",
        "x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)", "x.unflatten(-1, (self.d_head, -1)).permute(0, 3, 1, 2)",
        TORCH_MHA),
    Mutant("queries are not turned", "parts/attention.py",
        "q = rotate(self.heads(self.query(x)), rotation)", "q = self.heads(self.query(x))",
        "tests/parts/test_rotary.py::test_attention_with_rotary_reads_distances"),
    Mutant("cross-attention reads its own stream", "parts/attention.py",
        "source = x if source is None else source", "source = x", TORCH_MHA),
    Mutant("attention drops weights in evaluation", "parts/attention.py",
        "self.dropout if self.training else 0.0", "self.dropout", f"{MODEL}::test_evaluation_is_deterministic"),
    Mutant("attention dropout is forgotten", "parts/attention.py",
        "self.dropout if self.training else 0.0", "0.0", f"{DROPOUT}::test_each_setting_reaches_its_place"),
    Mutant("values hide their slope", "parts/attention.py",
        "v = self.heads(self.value(source))", "v = self.heads(self.value(source.detach()))",
        f"{GRADCHECK}::test_self_attention"),
    Mutant("the memory is projected at every step", "parts/cache.py",
        "return self._held is not None", "return False", f"{CACHE}::test_the_memory_is_projected_once {PART_CACHE}"),
    Mutant("a block reads the padding of its memory", "parts/block.py",
        "mask=memory_mask or Mask()", "mask=Mask()", DECODER_LAYER),
    Mutant("a block without a memory reads itself", "parts/block.py",
        "if memory is None:", "if False:", BRANCHES),
    Mutant("the feed-forward runs twice", "parts/block.py",
        "x = self.self_attention(x, mask=mask, rotation=rotation, cache=cache)",
        "x = self.feed_forward(self.self_attention(x, mask=mask, rotation=rotation, cache=cache))", ENCODER_LAYER),
    Mutant("the feed-forward is linear", "parts/feed_forward.py",
        "self.activation(self.up(x))", "self.up(x)", ENCODER_LAYER),
    Mutant("feed-forward dropout is forgotten", "parts/feed_forward.py",
        "self.down(self.dropout(self.activation(self.up(x))))", "self.down(self.activation(self.up(x)))",
        f"{DROPOUT}::test_each_setting_reaches_its_place"),
    Mutant("gelu_tanh is gelu", "parts/feed_forward.py",
        'F.gelu(x, approximate="tanh")', "F.gelu(x)", BRANCHES),
    Mutant("the norm has no bias", "parts/norm.py",
        "self.weight, self.bias, self.eps", "self.weight, None, self.eps", ENCODER_LAYER),
    Mutant("the norm has an eps of its own", "parts/norm.py",
        "self.weight, self.bias, self.eps", "self.weight, self.bias, 1e-5", BRANCHES),
    Mutant("the norm stays wide under autocast", "parts/norm.py",
        "if torch.is_autocast_enabled(device) else y", "if False else y", BRANCHES),
    Mutant("the residual adds to the normalised stream", "parts/residual.py",
        "self.norm_sum(x + self.dropout(self.branch(self.norm_in(x), **inputs)))",
        "self.norm_sum(self.norm_in(x) + self.dropout(self.branch(self.norm_in(x), **inputs)))", ENCODER_LAYER),
    Mutant("post-norm normalises the branch alone", "parts/residual.py",
        "self.norm_sum(x + self.dropout(self.branch(self.norm_in(x), **inputs)))",
        "x + self.norm_sum(self.dropout(self.branch(self.norm_in(x), **inputs)))", DECODER_LAYER),
    Mutant("the residual drops nothing", "parts/residual.py",
        "self.norm_sum(x + self.dropout(self.branch(self.norm_in(x), **inputs)))",
        "self.norm_sum(x + self.branch(self.norm_in(x), **inputs))", BRANCHES),

    # dropout
    Mutant("a coin has a side too many", "parts/dropout.py",
        ">= zeros(p) - 32_768", "> zeros(p) - 32_768", f"{DROPOUT}::test_the_chance_is_exact_over_all_words"),
    Mutant("what stays is not enlarged", "parts/dropout.py",
        "x * (1.0 / kept)", "x", f"{DROPOUT}::test_share_of_zeros_and_mean"),
    Mutant("coins do not follow the seed", "parts/dropout.py",
        "np.random.SFC64(seed)", "np.random.SFC64(None)", f"{DROPOUT}::test_a_seed_gives_the_same_coins"),
    Mutant("the same coins in every call", "parts/dropout.py",
        "int(torch.empty((), dtype=torch.int64).random_())", "7", f"{DROPOUT}::test_a_seed_gives_the_same_coins"),
    Mutant("the gradient is not scaled", "parts/dropout.py",
        "x * (1.0 / kept)", "x + x.detach() * (1.0 / kept - 1.0)", f"{DROPOUT}::test_gradient_is_the_mask"),
    Mutant("coins in evaluation", "parts/dropout.py",
        "if not self.training or self.p == 0.0:", "if self.p == 0.0:",
        f"{DROPOUT}::test_nothing_in_evaluation_or_without_chance"),
    Mutant("a chance near 1 divides by zero", "parts/dropout.py",
        "min(round(p * 65_536), 65_535)", "round(p * 65_536)", f"{DROPOUT}::test_nearly_everything_may_be_dropped"),

    # the cache
    Mutant("new keys come before the old", "parts/cache.py",
        "torch.cat([self._held[0], k], dim=2)", "torch.cat([k, self._held[0]], dim=2)", PART_CACHE),
    Mutant("the fixed cache writes to the same columns", "parts/cache.py",
        "        self.used = end\n", "", STEPS),
    Mutant("unwritten columns are read", "parts/cache.py",
        "torch.where(columns < end, columns, -1)", "columns",
        f"{PART_CACHE}::test_steps_say_where_tokens_and_keys_stand"),
    Mutant("padding takes a position", "parts/cache.py",
        "positions = last + real.long().cumsum(1)", "positions = last + torch.ones_like(tokens).cumsum(1)", RAGGED),
    Mutant("rows that leave take the wrong positions with them", "parts/cache.py",
        "self._ragged = self._ragged[rows]", "self._ragged = self._ragged[: len(rows)]", RAGGED),
    Mutant("the keys of the memory do not leave", "parts/cache.py",
        "for layer in (*self.layers, *self.cross):", "for layer in self.layers:",
        f"{CACHE}::test_select_before_rows_differ"),
    Mutant("a full cache goes on", "parts/cache.py",
        "if self.capacity is not None and end > self.capacity:", "if False:", PART_CACHE),
    Mutant("a refused step counts", "model/stack.py",
        "        self._check_length(step)\n        if cache is not None:\n            cache.advance(step)\n",
        "        if cache is not None:\n            cache.advance(step)\n        self._check_length(step)\n", PART_CACHE),

    # vocabulary and positions
    Mutant("a negative id is looked up from the end", "parts/vocabulary.py",
        "if smallest >= 0 and largest", "if largest", VOCABULARY),
    Mutant("row and column change places", "parts/vocabulary.py",
        "row, column = ((tokens", "column, row = ((tokens", VOCABULARY),
    Mutant("embeddings are not scaled", "parts/vocabulary.py",
        "vectors * self.scale", "vectors", VOCABULARY),
    Mutant("the head has no bias", "parts/vocabulary.py",
        "F.linear(x, self.weight, self.bias)", "F.linear(x, self.weight)", VOCABULARY),
    Mutant("the tracer meets a question about values", "parts/vocabulary.py",
        " and not torch.compiler.is_compiling()", "", COMPILE),
    Mutant("sine and cosine change places", "parts/positions/absolute.py",
        "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]", POSITIONS),
    Mutant("all sines come before all cosines", "parts/positions/absolute.py",
        "torch.stack([angle.sin(), angle.cos()], dim=-1)", "torch.stack([angle.sin(), angle.cos()], dim=-2)",
        POSITIONS),
    Mutant("an odd width has a speed of its own", "parts/positions/absolute.py",
        "-math.log(10_000.0) / self.room.d_model)", "-math.log(10_000.0) / (self.room.d_model // 2 * 2 or 1))",
        POSITIONS),
    Mutant("angles are computed in few bits", "parts/positions/absolute.py",
        "torch.promote_types(like.dtype, torch.float32)", "like.dtype",
        f"{POSITIONS}::test_sinusoidal_in_narrow_numbers"),
    Mutant("alibi rewards distance ahead", "parts/positions/bias.py",
        "keys[..., None, :]).abs()", "keys[..., None, :])", POSITIONS),
    Mutant("alibi fills up twelve heads in its own way", "parts/positions/bias.py",
        "range(0, 2 * (n_heads - lower), 2)", "range(n_heads - lower)", POSITIONS),
]
# fmt: on
