"""BLEU and chrF by sacrebleu, with the tokenizer that the script of the references needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.train.record.events import Metric

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff]")
"""Thai, Lao, Tibetan, Burmese and Khmer, which put no space between words."""
LETTER = re.compile(r"[^\W\d_]")
LEAST = 0.2
"""The share of letters from which a script decides: a letter of these weighs about as much as a Latin word."""
EXTRAS = {"ja-mecab": ("MeCab", "ja"), "ko-mecab": ("mecab_ko", "ko")}
"""Tokenizers that need a module, and sacrebleu's extra that installs it."""
ORDER = 4


class Choice(NamedTuple):
    """How BLEU is computed: sacrebleu's tokenizer, whether it stops at the longest n-gram there is, and why."""

    tokenizer: str
    effective_order: bool
    reason: str


def tokenizer_for(references: Iterable[str]) -> tuple[str, str]:
    """The tokenizer of sacrebleu for the script of these texts, and the reason.

    It depends on nothing but the texts, so that two machines compute the same score.
    """
    letters = han = kana = unspaced = 0
    for text in references:
        letters += len(LETTER.findall(text))
        han, kana = han + len(HAN.findall(text)), kana + len(KANA.findall(text))
        unspaced += len(UNSPACED.findall(text))
    least = LEAST * max(letters, 1)
    if han + kana >= least and kana >= 0.1 * (han + kana):
        return "char", "the references are in Japanese (words: data.bleu_tokenizer='ja-mecab')"
    if han >= least:
        return "zh", "the references are in Chinese characters"
    if unspaced >= least:
        return "char", "the references put no spaces between words"
    return "13a", "the references put spaces between words"


def bleu_choice(references: Sequence[str], tokenizer: str = "auto", order: str = "auto") -> Choice:
    """How to compare answers with these references; `tokenizer` and `order` as in `DataConfig`.

    Errors: `ConfigError` for a tokenizer that needs a package which is not installed.
    """
    name, reason = tokenizer_for(references) if tokenizer == "auto" else (tokenizer, "as data.bleu_tokenizer says")
    module, extra = EXTRAS.get(name, ("sacrebleu", ""))
    if find_spec(module) is None:
        raise ConfigError(
            f"data.bleu_tokenizer={name!r} splits words with the package {module}, which is not installed: "
            f"pip install 'sacrebleu[{extra}]'. Or set data.bleu_tokenizer='char', which needs none."
        )
    reason = f"tokenizer {name}: {reason}"
    if order != "auto":
        return Choice(name, order == "effective", reason)
    split = metric_of(Choice(name, False, "")).tokenizer
    if any(len(split(text).split()) >= ORDER for text in references):
        return Choice(name, False, reason)
    few = (
        "no reference has four words, so n-grams are counted up to the longest there is; chrf and exact_match say more"
    )
    return Choice(name, True, f"{reason}; {few}")


def metric_of(choice: Choice, *, lowercase: bool = False) -> BLEU:
    """The measure of sacrebleu."""
    from sacrebleu.metrics.bleu import BLEU  # here, because importing it takes time

    return BLEU(tokenize=choice.tokenizer, lowercase=lowercase, effective_order=choice.effective_order)


def bleu_and_chrf(outputs: Sequence[str], references: Sequence[str], choice: Choice) -> dict[str, Metric]:
    """BLEU (Papineni et al. 2002) and chrF (Popovic 2015), computed by sacrebleu on cased, detokenised text.

    `bleu_lowercase` ignores case, as papers on Multi30k do, whose text is lower-cased. Each has its signature, and
    `bleu_choice` says why BLEU counts as it does.
    """
    from sacrebleu.metrics.chrf import CHRF  # here, because importing it takes time

    scores: dict[str, Metric] = {}
    measures = {"bleu": metric_of(choice), "bleu_lowercase": metric_of(choice, lowercase=True), "chrf": CHRF()}
    for name, measure in measures.items():
        scores[name] = measure.corpus_score(list(outputs), [list(references)]).score
        scores[f"{name}_signature"] = str(measure.get_signature())
    return scores | {"bleu_choice": choice.reason}
