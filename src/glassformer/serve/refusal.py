"""Error answers: OpenAI's error object with an HTTP status."""

from __future__ import annotations

import json
from collections.abc import Mapping

from glassformer.base.errors import BusyError

RETRY_AFTER = 2
"""Seconds after which a client that was turned away may ask again."""


class RefusalError(Exception):
    """An error that becomes the answer to a request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self._headers = dict(headers or {})
        self.status, self.message, self.param, self.code = status, message, param, code
        self.kind = kind or ("invalid_request_error" if status < 500 and status != 429 else "server_error")

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """The error object."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def content(self) -> bytes:
        """The error object as JSON."""
        return json.dumps(self.body, ensure_ascii=True).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers of the answer."""
        more = dict(self._headers)
        if self.status in (429, 503):
            more["retry-after"] = str(RETRY_AFTER)
        if self.status == 401:
            more["www-authenticate"] = "Bearer"
        return more


def no_model(asked: str, model: str) -> RefusalError:
    """Return the refusal for the name of a model that is not served."""
    message = f"This server has no model {asked[:60]!r}; its only model is {model!r}. Use that name."
    return RefusalError(404, message, param="model", code="model_not_found")


def busy(error: BusyError) -> RefusalError:
    """Return the refusal for a full queue."""
    return RefusalError(429, str(error), code="queue_full", kind="rate_limit_error")


def draining() -> RefusalError:
    """Return the refusal for a server that is shutting down."""
    return RefusalError(
        503, "This server is shutting down and takes no new requests. Try again later.", code="draining"
    )


def too_late(seconds: float) -> RefusalError:
    """Return the refusal for an answer that exceeded its time limit."""
    message = f"An answer may take {seconds:g} seconds, waiting included; this one took longer. Ask for less text."
    return RefusalError(503, message, code="timeout")


def broken(number: str) -> RefusalError:
    """Return the refusal for an internal error, which the server's log has under this number."""
    message = f"The server failed, by no mistake of the request. Tell whoever runs it this number of its log: {number}."
    return RefusalError(500, message, code="internal_error")
