"""Models that were trained are named for what they learned, and one that was not for nothing."""

import json
import random

import pytest
import torch

from glassformer import Batch, Transformer
from glassformer.lens.ablate import Effect, all_heads
from glassformer.lens.roles import THRESHOLDS, Diagnosis, diagnose, induction_probe
from glassformer.lens.roles.diagnosis import Group, verdict, without
from glassformer.lens.roles.probe import next_of_repeated
from lens.learners import IDS, LAYOUTS, backwards, learn, learned, probe_of, repeated, unchanged, untrained


def named(diagnosis: Diagnosis) -> dict[str, str]:
    return {each.id: each.label.label for each in diagnosis.heads if each.label.has_role}


def group(diagnosis: Diagnosis, role: str) -> Group:
    (found,) = [each for each in diagnosis.groups if each.role == role]
    return found


@pytest.fixture(scope="module")
def reversing() -> Transformer:
    return learned("encoder", backwards, 150, 2e-2)


def test_a_model_that_learned_to_reverse_is_told_from_its_heads(reversing):
    found = diagnose(reversing, probe_of("encoder", backwards))
    assert {*named(found).values()} == {"reversal"}
    heads = group(found, "reversal")
    assert all(head[:2] == ("encoder", 1) for head in heads.heads)
    assert heads.share > THRESHOLDS.strong
    assert heads.zero.base > 0.9
    assert heads.zero.value < 0.1
    assert heads.zero.interval[1] < heads.zero.base
    assert "reversal head" in found.sentences[0]
    assert "(encoder 1." in found.sentences[0]
    assert "exact match falls from" in found.sentences[0]


@pytest.mark.parametrize("rule", ["sigmoid", "softmax_plus_one"])
def test_weights_that_do_not_sum_to_one_are_told_as_shares(rule):
    """Under sigmoid, large scores give every key a weight near 1: a row of them is no distribution."""
    model = untrained("encoder", attention_rule=rule)
    for block in model.encoder.blocks if rule == "sigmoid" else []:
        block.self_attention.branch.query.bias.data += 9.0
        block.self_attention.branch.key.bias.data += 9.0
    heads = diagnose(model, probe_of("encoder", backwards), effects=False).heads
    for head in heads:
        assert 0.0 <= head.measured.more["entropy_norm"] <= 1.0 + 1e-6
        assert all(it.mass <= 1.0 + 1e-6 and it.corrected <= 1.0 + 1e-6 for it in head.measured.scores.values())
    totals = [head.measured.more["total"] for head in heads]
    assert min(totals) > 2 if rule == "sigmoid" else max(totals) < 1
    usual = diagnose(untrained("encoder"), probe_of("encoder", backwards), effects=False).heads
    assert [head.measured.more["total"] for head in usual] == pytest.approx([1.0] * len(usual))


def test_the_list_of_heads_is_plain_data(reversing):
    findings = diagnose(reversing, probe_of("encoder", backwards)).to_json()
    assert json.loads(json.dumps(findings, allow_nan=False)) == findings
    head = findings[-1]
    assert (head["id"], head["block"], head["layer"], head["head"]) == ("e.1.1", "encoder", 1, 1)
    assert head["scores"].keys() == head["chance"].keys()
    assert {*head["scores"]} < {*head["raw"]}
    assert {"entropy_norm", "confidence", "sink", "copying_eigenvalues"} < {*head["raw"]}
    assert head["role"]["label"] == "reversal"
    assert (head["role"]["n_sequences"], head["role"]["probe"]) == (60, "test")
    assert head["ablation"].keys() >= {"kind", "metric", "base", "value", "ci95", "n", "verdict"}
    assert (head["ablation"]["kind"], head["ablation_mean"]["kind"]) == ("zero", "mean")
    assert 0 <= head["grad_importance"] <= 1


def test_shuffled_answers_are_no_reversal(reversing):
    """The same model, asked for answers that do not belong to the sources: it reads in reverse, and nothing is lost."""
    probe = probe_of("encoder", lambda source: random.Random(sum(source)).sample(source, len(source)))
    found = diagnose(reversing, probe)
    assert {each.verdict.split(",")[0] for each in found.heads} <= {"nothing to lose", "no pattern", "does it"}


