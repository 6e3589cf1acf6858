"""Tasks that generate their own pairs, so that a model can be tried in a minute and its answers are known exactly.

Two rules hold for every task. A pair depends only on (seed, split, index): there is no global random state, and the
pairs are the same wherever they are asked for. And a source always belongs to one split, by a hash of its text (90 %
train, 5 % dev, 5 % test, whatever the seed): dev and test never ask for what was seen in training, nor for the same
source twice. Train may repeat itself, because it is drawn from the task at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.data.pairs import Pair

TRIES = 20_000  # draws without a new source after which a split counts as exhausted; 20 are usual in dev and test


def hashed(text: str) -> int:
    """A number of 64 bits that depends only on the text; a seed, or what tells whose split something is."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def below(random: Random, limit: int) -> int:
    """A whole number from 0 to limit - 1. Python promises only `random()` to stay the same in later versions."""
    return int(random.random() * limit)


def split_of(text: str) -> str:
    """The split that something belongs to for ever, by the hash of its text: 90 % train, 5 % dev, 5 % test."""
    share = hashed(text) % 100
    return "train" if share < 90 else "dev" if share < 95 else "test"


class Sources(NamedTuple):
    """Of what the sources of copy, reverse and sort are made; see `DataConfig`."""

    symbols: int
    min_length: int
    max_length: int


@dataclass(frozen=True)
class Task:
    """How a task makes sources, and the only right target of each."""

    source: Callable[[Random, Sources], str]
    target: Callable[[str], str]
    basic: Callable[[str], bool] = lambda source: False
    """True for sources that are never held out."""

    def split_of(self, source: str) -> str:
        """The only split that `source` can be in."""
        if self.basic(source):
            return "train"
        return split_of(source)

    def pairs(self, name: str, of: Sources, split: str, size: int, seed: int) -> list[Pair]:
        """The first `size` pairs of a split of the task, which is called `name`; more of them only come after these.

        Each pair has its own random numbers; dev and test also look back, to repeat no source. ConfigError if the task
        has fewer different sources than asked for.
        """
        seen: set[str] = set()
        found: list[Pair] = []
        for index in range(size):
            random = Random(hashed(f"{name}/{seed}/{split}/{index}"))
            for _ in range(TRIES):
                source = self.source(random, of)
                if source not in seen and self.split_of(source) == split:
                    break
            else:
                raise ConfigError(
                    f"Each source belongs to one split, and dev and test repeat none, but task {name!r} with "
                    f"these settings has only {index} different {split} sources, and data.{split}_size is {size}. "
                    f"Lower data.{split}_size, or allow longer sources or more symbols."
                )
            if split != "train":
                seen.add(source)
            found.append(Pair(source, self.target(source)))
        return found


def _symbol(number: int, symbols: int) -> str:
    """a, b, c, ...; with more than 26 symbols s0, s1, s2, ..., padded to equal length so that they also sort."""
    return chr(ord("a") + number) if symbols <= 26 else f"s{number:0{len(str(symbols - 1))}d}"


ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def spell(number: int) -> str:
    """The English of 0 to 999,999, without "and"; the parts of 21 to 99 are joined by a hyphen."""
    assert 0 <= number <= 999_999, number
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, unit)
    return f"{spell(count)} {name}" + (f" {spell(rest)}" if rest else "")


def _some_symbols(random: Random, of: Sources) -> str:
    length = of.min_length + below(random, of.max_length - of.min_length + 1)
    return " ".join(_symbol(below(random, of.symbols), of.symbols) for _ in range(length))


def _some_digits(random: Random, of: Sources) -> str:
    """A number of 1 to 6 digits, each length equally often: few numbers are short, but those teach the words."""
    digits = 1 + below(random, 6)
    first = 10 ** (digits - 1) if digits > 1 else 0
    return str(first + below(random, 10**digits - first))


def _sorted(source: str) -> str:
    return " ".join(sorted(source.split()))


def _spelled(source: str) -> str:
    return " ".join(spell(int(number)) for number in source.split())


def _below_a_hundred(source: str) -> bool:
    """0 to 99 have the words that all longer numbers are made of, so a model may always see them."""
    return int(source) < 100


TASKS: dict[str, Task] = {
    "copy": Task(_some_symbols, lambda source: source),
    "reverse": Task(_some_symbols, lambda source: " ".join(reversed(source.split()))),
    "sort": Task(_some_symbols, _sorted),
    "numbers": Task(
        lambda random, of: " ".join(str(below(random, 100)) for _ in range(2 + below(random, 6))), _spelled
    ),
    "spell": Task(_some_digits, _spelled, basic=_below_a_hundred),
}
