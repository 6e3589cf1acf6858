"""Score a model: its loss on given targets, and its own answers compared with the right ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from glassformer.base.errors import DataError
from glassformer.data.batch import collate
from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.kinds import LAYOUTS
from glassformer.data.tokens.vocabulary import UNK, Tokenizer
from glassformer.decode.answer import Answer, answer, nothing
from glassformer.decode.beam_settings import ONE_BEAM, BeamSettings
from glassformer.decode.filters import unwritten
from glassformer.decode.prepare import prepared
from glassformer.decode.sampling import GREEDY, Sampling
from glassformer.nn.outputs import Classify
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import Objective, objective_for
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import own_batches, rows_of_all
from glassformer.train.record.events import Metric
from glassformer.train.score.bleu import Choice, bleu_and_chrf
from glassformer.train.score.labels import Details, evaluate_labels
from glassformer.train.score.outputs import mean_loss

BY_LENGTH = "by_length"


class Scores(NamedTuple):
    """The metrics, and the outputs that they were computed from."""

    metrics: dict[str, Metric]
    outputs: list[str]
    details: Details = {}  # noqa: RUF012  (never changed)
    """For labels: metrics by label, and the confusion matrix. For answers: exact match by source length."""


def evaluate_model(
    model: Transformer,
    encoded: Encoded,
    tokenizers: Tokenizers,
    targets: Sequence[str],
    *,
    layout: str = "encoder-decoder",
    max_new_tokens: int | None = None,
    batch_size: int = 128,
    sampling: Sampling = GREEDY,
    search: BeamSettings = ONE_BEAM,
    precision: str = "float32",
    compile: bool = False,
    cache: str = "exact",
    bleu: Choice | None = None,
    objective: Objective | None = None,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> Scores:
    """Scores of free decoding: the model reads only the source and continues from its own tokens.

    - `exact_match`: share of outputs equal to their target, as the tokenizer writes it.
    - `token_accuracy`: share of places with the right token, out of the longer of output and target.
    - `loss`: nats per target token, given the right tokens before it.
    - `n`: number of pairs.
    - `cut`: outputs that reached a limit (max_new_tokens, max_len) before their end.
    - `unknown`, if there are any: tokens of the sources that the vocabulary lacks.
    - `any_match`, if a source has several targets: share of different sources that got one of theirs.
    - `bleu` and `chrf`, with `bleu` (`bleu_choice`): on detokenised text, with their sacrebleu signatures.

    A classifier gets the metrics of `evaluate_labels`. `precision`, `cache` and `compile` apply to the decoding of
    answers (`prepared`); the loss is that of the model as it is. `poll` is called often, between any two tokens; an
    exception that it raises ends the evaluation. If the loss is not finite, it and `n` are the only metrics, because
    such a model has no answers.

    Several processes (`ranks`), each with the whole model, share the batches and get the same scores as one process, to
    the last bit.
    """
    if len(encoded) == 0:
        raise DataError("An evaluation needs at least one pair; got none. Give a file that is not empty.")
    loss, _ = mean_loss(
        model,
        (encoded.source.lengths + encoded.target.lengths).tolist(),
        lambda rows: collate(encoded, rows, layout),
        objective or objective_for(model),
        batch_size=batch_size,
        poll=poll,
        ranks=ranks,
    )
    if not math.isfinite(loss):  # nothing can be drawn from scores that are not numbers
        return Scores({"loss": loss, "n": len(targets)}, [""] * len(targets))
    writes = LAYOUTS[layout].decoder
    if LAYOUTS[layout].head == Classify.kind:
        return Scores(*evaluate_labels(model, encoded, tokenizers, loss, batch_size=batch_size, poll=poll, ranks=ranks))
    answers = shared_answers(
        prepared(model, precision, cache, compile=compile),
        encoded,
        ranks,
        max_new_tokens=max_new_tokens if writes else None,
        batch_size=batch_size,
        lengths=None if writes else encoded.target.lengths.tolist(),
        never=unwritten(writes),
        sampling=sampling,
        search=search,
        poll=poll,
    )
    outputs = [tokenizers.target.decode(each.ids) for each in answers]
    wanted = [as_written(each, tokenizers.target) for each in targets]
    right = [a == b for a, b in zip(outputs, wanted, strict=True)]
    unknown = sum(source.count(UNK) for source in encoded.source)
    metrics: dict[str, Metric] = {
        "exact_match": sum(right) / len(targets),
        "token_accuracy": token_accuracy(answers, encoded),
        "loss": loss,
        "n": len(targets),
        "cut": sum(not each.complete for each in answers),
    }
    metrics |= any_match(encoded, wanted, right)
    metrics |= {"unknown": unknown} if unknown else {}
    lengths = {BY_LENGTH: exact_by_length(encoded.source.lengths.tolist(), right)}
    return Scores(metrics | (bleu_and_chrf(outputs, targets, bleu) if bleu else {}), outputs, lengths)


def shared_answers(
    model: Transformer,
    encoded: Encoded,
    ranks: Ranks,
    *,
    max_new_tokens: int | None,
    batch_size: int,
    lengths: Sequence[int] | None,
    never: Sequence[int],
    sampling: Sampling,
    search: BeamSettings,
    poll: Callable[[], None],
) -> list[Answer]:
    """The answer to each source, whichever process wrote it, without what cut it."""
    rows = sorted(chain.from_iterable(own_batches(encoded.source.lengths, batch_size, ranks)))
    own = answer(
        model,
        [encoded.source[row] for row in rows],
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        lengths=None if lengths is None else [lengths[row] for row in rows],
        never=never,
        sampling=sampling,
        numbers=rows,
        search=search,
        poll=poll,
    )
    told = rows_of_all(rows, [(each.complete, *each.ids) for each in own], ranks)
    return [Answer(ids, bool(complete)) for complete, *ids in told]


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
