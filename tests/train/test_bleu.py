"""How BLEU splits words: by the script of the references; against sacrebleu's own words."""

import pytest
from sacrebleu.metrics import BLEU

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.train.evaluate import Choice, bleu_and_chrf, bleu_choice, tokenizer_for
from glassformer.train.run.resumable import Best
from glassformer.train.run.running import deciding, rank, still_constant
from glassformer.train.tasks.pairs import Pairs

REFERENCES = {
    "13a": ["The cat sits on the mat.", "나는 오늘 학교에 갔습니다.", "Кошка сидит на ковре.", "القط يجلس على السجادة"],
    "zh": ["猫坐在垫子上。", "我们用 PyTorch 训练模型。", "吾輩"],
    "char": ["猫がマットの上に座っている。", "แมวนั่งอยู่บนเสื่อ", "ឆ្មាអង្គុយលើកន្ទេល", "ကြောင်က ဖျာပေါ်မှာ", "ネコ"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in REFERENCES.items() for text in texts])
def test_the_script_decides(name, text):
    assert tokenizer_for([text, "1999", ""])[0] == name
    assert tokenizer_for([])[0] == "13a"


@pytest.mark.parametrize("text", [REFERENCES["zh"][0], "แมวนั่งอยู่บนเสื่อ", "猫がマットの上に座っている。"])
def test_right_answers_without_spaces_have_100_bleu(text):
    texts = [text, text[:5] + text[-1:]]
    assert BLEU().corpus_score(texts, [texts]).score == 0.0
    choice = bleu_choice(texts)
    scores = bleu_and_chrf(texts, texts, choice)
    assert scores["bleu"] == pytest.approx(100)
    assert f"tok:{choice.tokenizer}" in str(scores["bleu_signature"])
    assert choice.tokenizer in str(scores["bleu_choice"])


def test_short_references_are_scored_up_to_the_longest_and_say_so():
    texts = ["HH AA", "B", "K D IY"]
    choice = bleu_choice(texts)
    assert choice.effective_order
    assert "no reference has four words" in choice.reason
    scores = bleu_and_chrf(texts, texts, choice)
    assert scores["bleu"] == pytest.approx(100)
    assert "eff:yes" in str(scores["bleu_signature"])
    assert bleu_choice(texts, order="full") == Choice("13a", False, choice.reason.split(";")[0])
    assert not bleu_choice([*texts, "A B C D"]).effective_order
    assert bleu_choice(["A B C D"], order="effective").effective_order


def test_a_setting_comes_first_and_what_is_not_installed_is_refused_by_name(monkeypatch):
    assert bleu_choice(["猫坐在垫子上"], "char").tokenizer == "char"
    monkeypatch.setattr("glassformer.train.evaluate.find_spec", lambda name: None if name == "mecab_ko" else name)
    with pytest.raises(ConfigError, match=r"'ko-mecab'.*mecab_ko, .* pip install 'sacrebleu\[ko\]'"):
        bleu_choice(["나는 학교에 갔습니다"], "ko-mecab")
    for settings, words in (
        ({"bleu_tokenizer": "zn"}, "Did you mean 'zh'"),
        ({"bleu_order": "3"}, "'effective'"),
        ({"task": "copy", "bleu_tokenizer": "zh"}, "data.task='pairs'"),
    ):
        with pytest.raises(ConfigError, match=words):
            DataConfig(**settings)


def test_where_a_metric_never_moves_another_decides_and_is_named():
    evaluations = [
        {"bleu": 0.0, "chrf": 10.0, "exact_match": 0.0, "loss": 2.0, "bleu_signature": "nrefs:1"},
        {"bleu": 0.0, "chrf": 40.0, "exact_match": 0.0, "loss": 1.0},
        {"bleu": 0.0, "chrf": 30.0, "exact_match": 0.5, "loss": 0.5},
    ]
    best, seen = Best(), []
    for step, metrics in enumerate(evaluations):
        constant = still_constant(best, metrics)
        if best.step is None or rank(metrics, "bleu", Pairs) > rank(best.metrics, "bleu", Pairs):
            best = Best(step, metrics)
        best = best._replace(constant=constant)
        seen.append(deciding(best, "bleu", Pairs))
    assert best.step == 1, "by chrf, though the loss was lower later"
    assert seen == ["", *["bleu is 0.0000 at every evaluation, so chrf decides which is best"] * 2]
    assert deciding(best, "exact_match", Pairs) == "", "it has moved"
    assert deciding(best._replace(constant=still_constant(best, {"bleu": 3.0})), "bleu", Pairs) == ""
