"""A program that builds the grammar on its standard input, over bytes. It prints nothing; only its exit code counts.

It imports nothing of glassformer, so that it starts fast.
"""

from __future__ import annotations

import sys


class Bytes:
    """A byte tokenizer with the interface that llguidance needs."""

    eos_token_id, bos_token_id, special_token_ids = 0, 0, (0,)
    tokens = (b"<eos>", *(bytes([value]) for value in range(256)))

    def __call__(self, text: str | bytes) -> list[int]:
        """Return the ids of a text."""
        return [1 + value for value in (text if isinstance(text, bytes) else text.encode())]


def build(grammar: str) -> None:
    """Build a grammar. An invalid one raises no error here: the caller builds it again and reports why."""
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    LLMatcher(LLTokenizer(TokenizerWrapper(Bytes())), grammar, log_level=0)


if __name__ == "__main__":
    build(sys.stdin.buffer.read().decode())
