"""Faults in what makes decoding fast: the growing cache, joined maps, rounded weights."""

from __future__ import annotations

from mutant_runner import Mutant

CACHE, STEPS = "tests/parts/test_cache.py", "tests/contract/test_cache.py"
INT8, PREPARE = "tests/parts/test_int8.py", "tests/decode/test_prepare.py"
MASK = "tests/attend/test_mask.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("the growing cache forgets its first columns when it moves", "parts/cache.py",
        "            room[:, :, : self.used] = old[:, :, : self.used]\n", "            room.zero_()\n", CACHE),
    Mutant("the growing cache writes over the last column", "parts/cache.py",
        "room[:, :, self.used : end] = new", "room[:, :, self.used - 1 : end - 1] = new", CACHE),
    Mutant("the growing cache moves at every step", "parts/cache.py",
        "room.new_empty(B, G, 2 * end, K)", "room.new_empty(B, G, end, K)", f"{CACHE}::test_a_growing_cache_seldom_moves"),
    Mutant("the growing cache shows its empty columns", "parts/cache.py",
        "return k[:, :, : self.used], v[:, :, : self.used]", "return k, v", CACHE),
    Mutant("the growing cache writes over what a backward reads", "parts/cache.py",
        "elif torch.is_grad_enabled():", "elif False:", f"{CACHE}::test_gradients_go_through_a_growing_cache"),
    Mutant("rows of a cache change places", "parts/cache.py",
        "self._held[0].index_select(0, rows), self._held[1].index_select(0, rows)",
        "self._held[0].index_select(0, rows), self._held[1].index_select(0, rows.flip(0))",
        f"{STEPS}::test_rows_that_stand_at_different_positions_share_a_batch"),
    Mutant("keys of a memory move with every beam", "parts/cache.py",
        "if not torch.equal(self._memories, before):", "if True:", f"{CACHE}::test_keys_of_a_memory_move_only_where_a_row_reads_another_one"),
    Mutant("which memory a row reads is forgotten", "parts/cache.py",
        "        self._memories = before[rows]\n        if not torch.equal(self._memories, before):", "        if not torch.equal(before[rows], before):",
        f"{CACHE}::test_keys_of_a_memory_move_only_where_a_row_reads_another_one"),
    Mutant("a placed query alone reads all", "attend/mask.py",
        "(T > 1 or self.placed)", "T > 1", MASK),
    Mutant("a lone last query gets a mask", "attend/mask.py",
        "(T > 1 or self.placed)", "True", MASK),
    Mutant("joined maps are cut elsewhere", "parts/attention.py",
        ".split([inner, shared, shared], dim=-1)", ".split([shared, inner, shared], dim=-1)", f"{PREPARE}::test_joined_projections_change_nothing"),
    Mutant("key and value of a joined map change places", "decode/prepare.py",
        "[attention.query, attention.key, attention.value]", "[attention.query, attention.value, attention.key]",
        f"{PREPARE}::test_joined_projections_change_nothing"),
    Mutant("joined maps have no bias", "decode/prepare.py",
        "        joined.bias = nn.Parameter(torch.cat(biases), requires_grad=False)\n", "        joined.bias = None\n",
        f"{PREPARE}::test_joined_projections_change_nothing"),
    Mutant("the model itself is rounded", "decode/prepare.py",
        "made = copy.deepcopy(model).to(torch.bfloat16)", "made = model.to(torch.bfloat16)", f"{PREPARE}::test_the_model_stays_as_it_is"),
    Mutant("the head is left as it was", "decode/prepare.py",
        "if isinstance(made.head, Head):", "if False:", f"{PREPARE}::test_int8_leaves_no_linear_map_but_routers"),
    Mutant("routers are rounded", "decode/prepare.py",
        "if not isinstance(module, Experts):", "if True:", f"{PREPARE}::test_int8_leaves_no_linear_map_but_routers"),
    Mutant("auto takes bfloat16 everywhere", "decode/prepare.py",
        "if has_bfloat16(next(model.parameters()).device) else model", "", f"{PREPARE}::test_auto_takes_bfloat16_where_it_is_fast"),
    Mutant("answers are written with other weights than asked for", "train/use.py",
        "prepared(loaded.model, recipe.decode.precision), recipe", "loaded.model, recipe", "tests/train/test_use.py"),
    Mutant("scores are those of other weights than asked for", "train/evaluate.py",
        "prepared(model, precision),", "model,", "tests/train/test_use.py"),
    Mutant("texts are written with other weights than asked for", "train/writing.py",
        "prepared(loaded.model, recipe.decode.precision), loaded", "loaded.model, loaded", "tests/train/test_writing.py"),
    Mutant("weights are cut off, not rounded", "parts/int8.py",
        "(wide / scale[:, None]).round()", "(wide / scale[:, None]).trunc()", f"{INT8}::test_weights_are_rounded_to_half_a_step"),
    Mutant("one step for all rows", "parts/int8.py",
        "largest = wide.abs().amax(1)", "largest = wide.abs().amax().expand(len(wide))", f"{INT8}::test_weights_are_rounded_to_half_a_step"),
    Mutant("a row of zeros is divided by zero", "parts/int8.py",
        "torch.where(largest > 0, largest / LARGEST, 1.0)", "largest / LARGEST", f"{INT8}::test_a_row_of_zeros_stays_zero"),
    Mutant("the product reads beyond its rows", "parts/int8.py",
        "VECTOR = 16\n", "VECTOR = 1\n", INT8),
    Mutant("an int8 map has no bias", "parts/int8.py",
        "y if self.bias is None else y + self.bias", "y", f"{INT8}::test_the_product_is_that_of_the_rounded_weights"),
]
