"""Random choices that stay the same in all versions of Python, from numbers that depend on nothing but a text."""

from __future__ import annotations

from hashlib import blake2b
from random import Random


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
