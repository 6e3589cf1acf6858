"""Score a model on a split: its loss, and its answers or labels compared with the right ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.batch import Batch, collate
from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.kinds import LAYOUTS
from glassformer.data.tokens.vocabulary import FIRST_LABEL, UNK, Tokenizer
from glassformer.decode.answer import Answer, Member, answer, ensemble_probabilities, nothing, shared_labels
from glassformer.decode.filters import unwritten
from glassformer.decode.prepare import prepared
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import own_batches, rows_of_all, sum_of_batches
from glassformer.train.records import Metric
from glassformer.train.settings import Settings

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


# Score a model: its loss on given targets, and its own answers compared with the right ones.


class Given(NamedTuple):
    """The head's output for some samples."""

    rows: list[int]
    batch: Batch
    output: Float[Tensor, "B *T N"]
    """On the CPU, as float32."""


Rows = list[int]
Lengths = Sequence[int] | NDArray[np.int64]


class Scoring(NamedTuple):
    """A model that is scored, as its recipe says. Several processes share the work and get the scores of one."""

    model: Transformer
    recipe: Settings
    tokenizers: Tokenizers
    objective: Objective
    poll: Callable[[], None] = nothing
    """Called before each batch and between any two tokens of an answer; an exception that it raises ends the work."""
    ranks: Ranks = ALONE

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def batches(self, lengths: Lengths, batch: Callable[[Rows], Batch]) -> Iterator[tuple[Rows, Batch]]:
        """The batches of this process, as `batches_of` has them."""
        return batches_of(lengths, batch, self.recipe.decode.batch_size, self.poll, self.ranks)


