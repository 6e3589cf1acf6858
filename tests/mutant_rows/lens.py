"""Faults in direct logit attribution and in activation patching."""

from __future__ import annotations

from mutant_runner import Mutant

TERMS, PATCH = "tests/lens/test_attribute.py", "tests/lens/test_patch.py"
SUM = f"{TERMS}::test_terms_sum_to_the_logit"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a frozen norm keeps the mean", "lens/attribute.py",
        "return weighted - weighted.mean(-1, keepdim=True), pull @ norm.bias", "return weighted, pull @ norm.bias", SUM),
    Mutant("a frozen norm has no bias", "lens/attribute.py",
        "weighted.mean(-1, keepdim=True), pull @ norm.bias", "weighted.mean(-1, keepdim=True), none", SUM),
    Mutant("a norm is frozen without its epsilon", "lens/attribute.py",
        "(seen.square().mean(-1, keepdim=True) + norm.eps).rsqrt()", "seen.square().mean(-1, keepdim=True).rsqrt()", SUM),
    Mutant("the scale of the residual is left out", "lens/attribute.py",
        "pull = pull * each.branch.scale", "pull = pull", f"{TERMS}::test_scales_and_the_bias_of_the_head_count"),
    Mutant("the scale of the head is left out", "lens/attribute.py",
        "head.weight[asked] * head.scale", "head.weight[asked]", f"{TERMS}::test_scales_and_the_bias_of_the_head_count"),
    Mutant("heads take each other's columns", "lens/attribute.py",
        'enumerate(each)}, constant', 'enumerate(each.flip(0))}, constant', f"{TERMS}::test_a_head_of_the_last_block_is_its_term"),
    Mutant("hooks stay behind", "lens/attribute.py",
        "            hook.remove()", "            pass", f"{TERMS}::test_the_model_is_as_before"),
    Mutant("a patch falls on the next place", "lens/patch.py",
        "x[:, chosen] = kept.streams[where][chosen].to(x)", "x[:, chosen] = kept.streams[where].roll(1, 0)[chosen].to(x)", f"{PATCH}::test_with_all_inputs_of_the_streams_it_is_the_other_run"),
    Mutant("the input is never patched", "lens/patch.py",
        "replace[0](x) if 0 in replace else x", "x", f"{PATCH}::test_with_all_inputs_of_the_streams_it_is_the_other_run"),
    Mutant("a patch stays behind", "lens/patch.py",
        'undo.callback(setattr, attention, "attend", attention.attend)', "None", f"{PATCH}::test_without_a_patch_it_is_itself_also_afterwards"),
    Mutant("rows of a batch share a patch", "lens/patch.py",
        "x[rows, entries] = given[entries].to(x)", "x[:, entries] = given[entries].to(x)", f"{PATCH}::test_each_effect_is_that_of_the_patch_alone"),
    Mutant("effects are not shares", "lens/patch.py",
        "(torch.cat(found) - b) / (a - b)", "torch.cat(found) - b", f"{PATCH}::test_the_place_that_differs_brings_all_back"),
    Mutant("inputs of unlike lengths are patched", "lens/patch.py",
        "    refuse_unlike(one, other)\n", "", f"{PATCH}::test_mistakes"),
]
