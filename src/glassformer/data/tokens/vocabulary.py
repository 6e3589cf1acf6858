"""What every tokenizer promises: text to ids and back, with six special ids that no user's text can produce.

    id      0      1      2      3      4      5        6 ...
    token   <pad>  <bos>  <eos>  <unk>  <sep>  <blank>  the tokenizer's own

A user who types "<pad>" gets the ids of those five characters (or that word), never id 0.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, cast, runtime_checkable
from unicodedata import normalize

from glassformer.base.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Where text may be cut, so that the tokens of its parts are those of the whole.


class Cuts(NamedTuple):
    """The places where text may be cut for a tokenizer."""

    before: str = " \n\t"
    """The kinds of white space that a place is before, if no other white space comes before it."""
    as_space: str = ""
    """Characters that count as white space, too."""
    anywhere: bool = False
    """Whether no token has more than one character, so that text may be cut between any two."""


WHITE_SPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.isspace` takes for white space."""
WORDS, ANYWHERE = Cuts(), Cuts(anywhere=True)
SHARE = 2**14
"""Characters that a library for subwords gets as one text: it encodes many texts together, on all cores, takes 256 at
once to train, and uses a thousand bytes for each token of a text."""


def shares(text: str, cuts: Cuts = WORDS) -> Iterator[str]:
    """Cut text into shares of at most `SHARE` characters; one without a place to cut extends to the next place."""
    first = 0
    while len(text) - first > SHARE and (last := end_of_share(text, first, cuts)):
        yield text[first:last]
        first = last
    yield text[first:]


def end_of_share(text: str, first: int, cuts: Cuts) -> int:
    """The place where the share that starts at `first` ends; 0 if no place is left."""
    if size := last_place(text[first : first + SHARE], cuts):
        return first + size
    behind = re.compile(rf"[^\s{cuts.as_space}](?=[{cuts.before}])").search(text, first + SHARE - 1)
    return behind.end() if behind else 0


def last_place(text: str, cuts: Cuts = WORDS) -> int:
    """The last place to cut a text, counted in the characters before it; 0 if there is none."""
    at, blank = len(text), WHITE_SPACE + cuts.as_space
    while (at := max(text.rfind(space, 0, at) for space in cuts.before)) > 0:
        if text[at - 1] not in blank:
            return at
        at = len(text[:at].rstrip(blank)) + 1  # past a run of white space in one step, however long it is
        if at > 1 and text[at - 1] in cuts.before:
            return at - 1
    return 0


SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>", "<sep>", "<blank>")
PAD, BOS, EOS, UNK, SEP, BLANK = range(len(SPECIALS))
MOST_NAMED = 5
"""The most parts of texts that a message names."""
THE_FILE = "Use the tokenizer.json of a glassformer run or export."
"""The remedy for a file that holds no such tokenizer."""

BYTES_AND_SPECIALS = 256 + 6  # the smallest byte-level vocabulary: every byte, and the six special tokens
MOST_ENTRIES = 2**20
"""Most entries of a vocabulary, and most symbols of a task: no model here has a wider head."""


@runtime_checkable
class VocabularySettings(Protocol):
    """What training a vocabulary needs to know of `TokenizerConfig`."""

    @property
    def vocab_size(self) -> int:
        """The size of a subword vocabulary, special tokens included."""
        ...

    @property
    def min_count(self) -> int:
        """How often a word or character must occur to have an entry."""
        ...


