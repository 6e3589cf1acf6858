"""Faults that show where the model is on an accelerator."""

from __future__ import annotations

from mutant_runner import Mutant

ELSEWHERE = "tests/lens/test_elsewhere.py"
TRACE, PATCHING, HEADS = (f"{ELSEWHERE}::test_{name}" for name in ("a_trace", "patching", "heads_and_their_means"))

# fmt: off
ROWS: list[Mutant] = [
    Mutant("the logit lens is in float64 on the device", "lens/trace/steps.py",
        "[0].cpu().double()", "[0].double().cpu()", TRACE),
    Mutant("a beam's tree is in float64 on the device", "lens/trace/beams.py",
        "logits.cpu().double()", "logits.double()", TRACE),
    Mutant("a beam adds up on the device", "decode/choose/likely.py",
        "values.cpu().double(), ids.cpu()", "values.double(), ids.cpu()", TRACE),
    Mutant("what is drawn is in float64 on the device", "decode/choose/draw.py",
        "return pick(in_float64(logits)", "return pick(logits.double()", f"{ELSEWHERE}::test_what_is_drawn"),
    Mutant("a patched answer is scored on the device", "lens/patch.py",
        "(hidden[:, places]).cpu().double()", "(hidden[:, places]).double()", PATCHING),
    Mutant("the probe stays where it was made", "lens/roles/measure.py",
        "    batch = batch.to(next(model.parameters()).device)\n", "", HEADS),
    Mutant("what is scored stays where it was made", "lens/effect.py",
        "[batch.to(device) for batch in batches]", "[*batches]", HEADS),
    Mutant("what gradients are taken of stays where it was made", "lens/importance.py",
        "(each.to(device) for each in batches)", "batches", HEADS),
    Mutant("outcomes stay on the device", "lens/effect.py",
        "torch.cat(each).cpu()", "torch.cat(each)", HEADS),
]
