"""What a model reads in one step: rows of token ids (or of features), padded on the right, with the padding marked.

sources  [[7, 8, 9], [7]]            Batch.pairs ──▶  source  7 8 9 <eos>        tokens  <bos> 9 8 7 <eos>
targets  [[9, 8, 7], [8]]                                     7 <eos> · ·                <bos> 8 <eos> · ·

sources  [[7, 8]]                    Batch.blanks ──▶ tokens  7 8 <sep> <blank> <blank>
targets  [[8, 7]]                                     labels  · ·   ·      8       7

texts    [[7, 8, 9], [7]]            Batch.labelled ▶  tokens  <bos> 7 8 9          labels  1
labels   [1, 0]                                               <bos> 7 · ·                  0
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.base.tensors import (
    IDS,
    check_beside,
    check_documents,
    check_keep,
    check_prefix,
    check_read,
    check_shape,
)
from glassformer.base.typed import came, expect
from glassformer.data.dataset import Encoded
from glassformer.data.kinds import LABEL
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, FIRST_LABEL, PAD, SEP


def pad(
    sequences: Sequence[Sequence[int]], device: torch.device | None = None
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"] | None]:
    """Pad rows of different lengths with <pad> on the right; also return which ids are real, None without padding."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    width = int(lengths.max(initial=0))
    if width == 0:
        raise DataError(
            f"A batch needs at least one token; got {len(sequences)} sequences without any. "
            f"Give at least one sequence with at least one id."
        )
    real: NDArray[np.bool_] = np.arange(width)[None, :] < lengths[:, None]
    tokens = np.full((len(sequences), width), PAD, np.int64)
    tokens[real] = flat(sequences)
    keep = None if bool(real.all()) else torch.as_tensor(real, device=device)
    return torch.as_tensor(tokens, device=device), keep


