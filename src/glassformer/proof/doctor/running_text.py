"""Probes running text: whether it can be read, survives the tokenizer, and leaks into the held-out text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from glassformer.data.config import SPLITS
from glassformer.data.running.corpus import Overlap, Part, overlap
from glassformer.data.tokens.vocabulary import ANYWHERE, UNK
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case
from glassformer.proof.doctor.finding import Ailment, Probe, Seen
from glassformer.proof.doctor.text_case import TextCase
from glassformer.proof.doctor.texts import CHANGED, IN_DEV, LEAKS, NOT_BACK, OFTEN_UNKNOWN, UNKNOWN, UNREADABLE
from glassformer.store.checkpoint import Loaded

PIECES = 4
"""How many pieces of a text, about a million characters each, are encoded and decoded."""

LEAKED = Ailment(
    "held-out text is also in the training text",
    "The texts repeat themselves, or share documents.",
    "Remove from the training text what is in dev and test; scores on memorised text mean little.",
)


def readable(case: Case) -> Iterator[Seen]:
    """Read the texts that the recipe names, and check that they are those used in training."""
    told, missing, digests = list[str](), list[str](), dict[str, str]()
    for name in SPLITS:
        try:
            split = text_case(case).text(name)
        except NotTestedError as reason:
            if "cannot be read" in str(reason):
                yield Seen(str(reason), UNREADABLE)
                return
            missing.append(str(reason))
            continue
        digests[name] = split.digest()
        told.append(f"{len(split.tokens):,} {name} tokens of {split.name}")
    if not told:
        raise NotTestedError(missing[0])
    found = ", ".join(told)
    saved = case.loaded.state.get("data") if isinstance(case.loaded, Loaded) else None
    if isinstance(saved, dict):
        changed = [name for name in ("train", "dev") if name in digests and saved.get(name) != digests[name]]
        if changed:
            yield Seen(f"the digest of {' and '.join(changed)} has changed; {found} now", CHANGED)
            return
        found += ", with the same digests as in training"
    gone = [each for each in missing if "names no" not in each]
    yield Seen("; ".join([found, *gone[:1]]))


def round_trip(case: Case) -> Iterator[Seen]:
    """Encode and decode training and dev text."""
    tokenizer, told, unknown = case.tokenizers.target, list[str](), list[str]()
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
        told.append(f"{n:,} characters of the {name} text")
        if lost > OFTEN_UNKNOWN * total:
            unknown.append(f"{lost / total:.1%} of the tokens of the {name} text are <unk>")
    yield Seen("; ".join(unknown) or f"{' and '.join(told)} come back", UNKNOWN if unknown else None, serious=False)


def leakage(case: Case) -> Iterator[Seen]:
    """Count the stretches of dev and test that occur word for word in the training text, and those of test in dev."""
    train, told, worst = text_case(case).part("train"), list[str](), 0.0
    parts: dict[str, Part] = {}
    for name in ("dev", "test"):
        try:
            parts[name] = text_case(case).part(name)
        except NotTestedError:
            continue
        found = overlap(train, parts[name])
        told.append(shared(found, name, "training"))
        worst = max(worst, found.share)
    yield Seen("; ".join(told), LEAKED if worst >= LEAKS / 10 else None, serious=worst >= LEAKS)
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


PROBES = (
    Probe("data", "The texts can be read and are those used in training.", readable),
    Probe("round-trip", "Text comes back from its ids.", round_trip),
    Probe("leakage", "No dev or test text is in the training text.", leakage),
)
