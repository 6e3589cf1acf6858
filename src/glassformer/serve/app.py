"""The ASGI application: its routes."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from glassformer.serve import replies
from glassformer.serve.answers import Completions, Translations
from glassformer.serve.guard import Guard, Receive, Scope, Send
from glassformer.serve.refusal import RefusalError, no_model
from glassformer.serve.service import Service

PATHS = "GET /v1/models, POST /v1/completions, POST /v1/translate, GET /health"
METHOD_NOT_ALLOWED = 405


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
            raise no_model(name, service.model)
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
            raise unrouted(scope, error) from None

    return Guard(routed, service.config, service.say)


def unrouted(scope: Scope, error: HTTPException) -> RefusalError:
    """Return the refusal for a path that there is not, or that does not have this method; then it says which it has."""
    method, path = scope["method"][:20], scope["path"][:80]
    if error.status_code != METHOD_NOT_ALLOWED:
        chat = " It has no chats: a prompt is continued as it is." if "chat" in path else ""
        message = f"This server has no path {path!r}.{chat} Use one of {PATHS}."
        return RefusalError(error.status_code, message, code="not_found")
    takes = sorted((error.headers or {})["Allow"].split(", "))  # in the same order each time; the router has a set
    message = f"{path} takes {' and '.join(takes)}; got {method}. Use {takes[0]}."
    return RefusalError(METHOD_NOT_ALLOWED, message, code="method_not_allowed", headers={"allow": ", ".join(takes)})


def in_json(value: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(replies.as_json(value), status, media_type="application/json")
