"""Faults in FlexAttention under our mask, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

FLEX = "tests/attend/test_flex.py"
BLOCKS = f"{FLEX}::test_blocks_are_those_of_the_mask"
PICKED = f"{FLEX}::test_where_it_is_picked"
WAY = f"{FLEX}::test_what_stands_in_its_way"
EQUAL = "tests/contract/test_backends.py::test_backend_equals_reference"
CONFIG = "tests/model/test_attention_settings.py::test_contradictions_are_refused_when_the_config_is_made"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("the kernel is told of other documents", "attend/flex.py",
        "_at(tables[2], b, t) == _at(tables[3], b, s)", "_at(tables[2], b, t) >= _at(tables[3], b, s)", BLOCKS),
    Mutant("the kernel reads padding", "attend/flex.py",
        "keys if mask.keep is None else torch.where(mask.keep, keys, -1)", "keys", BLOCKS),
    Mutant("the kernel reads ahead", "attend/flex.py",
        "(key >= 0) & _before(query, key, prefix, b) if causal else key >= 0", "key >= 0", BLOCKS),
    Mutant("the kernel forgets the pattern", "attend/flex.py",
        "may if pattern is None else may & readable(pattern, query, key)", "may", BLOCKS),
    Mutant("all rows are taken for the first", "attend/flex.py",
        "table[place] if table.ndim == 1 else table[b, place]", "torch.atleast_2d(table)[0, place]", BLOCKS),
    Mutant("a block half of which is hidden counts as whole", "attend/flex.py",
        "pairs == BLOCK * BLOCK", "pairs > BLOCK * BLOCK // 2", BLOCKS),
    Mutant("whole blocks are listed twice", "attend/flex.py",
        "some & ~full", "some", BLOCKS),
    Mutant("blocks that are not read come first", "attend/flex.py",
        "descending=True, stable=True", "descending=False, stable=True", BLOCKS),
    Mutant("a table of all pairs is made to count blocks", "attend/flex.py",
        ".split(ROWS)", ".split(T)", f"{FLEX}::test_no_table_of_all_pairs_is_made"),
    Mutant("each layer counts the blocks of a learned bias again", "attend/flex.py",
        'mask.kept(("flex", T, S, device), build)', 'mask.once(("flex", T, S, device), build)',
        f"{FLEX}::test_blocks_are_made_once_also_where_the_bias_learns"),
    Mutant("FlexAttention scales as it likes", "attend/flex.py",
        "(q * scale, k, v, add, blocks.as_tuple(), 1.0, {})", "(q, k, v, add, blocks.as_tuple(), 1.0, {})", EQUAL),
    Mutant("FlexAttention adds the bias of another head", "attend/flex.py",
        "table[h, t, s] if table.ndim == 3", "table[0 * h, t, s] if table.ndim == 3", EQUAL),
    Mutant("a kernel is compiled at import", "attend/flex.py",
        "def obstacle(", "compiled()\n\n\ndef obstacle(", f"{FLEX}::test_nothing_is_compiled_at_import"),
    Mutant("a missing backward is torch's to tell", "attend/flex.py",
        "if learns and device in FORWARD_ONLY:", "if False:", WAY),
    Mutant("a bias that learns is not looked at", "attend/flex.py",
        "for each in (q, k, v, mask.bias))", "for each in (q, k, v))",
        "tests/contract/test_gradcheck.py::test_bias_of_attend"),
    Mutant("FlexAttention drops in silence", "attend/flex.py",
        "    if dropout:\n", "    if False:\n", WAY),
    Mutant("FlexAttention loses added values in silence", "attend/flex.py",
        '    refuse(mask.value_bias, "flex")\n', "",
        "tests/contract/test_value_bias.py::test_who_hides_the_weights_refuses"),
    Mutant("heads too narrow for the kernel are sent there", "attend/flex.py",
        "(width < NARROWEST or dtype not in DTYPES)", "dtype not in DTYPES", WAY),
    Mutant("one long document counts as packed", "attend/flex.py",
        "LEAST, SHARE = 1024, 0.5", "LEAST, SHARE = 1024, 0.6", PICKED),
    Mutant("auto wants FlexAttention on a processor", "attend/auto.py",
        'if flexible and device == "cuda" and', "if flexible and", PICKED),
    Mutant("auto wants what FlexAttention refuses", "attend/auto.py",
        "k.shape[-2], mask, flexible=flexible", "k.shape[-2], mask, flexible=True", f"{FLEX}::test_auto_leaves_it_where_it_would_refuse"),
    Mutant("attention='flex' with dropout is built", "model/contradictions.py",
        'if config.attention == "flex" and config.attention_dropout:', "if False:", CONFIG),
    Mutant("a run reads its data before it is refused", "train/run/session.py",
        'if recipe.model.attention == "flex":', "if False:", f"{FLEX}::test_a_run_is_refused_before_its_data_is_read"),
]
# fmt: on
