"""The JSON answers: objects of OpenAI's completions, complete or as a stream of events, and translations."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from glassformer.decode.stream import LIMITED
from glassformer.serve.job import Piece

DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]


@dataclass
class Reply:
    """One completion answer: its id and date, and what each of its objects contains."""

    model: str
    echoed: Sequence[str]
    """The text to put before each text: its prompt, or nothing."""
    warnings: Sequence[str] = ()
    """Notes for the user; an answer with none has no such field."""
    logprobs: bool = False
    usage: bool = False
    """Whether a stream ends with the token counts; then its other events have none, which is said."""
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self) -> Json:
        """Return the fields that every object of a completion has."""
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}

    def choice(self, number: int, piece: Piece, *, first: bool) -> Json:
        """Return the entry in `choices` for one text or a piece of it."""
        return {
            "index": number,
            "text": (self.echoed[number] if first else "") + piece.text,
            "logprobs": asdict(piece.logprobs) if self.logprobs else None,
            "finish_reason": finish_reason(piece.end),
        }

    def whole(self, texts: Mapping[int, Piece], prompt_tokens: int) -> Json:
        """Return the complete answer with all texts."""
        choices = [self.choice(number, texts[number], first=True) for number in sorted(texts)]
        counts = usage(prompt_tokens, texts.values())
        return {**self.head(), "choices": choices, "usage": counts, **warned(self.warnings)}

    def event(self, number: int, piece: Piece, *, first: bool, begins: bool) -> bytes:
        """Return a piece as an event of a stream; `first` of its text, or the one that `begins` the stream."""
        counts = {"usage": None} if self.usage else {}
        warnings = warned(self.warnings) if begins else {}
        return event({**self.head(), "choices": [self.choice(number, piece, first=first)], **counts, **warnings})


def warned(warnings: Sequence[str]) -> Json:
    """Return the field of the warnings, if there are any."""
    return {"warnings": [*warnings]} if warnings else {}


def finish_reason(end: str) -> str | None:
    """Return why a text ended, in OpenAI's words, or None if it has not."""
    return None if not end else "length" if end == LIMITED else "stop"


def usage(prompt_tokens: int, pieces: Any) -> dict[str, int]:
    """Return the numbers of tokens read and written. A prompt of several texts is read, and counted, once."""
    written = sum(piece.tokens for piece in pieces)
    return {"prompt_tokens": prompt_tokens, "completion_tokens": written, "total_tokens": prompt_tokens + written}


def event(value: Json) -> bytes:
    """Return a server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"


def as_json(value: Json) -> bytes:
    """Return compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def translations(model: str, texts: Mapping[int, Piece], source_tokens: int, warnings: Sequence[str]) -> Json:
    """Return the answers to sources, in their order."""
    return {
        "object": "list",
        "model": model,
        "data": [
            {
                "object": "translation",
                "index": number,
                "text": texts[number].text,
                "finish_reason": finish_reason(texts[number].end),
            }
            for number in sorted(texts)
        ],
        "usage": usage(source_tokens, texts.values()),
        **warned(warnings),
    }


def model_card(model: str, created: int) -> Json:
    """Return a model's entry for `GET /v1/models`."""
    return {"id": model, "object": "model", "created": created, "owned_by": "glassformer"}