@pytest.mark.parametrize("shape", LAYOUTS)
def test_an_untrained_model_has_no_roles(shape):
    model = untrained(shape)
    found = diagnose(model, probe_of(shape, backwards))
    assert named(found) == {}
    assert found.groups == []
    assert found.sentences[0] == "No head has a known role."
    assert {each.verdict for each in found.heads} == {"nothing to lose"}
    assert "right too rarely" in found.sentences[-1]
    assert len(found.heads) == len(all_heads(model))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "steps"), [("encoder-decoder", 250), ("encoder", 250), ("decoder", 500)])
@pytest.mark.parametrize(("role", "answer"), [("reversal", backwards), ("diagonal", unchanged)])
def test_each_shape_is_told_from_its_heads(shape, steps, role, answer):
    found = diagnose(learned(shape, answer, steps, 2e-2), probe_of(shape, answer))
    wrong = "diagonal" if role == "reversal" else "reversal"
    assert role in named(found).values()
    assert not [each for each in found.heads if each.label.label == wrong and each.label.strength == "strong"]
    heads = group(found, role)
    assert heads.share > THRESHOLDS.strong
    assert heads.zero.base > 0.9
    assert heads.zero.value < 0.2
    assert [each for each in found.heads if each.label.label == role and each.label.strength == "strong"]


@pytest.mark.slow
def test_what_came_before_is_found_by_a_pair_of_heads():
    """Induction: a head reads the previous token, and a later one what came behind the same token (Olsson 2022).

    Whether a model as small as this comes to do it with one pair of heads, or with parts of all four, hangs on what it
    is shown, and on how a processor rounds: of six one has such a pair at least.
    """
    lengths = range(3, 11)  # of few lengths a head would learn how far back to look

    def diagnosed(seed: int) -> Diagnosis:
        draw = random.Random(seed)
        batches = iter(lambda: repeated(draw, 64, lengths), None)
        model = learn(untrained("decoder", positions="rotary"), batches, 600, 2e-2, next_of_repeated)
        return diagnose(model, induction_probe(IDS, lengths, 60))

    pairs = (found for found in map(diagnosed, range(6)) if {"previous", "induction"} <= {*named(found).values()})
    found = next(pairs, None)
    first = min(each.head[1] for each in found.heads if each.label.label == "previous")
    assert first < max(each.head[1] for each in found.heads if each.label.label == "induction")
    assert group(found, "induction").zero.value < 0.5


# --- words


def effect(value: float, drop: tuple[float, float], base: float = 0.998) -> Effect:
    return Effect("zero", "exact_match", base, value, (0.019, 0.049), drop, 1000)


@pytest.mark.parametrize(("role", "loss", "words"), [
    (True, effect(0.03, (0.9, 0.99)), "does it and the task needs it"),
    (True, effect(0.99, (0.0, 0.02)), "does it, not needed alone"),
    (False, effect(0.03, (0.9, 0.99)), "needed, pattern not recognised"),
    (False, effect(0.99, (0.005, 0.02)), "no pattern, not needed alone"),
    (True, effect(0.0, (0.0, 0.01), base=0.05), "nothing to lose"),
])  # fmt: skip
def test_verdicts(role, loss, words):
    assert verdict(role, loss, THRESHOLDS) == words


def test_what_is_lost_in_words():
    assert without(effect(0.031, (0.9, 0.99))) == "without it exact match falls from 99.8 to 3.1 % [1.9, 4.9]"
    assert without(effect(0.99, (-0.01, 0.02))) == "without it exact match goes from 99.8 to 99.0 % [1.9, 4.9]"
    assert without(effect(0.998, (0.0, 0.0)), "them") == "without them exact match stays at 99.8 %"


def test_labels_are_diagnosed_too():
    """A classifier answers once: its figure is the share of right labels."""
    from glassformer import ModelConfig, StackConfig
    from glassformer.lens.roles.probe import pairs_probe
    from glassformer.nn.outputs import Classify
    from glassformer.train.objective import classify

    torch.manual_seed(0)
    stack = StackConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16, dropout=0.0)
    model = Transformer(ModelConfig(IDS.stop, encoder=stack, head=Classify(2)))
    texts = [([*IDS[:4]], [0]), ([*IDS[2:8]], [1])] * 10
    probe = pairs_probe(
        "labels", texts, None, texts, lambda pairs: Batch.labelled([x for x, _ in pairs], [y for _, (y,) in pairs]),
        classify, IDS, metric="accuracy",
    )  # fmt: skip
    found = diagnose(model, probe)
    assert found.heads[0].zero.metric == "accuracy"
    assert found.heads[0].zero.base in (0.0, 0.5, 1.0)
    assert "reversal" not in {each.label.label for each in found.heads if each.label.strength == "strong"}
