"""The ASGI application: its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from glassformer.serve import replies
from glassformer.serve.answers import Completions, Translations
from glassformer.serve.guard import Guard, Receive, Scope, Send
from glassformer.serve.refusal import RefusalError
from glassformer.serve.service import Service

PATHS = "GET /v1/models, POST /v1/completions, POST /v1/translate, GET /health"


def application(service: Service) -> Guard:
    """Build the server's ASGI application."""

    async def health(_: Request) -> Response:
        status = "draining" if service.draining else "ok" if service.runner.alive else "failed"
        return in_json({"status": status}, 200 if status == "ok" else 503)

    async def models(_: Request) -> Response:
        return in_json({"object": "list", "data": [replies.model_card(service.model, service.created)]})

    async def model(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name != service.model:
            message = f"This server has no model {name[:60]!r}; its only model is {service.model!r}."
            raise RefusalError(404, message, param="model", code="model_not_found")
        return in_json(replies.model_card(service.model, service.created))

    router = Router(
        [
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/models/{name}", model),
            Route("/v1/completions", Completions(service), methods=["POST"]),
            Route("/v1/translate", Translations(service), methods=["POST"]),
        ],
        redirect_slashes=False,
    )

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # makes the router raise an HTTPException instead of answering in plain text
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            message = f"This server has no {scope['method'][:20]} {scope['path'][:80]!r}; it has {PATHS}."
            raise RefusalError(error.status_code, message, code="not_found", headers=headers_of(error)) from None

    return Guard(routed, service.config, service.say)


def headers_of(error: HTTPException) -> Mapping[str, str]:
    """Return the router's headers, which list the allowed methods if a path does not have this one."""
    return error.headers or {}


def in_json(value: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(replies.as_json(value), status, media_type="application/json")