class Tokenizer(ABC):
    """Text to ids and back. Immutable once made; `to_json` holds all of it.

    >>> from glassformer.data.config import TokenizerConfig
    >>> from glassformer.data.tokenizer import TOKENIZERS
    >>> letters = TOKENIZERS["character"].train(["garden"], TokenizerConfig())
    >>> letters.decode(letters.encode("near"))
    'near'
    """

    kind: ClassVar[str]
    cuts: Cuts = WORDS
    """Where text may be cut, so that the ids of its parts are those of the whole (`encode_parts`)."""
    composed: bool = False
    """Whether text is brought into Unicode's form NFC before it is encoded, so that é is one character."""
    begins: bool = True
    """Whether <bos> comes before a text that is a document; a published tokenizer may put nothing there."""
    ends: tuple[int, ...] = ()
    """Ids besides <eos> that end a text, as chat models have them; no text has them, and they add none."""
    spells: ClassVar[bool] = True
    """Whether a text comes back from its ids."""
    least_vocab_size: ClassVar[int] = 0
    """The smallest `vocab_size` that it can be trained to; 0 if the texts alone determine the size."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of ids, special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without special ones except <unk>, for a word or character that the vocabulary lacks.

        Raises DataError for a lone surrogate, which is half a character and has no UTF-8 form.
        """

    def lacks(self, text: str) -> list[str]:
        """The parts of `text` that become <unk>, in order; none if the tokenizer can spell every text.

        Raises DataError as `encode` does.
        """
        utf8(text)
        return []

    def unknown(self, text: str) -> list[bytes]:
        """The bytes of `text` that each <unk> in its ids stands for, in order. Raises DataError as `encode` does."""
        return [utf8(part) for part in self.lacks(text)]

    def normal(self, text: str) -> str:
        """The text that is encoded: `text` itself, or its characters `composed`."""
        return normalize("NFC", text) if self.composed else text

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for each of `texts`. DataError for a single text, whose letters would be taken for texts."""
        refuse_one_text(texts)
        return [self.encode(text) for text in texts]

    def encode_parts(self, parts: Sequence[str], *, behind: bool = False) -> list[list[int]]:
        """The ids of each part of a text that is cut as `cuts` allows; joined, they are `encode` of the whole.

        `behind`: these parts come behind others, so that the first does not begin the text.
        """
        return self.encode_all(parts)

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`. Special ids are left out, except <unk>. DataError for an unknown id."""

    @abstractmethod
    def tokens(self, ids: Iterable[int]) -> list[str]:
        r"""One string per id, for display: special tokens by name, bytes that are not text as \\xNN."""

    def names(self, ids: Iterable[int]) -> list[str]:
        """As `tokens`, but no two ids have one name: a special token, or a later one, has its id behind it.

        So the word <unk> of a text keeps its name, and the special token is "<unk> (id 3)".
        """
        ids = list(ids)
        return [self._renamed.get(id, text) for id, text in zip(ids, self.tokens(ids), strict=True)]

    @cached_property
    def _renamed(self) -> dict[int, str]:
        """The names of the ids whose text another one has, too."""
        texts, found = self.tokens(range(self.vocab_size)), dict[int, str]()
        taken, once = {*texts}, set[str]()
        for id in (*range(len(SPECIALS), len(texts)), *range(len(SPECIALS))):
            if texts[id] not in once:
                once.add(texts[id])
                continue
            name = f"{texts[id]} (id {id})"
            while name in taken:
                name += "'"
            taken.add(name)
            found[id] = name
        return found

    @abstractmethod
    def adds(self, id: int, *, first: bool = False) -> bytes:
        """The bytes that an id adds to a text, or starts it with if `first`; joined, they are `decode` in UTF-8.

        So special ids add none, except <unk>. DataError for an unknown id.
        """

    def spelling(self) -> list[bytes]:
        """The bytes that each id adds to a text, by id; empty for a special one."""
        return [b"" if id < len(SPECIALS) else self.adds(id) for id in range(self.vocab_size)]

    @abstractmethod
    def words_of(self, ids: Iterable[int]) -> list[int]:
        """The number of each id's word; words are separated by white space and by special ids (except <unk>).

        White space with its own id belongs to the word before it, or to none, -1, as the first id and after a special
        one. Special ids have -1, too. DataError for an unknown id.
        """

    @abstractmethod
    def to_json(self) -> str:
        """All of the tokenizer as JSON text; `tokenizer_from_json` reads it back."""

    @classmethod
    @abstractmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Read the tokenizer that `to_json` wrote. DataError for anything else."""

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> Tokenizer:
        """Train a tokenizer whose vocabulary covers `texts`; the same texts give the same tokenizer."""


def utf8(text: str) -> bytes:
    """`text` as UTF-8. DataError for a lone surrogate, naming it and its place, and for what is no text."""
    try:
        return text.encode("utf-8")
    except AttributeError:
        raise DataError(f"A tokenizer encodes text; got {text!r:.60} ({type(text).__name__}). Give a str.") from None
    except UnicodeEncodeError as error:
        raise DataError(
            f"Text must be Unicode that UTF-8 can hold, but character {error.start + 1} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}, half of a character. Read the text again with the right encoding."
        ) from None


def refuse_one_text(texts: Sequence[str]) -> None:
    """Raise `DataError` for a text in place of a list of texts."""
    if isinstance(texts, str):
        raise DataError(f"encode_all takes a list of texts; got the text {texts!r:.60}. Use encode, or give [text].")


def lacking(what: str, parts: Iterable[str]) -> str:
    """The warning on a text with parts that became <unk>; `what` names the text. The commonest are named."""
    counts = Counter(parts)
    named = [in_points(part, number) for part, number in counts.most_common(MOST_NAMED)]
    more = ", ..." if len(counts) > MOST_NAMED else ""
    return f"the vocabulary lacks a part of {what}, {', '.join(named)}{more}; the model read <unk> in its place"


def in_points(part: str, number: int) -> str:
    """A part of a text that occurs `number` times, a character with its code point: 'é' (U+00E9, 3 times)."""
    more = [f"U+{ord(part):04X}"] if len(part) == 1 else []
    more += [f"{number} times"] if number > 1 else []
    return repr(part[:40]) + (f" ({', '.join(more)})" if more else "")


def check_ids_known(ids: Iterable[int], vocab_size: int) -> list[int]:
    """`ids` as a list. DataError for one outside the vocabulary, naming it and its place."""
    ids = list(ids)
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        place, id = next((place, id) for place, id in enumerate(ids) if not 0 <= id < vocab_size)
        raise DataError(
            f"Ids of this tokenizer go from 0 to {vocab_size - 1}; got id {id} at place {place} (counted from 0). "
            f"Decode with the tokenizer that the model was trained with."
        )
    return ids


def read_json(text: str) -> Mapping[str, object]:
    """The JSON object in `text`. DataError if there is none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DataError(
            f"A tokenizer must be a JSON object, but this text is not valid JSON: {reason}. {THE_FILE}"
        ) from None
    if not isinstance(value, dict):
        raise DataError(
            f"A tokenizer must be a JSON object, but this JSON is of type {type(value).__name__}. {THE_FILE}"
        )
    return cast("Mapping[str, object]", value)


