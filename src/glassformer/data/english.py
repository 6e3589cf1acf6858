"""Numbers in English words: 1984 is "one thousand nine hundred eighty-four"."""

from __future__ import annotations

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
