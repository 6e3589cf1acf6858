"""Probes the data: whether they can be read, survive the tokenizer, overlap between splits, or are too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from glassformer.data.config import SPLITS
from glassformer.data.running.text import Overlap, Part, overlap
from glassformer.data.tokens.vocabulary import ANYWHERE, UNK, Tokenizer
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case, TextCase, TrajectoryCase
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.store.checkpoint import Loaded
from glassformer.train.tasks.pairs import PairsSplit

SAMPLE = 1000
"""How many texts per side are encoded and decoded."""
OFTEN_UNKNOWN, LEAKS, LONGER = 0.05, 0.1, 1.25
"""Thresholds of the probes.

OFTEN_UNKNOWN: share of unknown tokens for a warning. LEAKS: share of leaked pairs for a failure. LONGER: a sequence
longer than the longest in training by this factor gets a warning.
"""

CHANGED = Ailment(
    "the data have changed since training",
    "A file was changed, or replaced, since the checkpoint was saved.",
    "Restore the old file, or train again; figures from before and after cannot be compared.",
)
UNREADABLE = Ailment(
    "the data cannot be read",
    "A file has changed since training; it could be read then.",
    "Fix the line that is named, or restore the old file.",
)
NOT_BACK = Ailment(
    "a text does not come back from its ids",
    "The tokenizer decodes to another text than it encoded, so answers cannot be right.",
    "Use tokenizer.kind='bpe' or 'byte', which keep every character, or clean the text.",
)
UNKNOWN = Ailment(
    "many tokens are unknown",
    "The vocabulary was built from other text, or tokenizer.min_count is too high.",
    "Use tokenizer.kind='bpe', or lower tokenizer.min_count.",
)
LEAKED = Ailment(
    "dev or test sources are also in the training data",
    "The splits were made from text that repeats itself.",
    "Remove from the training data what is in dev and test; scores on memorised text mean little.",
)
IN_DEV = Ailment(
    "much of the test data is also in the dev data",
    "The splits were made from text that repeats itself, or are one file.",
    "Remove from test what is in dev; the best checkpoint is the one that is best on dev, so it is no news to it.",
)
TOO_LONG = Ailment(
    "a sequence is longer than the model takes",
    "model.max_len is below the longest sequence.",
    "Raise model.max_len and train again, or remove the long pairs.",
)
LONGER_THAN_EVER = Ailment(
    "sequences are longer than any in training",
    "The model never saw the last positions in training.",
    "Train on longer sequences, or expect worse answers there; positions='rotary' or 'alibi' suffer less.",
)


def as_in_training(case: Case, read: Callable[[str], tuple[str, str]], unit: str = "") -> Iterator[Seen]:
    """Read the splits that the recipe names, and check that they are those used in training.

    `read` returns how large a split is, and its digest.
    """
    evidence, missing, digests = list[str](), list[str](), dict[str, str]()
    for name in SPLITS:
        try:
            size, digests[name] = read(name)
        except NotTestedError as reason:
            if "cannot be read" in str(reason):
                yield Seen(str(reason), UNREADABLE)
                return
            missing.append(str(reason))
            continue
        evidence.append(size)
    if not evidence:
        raise NotTestedError(missing[0])
    found = ", ".join(evidence)
    data = case.loaded.state.get("data") if isinstance(case.loaded, Loaded) else None
    saved: dict[str, Any] = data if isinstance(data, dict) else {}
    compared = [name for name in ("train", "dev") if saved and name in digests]
    if changed := [name for name in compared if saved.get(name) != digests[name]]:
        yield Seen(f"the digest of {' and '.join(changed)} has changed; {found}{unit} now", CHANGED)
        return
    found += ", with the same digests as in training" if compared else ""
    gone = [each for each in missing if "names no" not in each]
    yield Seen("; ".join([found, *gone[:1]]))


def readable(case: Case) -> Iterator[Seen]:
    """Read pairs."""

    def sized(name: str) -> tuple[str, str]:
        split = case.split(name)
        return f"{len(split.pairs):,} {name}", split.encoded.digest() if name == "train" else split.digest()

    return as_in_training(case, sized, " pairs")


def round_trip(case: Case) -> Iterator[Seen]:
    """Encode and decode training and dev texts."""
    evidence, unknown = list[str](), list[str]()
    for name, split in known_splits(case, ("train", "dev")):
        for side, tokenizer in zip(("source", "target"), case.tokenizers, strict=True):
            if not tokenizer.spells:
                continue
            texts = [getattr(pair, side) for pair in split.pairs[:: max(1, -(-len(split.pairs) // SAMPLE))]]
            share, broken = there_and_back(tokenizer, texts)
            if broken is not None:
                yield Seen(f"a {name} {side}, {broken[0][:60]!r}, comes back as {broken[1][:60]!r}", NOT_BACK)
                return
            evidence.append(f"{len(texts):,} {name} {side}s")
            if share > OFTEN_UNKNOWN:
                unknown.append(f"{share:.1%} of the tokens of {name} {side}s are <unk>")
    if not evidence:
        raise NotTestedError("what this model reads is no text")
    yield Seen("; ".join(unknown) or f"{', '.join(evidence)} come back", UNKNOWN if unknown else None, serious=False)


def there_and_back(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[float, tuple[str, str] | None]:
    """Return the share of unknown tokens, and the first text that is decoded to a different text.

    White space may come back as single spaces, and characters composed if the tokenizer composes them. A text with
    unknown tokens cannot come back, so it is not compared.
    """
    unknown = total = 0
    for text in texts:
        ids = tokenizer.encode(text)
        unknown, total = unknown + ids.count(UNK), total + len(ids)
        back = tokenizer.decode(ids)
        if UNK not in ids and back.split() != tokenizer.normal(text).split():
            return unknown / max(total, 1), (text, back)
    return unknown / max(total, 1), None


def leakage(case: Case) -> Iterator[Seen]:
    """Count the dev and test sources that occur in the training data, and the test sources that occur in dev."""
    known = {" ".join(pair.source.split()) for pair in case.split("train").pairs}
    evidence, worst, sources = list[str](), 0.0, dict[str, list[str]]()
    for name, split in known_splits(case, ("dev", "test")):
        sources[name] = [" ".join(pair.source.split()) for pair in split.pairs]
        found = sum(source in known for source in sources[name])
        evidence.append(f"{found:,} of {len(split.pairs):,} {name} sources are also in the training data")
        worst = max(worst, found / len(split.pairs))
    if not evidence:
        raise NotTestedError("there are neither dev nor test pairs")
    yield Seen("; ".join(evidence), LEAKED if worst > 0 else None, serious=worst >= LEAKS)
    if len(sources) == 2:
        dev, n = {*sources["dev"]}, len(sources["test"])
        if (found := sum(source in dev for source in sources["test"])) >= n * LEAKS:
            yield Seen(f"{found:,} of {n:,} test sources are also in the dev data", IN_DEV, serious=False)


def lengths(case: Case) -> Seen:
    """Compare the longest sequence of each split with what the model accepts and with the training data."""
    limit = case.model.config.stack.max_len
    longest = {
        name: max(int(side.max(initial=0)) for side in case.pairs.lengths(split.encoded))
        for name, split in known_splits(case, SPLITS)
    }
    shown = ", ".join(f"{name} {length}" for name, length in longest.items())
    evidence = f"longest: {shown} tokens; the model takes {'any number' if limit is None else limit}"
    if limit is not None and max(longest.values()) > limit:
        return Seen(evidence, TOO_LONG)
    beyond = "train" in longest and max(longest.values()) > LONGER * longest["train"]
    return Seen(evidence, LONGER_THAN_EVER if beyond else None, serious=False)


def known_splits(case: Case, names: Sequence[str]) -> Iterator[tuple[str, PairsSplit]]:
    """Yield the splits that can be read. Errors: `NotTestedError` if none can."""
    found = 0
    reason = NotTestedError("there are no data")
    for name in names:
        try:
            split = case.split(name)
        except NotTestedError as error:
            reason = error
            continue
        found += 1
        yield name, split
    if not found:
        raise reason


OF_PAIRS = (
    Probe("data", "The data can be read and are those used in training.", readable),
    Probe("round-trip", "Text comes back from its ids.", round_trip),
    Probe("leakage", "No dev or test source is in the training data.", leakage),
    Probe("length", "No sequence is longer than the model takes.", lengths),
)


# --- running text

PIECES = 4
"""How many pieces of a text, about a million characters each, are encoded and decoded."""

TEXT_LEAKED = Ailment(
    "held-out text is also in the training text",
    "The texts repeat themselves, or share documents.",
    "Remove from the training text what is in dev and test; scores on memorised text mean little.",
)


def text_readable(case: Case) -> Iterator[Seen]:
    """Read running text."""

    def sized(name: str) -> tuple[str, str]:
        split = text_case(case).text(name)
        return f"{len(split.tokens):,} {name} tokens of {split.name}", split.digest()

    return as_in_training(case, sized)


def text_round_trip(case: Case) -> Iterator[Seen]:
    """Encode and decode training and dev text."""
    tokenizer, evidence, unknown = case.tokenizers.target, list[str](), list[str]()
    for name in ("train", "dev"):
        n = lost = total = 0
        for piece in islice(text_case(case).part(name).pieces(ANYWHERE), PIECES):
            ids, text = tokenizer.encode(piece.text), tokenizer.normal(piece.text)
            back = tokenizer.decode(ids)
            if UNK not in ids and back.split() != text.split():
                place = next(i for i, (a, b) in enumerate(zip(text, back + "\0", strict=False)) if a != b)
                yield Seen(
                    f"the {name} text {text[place : place + 40]!r} ({piece.place}) comes back as "
                    f"{back[place : place + 40]!r}",
                    NOT_BACK,
                )
                return
            n, lost, total = n + len(piece.text), lost + ids.count(UNK), total + len(ids)
        evidence.append(f"{n:,} characters of the {name} text")
        if lost > OFTEN_UNKNOWN * total:
            unknown.append(f"{lost / total:.1%} of the tokens of the {name} text are <unk>")
    yield Seen("; ".join(unknown) or f"{' and '.join(evidence)} come back", UNKNOWN if unknown else None, serious=False)


def text_leakage(case: Case) -> Iterator[Seen]:
    """Count the stretches of dev and test that occur word for word in the training text, and those of test in dev."""
    train, evidence, worst = text_case(case).part("train"), list[str](), 0.0
    parts: dict[str, Part] = {}
    for name in ("dev", "test"):
        try:
            parts[name] = text_case(case).part(name)
        except NotTestedError:
            continue
        found = overlap(train, parts[name])
        evidence.append(shared(found, name, "training"))
        worst = max(worst, found.share)
    yield Seen("; ".join(evidence), TEXT_LEAKED if worst >= LEAKS / 10 else None, serious=worst >= LEAKS)
    if len(parts) == 2 and (found := overlap(parts["dev"], parts["test"])).share >= LEAKS:
        yield Seen(shared(found, "test", "dev"), IN_DEV, serious=False)


def shared(found: Overlap, name: str, known: str) -> str:
    """Say how much of one text is in another."""
    return (
        f"{found.found:,} of {found.n:,} stretches of the {name} text ({found.size} {found.unit}, or a whole document "
        f"that is shorter) are also in the {known} text"
    )


def text_case(case: Case) -> TextCase:
    """Return the case as a `TextCase`, which these probes need."""
    assert isinstance(case, TextCase)
    return case


OF_TEXT = (
    Probe("data", "The texts can be read and are those used in training.", text_readable),
    Probe("round-trip", "Text comes back from its ids.", text_round_trip),
    Probe("leakage", "No dev or test text is in the training text.", text_leakage),
)


# --- episodes


def episodes_readable(case: Case) -> Iterator[Seen]:
    """Read episodes."""

    def sized(name: str) -> tuple[str, str]:
        assert isinstance(case, TrajectoryCase)
        split = case.episodes(name)
        return f"{len(split.episodes):,} {name} episodes of {split.source.name}", split.digest()

    return as_in_training(case, sized)


LEFT_OUT = ("labels", "padding-in-loss", "pooling")
"""Probes of the model that windows of episodes have nothing for."""
OF_EPISODES = (Probe("data", "The episodes can be read and are those used in training.", episodes_readable),)
