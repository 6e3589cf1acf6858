"""Faults in the checks, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

PLANTED, RIGHT = (
    "tests/proof/test_check_planted.py::test_mistake_is_named",
    "tests/proof/test_check_planted.py::test_right_code_passes",
)
FILE, OTHER = "tests/proof/test_check_file.py", "tests/proof/test_check_notebooks.py"
FLAWS = "tests/proof/test_laws.py::test_a_notebook_without_its_flaw_is_seen"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("the first reading is always right", "proof/check/reading.py", "if gap <= tolerance:", "if True:", PLANTED),
    Mutant("readings are compared too closely", "proof/check/reading.py", "if gap <= tolerance:", "if gap < 0:", RIGHT),
    Mutant("a shape that differs is no difference", "proof/check/reading.py",
        "if one.shape != other.shape:\n        return float(\"inf\")", "if one.shape != other.shape:\n        return 0.0", PLANTED),
    Mutant("one mistake at a time", "proof/check/reading.py", "MOST_MISTAKES = 2", "MOST_MISTAKES = 0", PLANTED),
    Mutant("what needs a failed property is probed", "proof/check/table.py",
        "if root is not None:\n            done", "if False:\n            done", PLANTED),
    Mutant("hidden keys are tried with low scores only", "proof/check/mask.py",
        "LEVELS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)", "LEVELS = (10,)", PLANTED),
    Mutant("the empty row is not empty", "proof/check/mask.py", "(torch.arange(T)[:, None] > 0)", "(torch.arange(T)[:, None] >= 0)", PLANTED),
    Mutant("an order of unnamed maps is a mistake", "proof/check/split.py", "wrong = ROLES if named else None", "wrong = ROLES", OTHER),
    Mutant("an order of named maps is none", "proof/check/split.py", "wrong = ROLES if named else None", "wrong = None", PLANTED),
    Mutant("fused maps are cut in thirds only", "proof/check/split.py", '("thirds", "by head", "by number")', '("thirds",)', OTHER),
    Mutant("dropout is probed in evaluation", "proof/check/heads.py", "learner.module.train()", "learner.module.eval()", PLANTED),
    Mutant("float16 leaves its rounding behind", "proof/check/heads.py", ".load_state_dict(before)", "", OTHER),
    Mutant("of two structures any is taken", "proof/check/structure.py", "min(found, key=oddity)", "found[0]", OTHER),
    Mutant("any error past max_len is a refusal", "proof/check/positions.py", '.startswith(("raise", "assert"))', '.startswith("")', PLANTED),
    Mutant("the learner's line is ours", "proof/check/table.py", "if not outside(each.filename)", "if outside(each.filename)", FILE),
    Mutant("code that ends Python passes", "proof/check/child_process.py",
        'raise DataError(f"{path}: its code ended', 'return {"pieces": [], "left_out": []}\n        raise DataError(f"{path}: its code ended', FILE),
    Mutant("a failure is as bad as a bad file", "proof/check/child_process.py", "return 3 if fails else 0", "return 2 if fails else 0", FILE),
    Mutant("large first logits pass", "proof/check/language_model.py", "FAR = 1.0", "FAR = 1e9", PLANTED),
    Mutant("a tied matrix is a head of its own", "proof/check/language_model.py",
        "any(maps[-1].weight is table.weight for table in tables)", "False", PLANTED),
    Mutant("a leak of one token is any leak", "proof/check/language_model.py", "NEXT if only_next else FUTURE", "FUTURE", PLANTED),
    Mutant("the cache is tried a token at a time", "proof/check/model_cache.py",
        "gap = distance(learner.in_parts(CHUNKS), learner.seen)", "gap = 0.0", PLANTED),
    Mutant("a table of positions is read anywhere", "proof/check/model_cache.py",
        "if distance(whole, learner.seen[:, PLACE]) > SAME >= distance(again, step):", "if True:", PLANTED),
    Mutant("sines in float32 are a mistake", "proof/check/rotary.py", "TOLERANCE = 1e-4", "TOLERANCE = 1e-12", RIGHT),
    Mutant("only one pairing is right", "proof/check/rotary.py", 'Choice(("halves", "halves")),', "", OTHER),
    Mutant("positions of padding are taken as they are", "proof/check/packing.py",
        "if low >= 0 and high < KEEP.shape[1]:", "if True:", PLANTED),
    Mutant("documents stand in order", "proof/check/packing.py",
        "[[2, 2, 0, 0, 0, 1], [5, 3, 3, 3, 4, 4]]", "[[0, 0, 1, 1, 1, 2], [3, 4, 4, 4, 5, 5]]", PLANTED),
    Mutant("any first token is a start", "proof/check/translate.py", "if first == [BOS]:", "if len(first) == 1:", PLANTED),
    Mutant("a flaw that is gone is still shown", "proof/laws/notebook_flaws.py",
        "return 0.0 if flaw else math.inf", "return 0.0", FLAWS),
    Mutant("ours at an empty row is not looked at", "proof/laws/notebook_flaws.py",
        "yield apart(answer[1], ours.output.bias.expand(T, D))  # zeros, mapped",
        "yield apart(answer[1], ours.output.bias.expand(T, D) + 1)", FLAWS),
    Mutant("imported functions are the learner's", "proof/check/inside.py", '("torch", "glassformer")', "()", FILE),
    Mutant("what is no row of ids ends the check of the file", "proof/check/decode.py",
        "except (TypeError, ValueError, RuntimeError):", "except KeyError:", f"{FILE}::test_a_result_of_another_kind_is_a_verdict_of_its_own"),
    Mutant("a stack without a gradient ends the check of the file", "proof/check/stack.py",
        "if not output.requires_grad:", "if False:", f"{FILE}::test_a_result_of_another_kind_is_a_verdict_of_its_own"),
    Mutant("what no probe foresaw ends the check of the file", "proof/check/inside.py",
        "except Exception as error:  # what it", "except KeyError as error:  # what it", f"{FILE}::test_what_no_probe_foresaw_stops_its_own_piece_alone"),
]