def refuse_other_kind(record: Mapping[str, object], kind: str) -> None:
    """DataError unless a record is of a tokenizer of this kind, with our special tokens."""
    if record.get("kind") != kind or record.get("specials") != list(SPECIALS):
        raise DataError(
            f"A {kind} tokenizer must have kind {kind!r} and specials {', '.join(SPECIALS)}, but this one has kind "
            f"{record.get('kind')!r} and specials {record.get('specials')!r}. {THE_FILE}"
        )


# Characters to ids and back by one table look-up for a whole text, a hundred times as fast as one by one.

UTF32 = "utf-32-le"
CODES = "<u4"


def codes_of(text: str) -> NDArray[np.uint32]:
    """[characters]: the code points of a text."""
    import numpy as np  # here, so that `--help` does not wait for it

    return np.frombuffer(text.encode(UTF32), CODES)


def counted(text: str) -> dict[str, int]:
    """How often each character occurs in a text."""
    import numpy as np  # here, so that `--help` does not wait for it

    counts = np.bincount(codes_of(text))
    return {chr(code): int(counts[code]) for code in counts.nonzero()[0]}


class CodePoints:
    """The look-up tables of a list of characters, which have the ids from 6 on."""

    def __init__(self, characters: Sequence[str]) -> None:
        import numpy as np

        codes = np.array([ord(each) for each in characters], CODES)
        self._past = np.uint32(codes.max(initial=0) + 1)  # stands for all code points beyond the last known one
        self._ids = np.full(int(self._past) + 1, UNK, np.int32)
        self._ids[codes] = np.arange(len(codes)) + len(SPECIALS)
        self._codes = np.concatenate([np.zeros(len(SPECIALS), CODES), codes])

    def array(self, text: str) -> NDArray[np.int32]:
        """[characters]: the ids of a text, with <unk> for a character that is not listed."""
        import numpy as np

        return self._ids[np.minimum(codes_of(text), self._past)]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `array` gives them."""
        flat: list[int] = self.array("".join(texts)).tolist()
        if len(texts) == 1:
            return [flat]
        rows: list[list[int]] = []
        first = 0
        for text in texts:
            rows.append(flat[first : first + len(text)])
            first += len(text)
        return rows

    def text(self, ids: Sequence[int]) -> str | None:
        """The text of known ids, none of them special; None if one is."""
        import numpy as np

        array = np.asarray(ids, np.int64)
        if array.size and array.min() < len(SPECIALS):
            return None
        return self._codes[array].tobytes().decode(UTF32)


# Tokenizers whose vocabulary is a list of strings: the words or characters of the training text, or labels.

SPACE = re.compile(
    rb"(?:[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)+"
)
"""What `str.isspace` takes for white space, in UTF-8. A single byte may be only part of one, so tokens cannot tell."""
NO_WORD = -1


def words_of(pieces: Sequence[bytes], ids: Iterable[int]) -> list[int]:
    """The number of each id's word, as in `Tokenizer.words_of`; `pieces` are indexed by id."""
    import numpy as np  # here, so that `--help` does not wait for it

    known = check_ids_known(ids, len(pieces))
    special = {id: b" " for id in range(len(SPECIALS)) if id != UNK}
    spelled = [special.get(id) or pieces[id] for id in known]
    text = b"".join(spelled)
    edges = [0] * (SPACE.match(text) is None) + [space.end() for space in SPACE.finditer(text)]
    ends = np.cumsum(np.fromiter(map(len, spelled), np.int64, len(spelled)))
    begins = np.zeros(len(known), np.bool_)
    begins[np.searchsorted(ends, [edge for edge in edges if edge < len(text)], side="right")] = True
    parted = np.isin(np.asarray(known, np.int64), list(special))
    # No word has begun since the last special id if that is nearer than the last start of a word.
    place = np.arange(1, len(known) + 1)
    no_word = np.maximum.accumulate(place * parted) >= np.maximum.accumulate(place * begins)
    return np.where(no_word, NO_WORD, np.cumsum(begins) - 1).tolist()