def batches_of(
    lengths: Lengths,
    batch: Callable[[Rows], Batch],
    size: int,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> Iterator[tuple[Rows, Batch]]:
    """The rows of each batch of this process, and what `batch` makes of them; `lengths` are those of all rows."""
    for rows in own_batches(np.asarray(lengths, np.int64), size, ranks):
        poll()
        yield rows, batch(rows)


def outputs(model: Transformer, batches: Iterable[tuple[Rows, Batch]]) -> Iterator[Given]:
    """What the head gives for each batch. Batches do not affect the result."""
    device, evaluation = next(model.parameters()).device, Evaluation(model)
    for rows, made in batches:
        with evaluation, torch.no_grad():
            given = model(made.tokens.to(device), keep=None if made.keep is None else made.keep.to(device))
        yield Given(rows, made, given.float().cpu())


@torch.no_grad()
def mean_loss(scoring: Scoring, lengths: Lengths, batch: Callable[[Rows], Batch]) -> tuple[float, int]:
    """The mean loss over all targets, in nats or as a squared error, and their number."""
    model, objective = scoring.model, scoring.objective
    with Evaluation(model):
        sums: list[float] = []
        counts: list[int] = []
        for _, made in scoring.batches(lengths, batch):
            sums.append(loss_of(model, made.to(scoring.device), objective).nll.item())
            counts.append(objective(made).n_targets)
        count = sum_of_batches(counts, scoring.ranks)
        return sum_of_batches(sums, scoring.ranks) / count, int(count)


BY_LENGTH = "by_length"


class Scores(NamedTuple):
    """The metrics, and the outputs that they were computed from."""

    metrics: dict[str, Metric]
    outputs: list[str]
    details: Details = {}  # noqa: RUF012  (never changed)
    """For labels: metrics by label, and the confusion matrix. For answers: exact match by source length."""


def evaluate_model(scoring: Scoring, encoded: Encoded, targets: Sequence[str], bleu: Choice | None = None) -> Scores:
    """Scores of free decoding: the model reads only the source and continues from its own tokens.

    - `exact_match`: share of outputs equal to their target, as the tokenizer writes it.
    - `token_accuracy`: share of places with the right token, out of the longer of output and target.
    - `loss`: nats per target token, given the right tokens before it.
    - `n`: number of pairs.
    - `cut`: outputs that reached a limit (max_new_tokens, max_len) before their end.
    - `unknown`, if there are any: tokens of the sources that the vocabulary lacks.
    - `any_match`, if a source has several targets: share of different sources that got one of theirs.
    - `bleu` and `chrf`, with `bleu` (`bleu_choice`): on detokenised text, with their sacrebleu signatures.

    The precision, cache and compilation of [decode] apply to the decoding of answers (`prepared`); the loss is that of
    the model as it is. If it is not finite, it and `n` are the only metrics, because such a model has no answers.
    """
    if len(encoded) == 0:
        raise DataError("An evaluation needs at least one pair; got none. Give a file that is not empty.")
    layout, target = scoring.recipe.data.layout, scoring.tokenizers.target
    lengths = encoded.source.lengths + encoded.target.lengths
    loss, _ = mean_loss(scoring, lengths, lambda rows: collate(encoded, rows, layout))
    if not math.isfinite(loss):  # nothing can be drawn from scores that are not numbers
        return Scores({"loss": loss, "n": len(targets)}, [""] * len(targets))
    answers = shared_answers(scoring, encoded, writes=LAYOUTS[layout].decoder)
    outputs = [target.decode(each.ids) for each in answers]
    wanted = [as_written(each, target) for each in targets]
    right = [a == b for a, b in zip(outputs, wanted, strict=True)]
    metrics: dict[str, Metric] = {
        "exact_match": sum(right) / len(targets),
        "token_accuracy": token_accuracy(answers, encoded),
        "loss": loss,
        "n": len(targets),
        "cut": sum(not each.complete for each in answers),
    }
    metrics |= any_match(encoded, wanted, right) | unknown_in(encoded)
    by_length = {BY_LENGTH: exact_by_length(encoded.source.lengths.tolist(), right)}
    return Scores(metrics | (bleu_and_chrf(outputs, targets, bleu) if bleu else {}), outputs, by_length)


def unknown_in(encoded: Encoded) -> dict[str, Metric]:
    """`unknown`: the number of tokens of the sources that the vocabulary lacks, if there are any."""
    unknown = sum(source.count(UNK) for source in encoded.source)
    return {"unknown": unknown} if unknown else {}


def shared_answers(scoring: Scoring, encoded: Encoded, *, writes: bool) -> list[Answer]:
    """The answer to each source, whichever process wrote it. A model `writes` it, or fills in blanks."""
    decode, ranks = scoring.recipe.decode, scoring.ranks
    rows = sorted(chain.from_iterable(own_batches(encoded.source.lengths, decode.batch_size, ranks)))
    own = answer(
        prepared(scoring.model, decode.precision, decode.cache, compile=decode.compile),
        [encoded.source[row] for row in rows],
        max_new_tokens=decode.max_new_tokens if writes else None,
        batch_size=decode.batch_size,
        lengths=None if writes else [len(encoded.target[row]) for row in rows],
        never=unwritten(writes),
        sampling=decode,
        numbers=rows,
        search=decode,
        poll=scoring.poll,
    )
    rows_of_ids = rows_of_all(rows, [(each.complete, *each.ids) for each in own], ranks)
    return [Answer(ids, bool(complete)) for complete, *ids in rows_of_ids]


def exact_by_length(lengths: Sequence[int], right: Sequence[bool]) -> dict[str, dict[str, Metric]]:
    """For each source length that occurs, in order: the share of right answers, and their number."""
    of: dict[int, list[bool]] = {}
    for length, each in sorted(zip(lengths, right, strict=True)):
        of.setdefault(length, []).append(each)
    return {str(length): {"exact_match": sum(each) / len(each), "n": len(each)} for length, each in of.items()}


def any_match(encoded: Encoded, wanted: Sequence[str], right: Sequence[bool]) -> dict[str, Metric]:
    """The share of different sources answered by one of their targets, as `any_match`; empty if each has one target."""
    found: dict[tuple[int, ...], bool] = {}
    targets: set[tuple[tuple[int, ...], str]] = set()
    for source, target, each in zip(map(tuple, encoded.source), wanted, right, strict=True):
        found[source] = found.get(source, False) or each
        targets.add((source, target))
    return {"any_match": sum(found.values()) / len(found)} if len(targets) > len(found) else {}


def as_written(target: str, tokenizer: Tokenizer) -> str:
    """The target as the tokenizer would write it, for example with single spaces; unchanged if it has unknown words.

    An <unk> in the answer then never counts as a match for a word that the vocabulary lacks.
    """
    ids = tokenizer.encode(target)
    return target if UNK in ids else tokenizer.decode(ids)


def token_accuracy(answers: Sequence[Answer], encoded: Encoded) -> float:
    """The share of right tokens, place by place; a place that only output or target has is wrong."""
    right = places = 0
    for given, wanted in zip(answers, encoded.target, strict=True):
        right += sum(a == b for a, b in zip(given.ids, wanted, strict=False))
        places += max(len(given.ids), len(wanted))
    return right / max(places, 1)


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


# Score a classifier: its loss, and its labels compared with the right ones.

Counts = NDArray[np.int64]


def confusion(given: Sequence[int], wanted: Sequence[int], n_labels: int) -> Counts:
    """Confusion matrix [n_labels, n_labels]: how often the row's label was right and the column's was predicted."""
    if len(given) != len(wanted):
        raise DataError(
            f"Each answer is compared with the right one, so both lists must have the same length; got {len(given)} "
            f"answers and {len(wanted)} right ones. Give one right answer for each."
        )
    counts = np.zeros((n_labels, n_labels), np.int64)
    np.add.at(counts, (np.asarray(wanted, np.int64), np.asarray(given, np.int64)), 1)
    return counts


def accuracy(counts: Counts) -> float:
    """The share of right labels."""
    return float(np.trace(counts) / counts.sum())


def rates(right: int, n: int, given: int) -> dict[str, Metric]:
    """How often a label was right (`n`) and predicted (`given`), precision, recall, F1; 0 if undefined.

    F1 = 2 * right / (n + given), the harmonic mean of precision and recall (van Rijsbergen 1979, chapter 7).
    """
    return {
        "n": n,
        "given": given,
        "precision": right / given if given else 0.0,
        "recall": right / n if n else 0.0,
        "f1": 2 * right / (n + given) if n + given else 0.0,
    }


def class_scores(counts: Counts) -> list[dict[str, Metric]]:
    """The `rates` of each label."""
    sums = zip(counts.diagonal().tolist(), counts.sum(1).tolist(), counts.sum(0).tolist(), strict=True)
    return [rates(right, n, given) for right, n, given in sums]


def macro_f1(counts: Counts) -> float:
    """The mean F1 over the labels that occur, right or predicted; each has equal weight, however rare."""
    met = [float(row["f1"]) for row in class_scores(counts) if row["n"] or row["given"]]
    return sum(met) / len(met)


Details = dict[str, dict[str, dict[str, Metric]]]
"""Metrics that need a table rather than a line."""


def evaluate_ensemble(members: Sequence[Member], encoded: Sequence[Encoded], *, batch_size: int = 128) -> Scores:
    """The metrics of `label_scores` for an ensemble; `encoded` are the same texts as each member reads them.

    `loss`: the mean over texts of -ln of the mean probability of the right label; it is at most the mean of the
    members' losses.
    """
    texts = list(zip(*(each.source for each in encoded), strict=True))
    found, wanted = ensemble_probabilities(members, texts, batch_size=batch_size), right_labels(encoded[0])
    loss = -found[range(len(wanted)), wanted].log().mean().item()
    scores = label_scores(found.argmax(-1).tolist(), wanted, shared_labels(members))
    unknown = sum(max(ids.count(UNK) for ids in text) for text in texts)  # of the member that lacks the most
    return scores._replace(
        metrics=scores.metrics | {"loss": loss, "n": len(wanted)} | ({"unknown": unknown} if unknown else {})
    )


def right_labels(encoded: Encoded) -> list[int]:
    """The number of each text's right label."""
    return [id - FIRST_LABEL for (id,) in encoded.target]


def label_scores(given: Sequence[int], wanted: Sequence[int], names: Sequence[str]) -> Scores:
    """Compare the numbers of predicted and right labels: `accuracy`, `macro_f1`, and details for each label."""
    counts = confusion(given, wanted, len(names))
    metrics: dict[str, Metric] = {"accuracy": accuracy(counts), "macro_f1": macro_f1(counts)}
    return Scores(metrics, [names[label] for label in given], details(counts, names))


def details(counts: Counts, names: Sequence[str]) -> Details:
    """By label: counts, precision, recall and F1; and `confusion`, right label -> predicted label -> count."""
    rows = zip(names, counts, strict=True)
    return {
        "labels": dict(zip(names, class_scores(counts), strict=True)),
        "confusion": {name: dict(zip(names, row.tolist(), strict=True)) for name, row in rows},
    }