def flat(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """All ids, row after row. Errors: `DataError` naming row and place of a value that is not a whole number."""
    try:
        return np.frombuffer(array("q", chain.from_iterable(rows)), np.int64)
    except (TypeError, OverflowError):
        check_rows(rows, "a batch, special tokens included,")
        raise


def check_lists(rows: Sequence[Sequence[object]], name: str) -> None:
    """DataError unless `rows` is a list of lists: text must be encoded first, and a number alone is not a row."""
    for number, row in [(None, rows), *(enumerate(rows) if is_list(rows) else ())]:
        if not is_list(row):
            where = "they are" if number is None else f"row {number} (counted from 0) is"
            raise DataError(
                f"Rows in {name} must be lists of token ids, but {where} {came(row)}. "
                "Encode texts first with tokenizer.encode_all(texts); for a single row, give [ids]."
            )


def is_list(value: object) -> bool:
    """Whether a value has a length and items, and is not text; a tensor with a dimension counts, too."""
    try:
        return not isinstance(value, str | bytes) and len(value) >= 0  # pyright: ignore[reportArgumentType]
    except TypeError:
        return False


def check_rows(rows: Sequence[Sequence[int]], name: str) -> None:
    """`check_lists`, and a DataError for a value that is not a whole number, naming row and place."""
    check_lists(rows, name)
    for number, row in enumerate(rows):
        if are_ids(row):
            continue
        place = next(place for place, id in enumerate(row) if not are_ids([id]))
        raise DataError(
            f"Rows in {name} must hold whole numbers, but row {number} has {came(row[place])} at place {place} "
            "(both counted from 0). Encode the text with the model's tokenizer."
        )


def are_ids(row: Iterable[int]) -> bool:
    """Whether all of these are whole numbers of 64 bits; an array is a fast test."""
    try:
        array("q", row)
    except (TypeError, OverflowError):
        return False
    return True


def check_ids(rows: Sequence[Sequence[int]], vocab_size: int, name: str) -> None:
    """DataError for an id outside the vocabulary, naming row and place in the caller's rows, before any padding.

    Also for rows that are not lists of ids, such as text.
    """
    check_rows(rows, name)
    for row, ids in enumerate(rows):
        if len(ids) and (min(ids) < 0 or max(ids) >= vocab_size):
            place = next(place for place, id in enumerate(ids) if not 0 <= id < vocab_size)
            raise DataError(
                f"Ids in {name} must be from 0 to {vocab_size - 1}, the vocabulary of the model, but row {row}, column "
                f"{place} (counted from 0) holds {ids[place]}. Encode the text with the model's tokenizer."
            )


@dataclass(frozen=True)
class Batch:
    """Rows of ids, and which of them are real tokens. A `keep` of None means all, which keeps the fast kernels.

    >>> from glassformer import Batch
    >>> batch = Batch.pairs([[7, 8, 9], [7]], [[9, 8, 7], [7]])  # ids of two sources and of their targets
    >>> batch.source.tolist()  # with <eos> 2, filled up with <pad> 0
    [[7, 8, 9, 2], [7, 2, 0, 0]]
    >>> batch.keep.tolist()
    [[True, True, True, True, True], [True, True, True, False, False]]
    """

    tokens: Int[Tensor, "B T"] | Float[Tensor, "B T I"]
    """What the model reads: <bos> y1 ... yn <eos> for a decoder, or the encoder's sequence; or features, not ids."""
    keep: Bool[Tensor, "B T"] | None = None
    """True at real tokens."""
    source: Int[Tensor, "B S"] | Float[Tensor, "B S J"] | None = None
    """x1 ... xm <eos>, read by the encoder of an encoder-decoder."""
    source_keep: Bool[Tensor, "B S"] | None = None
    """True at real source tokens."""
    labels: Int[Tensor, "B T"] | Int[Tensor, " B"] | Float[Tensor, "B N"] | Float[Tensor, "B T N"] | None = None
    """What to predict: an id or N numbers per place, a label or N numbers per row. None: the next token; the objective
    shifts."""
    label_keep: Bool[Tensor, "B T"] | None = None
    """True where `labels` counts."""
    documents: Int[Tensor, "B T"] | None = None
    """The document that each token belongs to, if a row holds several that must not read each other."""
    prefix: Int[Tensor, " B"] | None = None
    """How many tokens at the start of each row every token of the row may read, earlier ones too: a prefix LM."""

    def __post_init__(self) -> None:
        check_read("tokens", self.tokens)
        check_marks("keep", self.keep, "tokens", self.tokens)
        if self.source is not None:
            check_read("source", self.source)
            check_beside("source", self.source, "tokens", self.tokens)
        check_marks("source_keep", self.source_keep, "source", self.source)
        check_right("keep", self.keep)
        check_right("source_keep", self.source_keep)
        check_documents(self.documents, self.tokens)
        check_prefix(self.prefix, self.tokens)
        self._check_labels()

    def _check_labels(self) -> None:
        if self.labels is None:
            check_marks("label_keep", self.label_keep, "labels", None)
            return
        expect(self.labels, Tensor, "The labels of a batch", "Give torch.tensor(labels), or use Batch.labelled.")
        check_beside("labels", self.labels, "tokens", self.tokens)
        check_marks("label_keep", self.label_keep, "tokens", self.tokens)
        if in_place(self.labels) and self.labels.shape[:2] != self.tokens.shape[:2]:
            raise DataError(
                f"Labels of {'two' if self.labels.ndim == 2 else 'three'} dimensions belong to each token, so the "
                f"first two must be those of tokens, {list(self.tokens.shape[:2])}; got {list(self.labels.shape)}. "
                f"Give {'[B] for one label' if self.labels.ndim == 2 else '[B, N] for N numbers'} per row."
            )

    @classmethod
    def pairs(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """For an encoder-decoder: `source` and `tokens`, side by side."""
        check_lists(sources, "sources")
        check_lists(targets, "targets")
        _check_same_number(sources, targets)
        source, source_keep = pad([[*ids, EOS] for ids in sources])
        tokens, keep = pad([[BOS, *ids, EOS] for ids in targets])
        return cls(tokens, keep, source, source_keep)

    @classmethod
    def blanks(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """For an encoder alone: [source, <sep>, one <blank> for each target token], to be filled in place."""
        check_lists(sources, "sources")
        check_lists(targets, "targets")
        _check_same_number(sources, targets)
        both = list(zip(sources, targets, strict=True))
        tokens, keep = pad([[*source, SEP, *[BLANK] * len(target)] for source, target in both])
        labels, _ = pad([[*[PAD] * (len(source) + 1), *target] for source, target in both])
        return cls(tokens, keep, labels=labels, label_keep=tokens == BLANK)

    @classmethod
    def labelled(
        cls, texts: Sequence[Sequence[int]], labels: Sequence[int] | Sequence[float] | Sequence[Sequence[float]]
    ) -> Batch:
        """For a head that answers once per sequence: <bos> and the text, with its label, its number or its numbers."""
        check_lists(texts, "texts")
        _check_same_number(texts, labels, "text", "label")
        tokens, keep = pad([[BOS, *ids] for ids in texts])
        return cls(tokens, keep, labels=answers(labels))

    @classmethod
    def tagged(cls, rows: Sequence[Sequence[int]], tags: Sequence[Sequence[int]]) -> Batch:
        """For a head that answers at each token: the tokens alone, with a tag for each of them."""
        check_lists(rows, "rows")
        check_lists(tags, "tags")
        _check_same_number(rows, tags, "row", "list of tags")
        for number, (row, its_tags) in enumerate(zip(rows, tags, strict=True)):
            if len(row) != len(its_tags):
                raise DataError(
                    f"Every token needs one tag, but row {number} (counted from 0) has {len(row)} tokens and "
                    f"{len(its_tags)} tags. Give one tag for each token."
                )
        tokens, keep = pad(rows)
        return cls(tokens, keep, labels=pad(tags)[0])

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        present = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        return replace(self, **{name: tensor.to(device) for name, tensor in present.items()})

    @property
    def n_tokens(self) -> int:
        """Real tokens, of source and target together."""
        return sum(int(keep.sum()) if keep is not None else places(ids) for ids, keep in self._sides())

    @property
    def pad_share(self) -> float:
        """The share of padding, 0 to 1."""
        return 1 - self.n_tokens / sum(places(ids) for ids, _ in self._sides())

    def split(self, n: int) -> list[Batch]:
        """Split into at most `n` micro-batches with nearly equal numbers of rows, in order, or fewer for fewer rows.

        Padding that a part no longer needs is removed.
        """
        if n < 1:
            raise DataError(f"A batch is split into at least 1 part; got n={n}. Try n=1.")
        edges = np.linspace(0, len(self.tokens), min(n, len(self.tokens)) + 1).astype(int).tolist()
        return [self._part(slice(first, last)) for first, last in pairwise(edges)]

    def _part(self, rows: slice) -> Batch:
        keep, here = _still_padded(self.keep, rows)
        source_keep, there = _still_padded(self.source_keep, rows)
        tokens, labels = self.tokens[rows, here], self.labels
        if labels is not None:
            labels = labels[rows, here] if in_place(labels) else labels[rows]
        prefix = None if self.prefix is None else self.prefix[rows].clamp(max=tokens.shape[1])  # the rest was padding
        return Batch(
            tokens=tokens,
            keep=keep,
            source=None if self.source is None else self.source[rows, there],
            source_keep=source_keep,
            labels=labels,
            label_keep=None if self.label_keep is None else self.label_keep[rows, here],
            documents=None if self.documents is None else self.documents[rows, here],
            prefix=prefix,
        )

    def _sides(self) -> list[tuple[Tensor, Tensor | None]]:
        sides = [(self.tokens, self.keep)]
        return sides if self.source is None else [*sides, (self.source, self.source_keep)]


def check_marks(name: str, keep: Tensor | None, marked: str, values: Tensor | None) -> None:
    """Refuse a mask that is not True or False for each place of `values`, or that marks what is missing."""
    check_keep(keep, name)
    if keep is not None and values is None:
        raise DataError(f"{name} needs {marked}, but this batch has none. Give {marked} too, or remove {name}.")
    if values is not None:
        check_shape(name, keep, marked, values)


def in_place(labels: Tensor) -> bool:
    """Whether these are labels of tokens: one per token, or the same number of floats for each."""
    return labels.ndim == (3 if labels.is_floating_point() else 2)


def answers(labels: object) -> Int[Tensor, " B"] | Float[Tensor, "B N"]:
    """Convert labels (whole numbers from 0), or numbers (one or more per text). Errors: `DataError` for all else."""
    try:
        found = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = None
    floats = found is not None and found.is_floating_point() and found.ndim in (1, 2)
    if found is None or not (floats or (found.dtype in IDS and found.ndim == 1)):
        raise DataError(
            f"Labels are whole numbers (one per text) or floats (one per text, or the same number of them for each "
            f"text); got {came(labels)}. Number the classes from 0; if a label is a quantity, write 3.0 for 3."
        )
    if floats:
        return found[:, None] if found.ndim == 1 else found
    if bool((found < 0).any()):
        row = int((found < 0).nonzero()[0])
        raise DataError(
            f"Labels must be at least 0; got {int(found[row])} for text {row} (counted from 0). "
            "Remove texts that have no label."
        )
    return found


def check_right(name: str, keep: Tensor | None) -> None:
    """Refuse padding before a real token, and a row of padding only. Errors: `DataError` naming the row.

    The token after a pad would be a target, and `split` would remove real tokens. On an accelerator nothing is checked,
    because that would cost a wait: batches are made on the CPU.
    """
    if keep is None or keep.device.type != "cpu" or keep.numel() == 0:
        return
    wrong = (keep[:, 1:] & ~keep[:, :-1]).any(1) | ~keep[:, 0]
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(
            f"A row of a batch must begin with its real tokens and end with its padding; got {name} "
            f"{keep[row].tolist()} in row {row} (counted from 0). Pad on the right, as Batch.pairs does, and remove "
            "empty rows."
        )


def places(ids: Tensor) -> int:
    """The number of places in a tensor [B, T] or [B, T, I]."""
    return ids.shape[0] * ids.shape[1]


def _still_padded(keep: Tensor | None, rows: slice) -> tuple[Tensor | None, slice]:
    """These rows' `keep`, cut to their longest and None without padding; and the slice of places that is left."""
    if keep is None:
        return None, slice(None)
    width = int(keep[rows].sum(1).max())
    part = keep[rows, :width]
    return None if bool(part.all()) else part, slice(width)


_BUILD: dict[str, Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Batch]] = {
    "encoder-decoder": Batch.pairs,
    "encoder": Batch.blanks,
    LABEL: lambda texts, labels: Batch.labelled(texts, [label - FIRST_LABEL for (label,) in labels]),
}


def collate(encoded: Encoded, indices: Sequence[int] | NDArray[np.int64], layout: str = "encoder-decoder") -> Batch:
    """The batch of the samples at `indices`, in their order."""
    rows = [int(index) for index in indices]
    build = lookup(_BUILD, layout, "data.layout")
    return build([encoded.source[row] for row in rows], [encoded.target[row] for row in rows])


def _check_same_number(
    sources: Sequence[object], targets: Sequence[object], one: str = "source", other: str = "target"
) -> None:
    if len(sources) != len(targets):
        raise DataError(
            f"Every {one} needs one {other}, but there are {len(sources)} {one}s and {len(targets)} {other}s. "
            f"Give two lists of the same length, where item i of one belongs to item i of the other."
        )