class _Listed(Tokenizer):
    """Ids 6, 7, ... stand for the strings of `entries`, in order. Any other string is <unk>."""

    joint: ClassVar[str]

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        self._names = (*SPECIALS, *self.entries)
        self._ids = {entry: id for id, entry in enumerate(self.entries, start=len(SPECIALS))}

    @staticmethod
    @abstractmethod
    def cut(text: str) -> list[str]:
        """The pieces of `text` that get one id each."""

    @classmethod
    def counted(cls, text: str) -> Mapping[str, int]:
        """How often each piece occurs in `text`."""
        return Counter(cls.cut(text))

    @property
    def vocab_size(self) -> int:
        return len(SPECIALS) + len(self.entries)

    def encode(self, text: str) -> list[int]:
        utf8(text)
        return [self._ids.get(piece, UNK) for piece in self.cut(text)]

    def lacks(self, text: str) -> list[str]:
        utf8(text)
        return [piece for piece in self.cut(text) if piece not in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        known = check_ids_known(ids, self.vocab_size)
        return self.joint.join(self.tokens(id for id in known if id >= len(SPECIALS) or id == UNK))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._names[id] for id in check_ids_known(ids, self.vocab_size)]

    def adds(self, id: int, *, first: bool = False) -> bytes:
        """A word also adds the space before it, unless it is the first."""
        [token] = self.tokens([id])
        if id < len(SPECIALS) and id != UNK:
            return b""
        return (token if first else self.joint + token).encode()

    def words_of(self, ids: Iterable[int]) -> list[int]:
        known = check_ids_known(ids, self.vocab_size)
        return [place if id >= len(SPECIALS) or id == UNK else NO_WORD for place, id in enumerate(known)]

    def to_json(self) -> str:
        record = {"kind": self.kind, "specials": SPECIALS, "entries": self.entries}
        return json.dumps(record, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> _Listed:
        return cls(cls.entries_in(read_json(text)))

    @classmethod
    def entries_in(cls, record: Mapping[str, object]) -> list[str]:
        """The entries of what `to_json` wrote. Errors: `DataError` for anything else."""
        entries = record.get("entries")
        refuse_other_kind(record, cls.kind)
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in cast("list[object]", entries)):
            raise DataError(
                f"A {cls.kind} tokenizer must have a list of strings under 'entries', but this one has none. {THE_FILE}"
            )
        entries = cast("list[str]", entries)
        for place, entry in enumerate(entries):
            utf8(entry)
            if cls.cut(entry) != [entry]:
                raise DataError(
                    f"Each entry of a {cls.kind} tokenizer must be one {cls.kind}, but entry {place} is {entry!r}. "
                    f"{THE_FILE}"
                )
        if len(set(entries)) != len(entries):
            raise DataError(
                f"The entries of a {cls.kind} tokenizer must be different, but some of this one occur twice. {THE_FILE}"
            )
        return entries

    @classmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> _Listed:
        found: Counter[str] = Counter()
        for text in texts:
            utf8(text)
            found.update(cls.counted(text))
        if found and (most := max(found.values())) < config.min_count:
            raise ConfigError(
                f"A vocabulary keeps what occurs at least tokenizer.min_count={config.min_count} times, but nothing in "
                f"the training text occurs more than {most} times, so nothing would be left. Try min_count=1."
            )
        # sorted: the order must not depend on Python's string hashes
        return cls(sorted(piece for piece, count in found.items() if count >= config.min_count))


class WordTokenizer(_Listed):
    """One id per word. Words end at white space; `decode` puts one space between them."""

    kind = "word"
    joint = " "

    @staticmethod
    def cut(text: str) -> list[str]:
        return text.split()


class CharacterTokenizer(_Listed):
    """One id per character (a Unicode code point); `decode` puts nothing between them."""

    kind = "character"
    cuts = ANYWHERE
    joint = ""

    @staticmethod
    def cut(text: str) -> list[str]:
        return list(text)

    @classmethod
    def counted(cls, text: str) -> Mapping[str, int]:
        return counted(text)

    @cached_property
    def _points(self) -> CodePoints:
        return CodePoints(self.entries)

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        refuse_one_text(texts)
        for text in texts:
            utf8(text)
        return self._points.ids(texts)

    def decode(self, ids: Iterable[int]) -> str:
        known = check_ids_known(ids, self.vocab_size)
        found = self._points.text(known)
        return super().decode(known) if found is None else found

    def words_of(self, ids: Iterable[int]) -> list[int]:
        return words_of(self._spelled, ids)

    @cached_property
    def _spelled(self) -> list[bytes]:
        return [name.encode() for name in self._names]


class Labels(_Listed):
    """The label set of a classifier: a whole text is one entry. Label k of the model has id FIRST_LABEL + k."""

    kind = "label"
    joint = "\n"

    def __init__(self, entries: Sequence[str]) -> None:
        super().__init__(entries)
        for place, entry in enumerate(self.entries):
            if not entry.strip():
                raise DataError(
                    f"A label must be a name, but label {place} (counted from 0) is {entry!r}. Give it a name, or "
                    "remove its texts."
                )

    @staticmethod
    def cut(text: str) -> list[str]:
        return [text]

    def in_units(self, outputs: Sequence[float]) -> list[float]:
        """The outputs of a head in the units of the data, one for each entry: as they are, where they are scores."""
        return [*outputs]


FIRST_LABEL = len(SPECIALS)
