"""The REST API as an ASGI application: bodies, paths and headers of HTTP, and who may send requests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from kctl.limits import Subject, bound
from kctl.schemas.refusals import Refused, invalid_body
from kctl.schemas.rules.request import Answer, Request
from kctl.schemas.serving.users import Users

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "the body of a request",
    1_000_000,
    "bytes",
    on_excess="status 413",
)
BODY_S_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "time until the body of a request has arrived",
    30,
    "s",
    on_excess="status 408",
)
_FIELDS_MAX = 100
_SEGMENTS_MAX = 20
_MEDIA_TYPE = b"application/vnd.schemaregistry.v1+json"

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Handle = Callable[[Request], Awaitable[Answer]]


class RestApplication:
    """Passes requests to `handle`, and errors to clients."""

    def __init__(self, handle: Handle, users: Users) -> None:
        self._handle = handle
        self._users = users

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI defines it."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
            status, document, is_text = 200, answer.document, answer.is_text
        except Refused as refused:
            status, document, is_text = refused.status, refused.document, False
        except Exception:
            logger.exception("a request failed path=%s", scope["path"])
            status, document, is_text = 500, {"error_code": 500, "message": "Internal Server Error"}, False
        body = (document if is_text else json.dumps(document, ensure_ascii=False, separators=(",", ":"))).encode()
        headers = [(b"content-type", _MEDIA_TYPE), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b'Basic realm="schema registry"'))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not self._users.permits(authorization.decode("latin-1")):
            raise Refused(401, "Unauthorized")
        return await self._handle(
            Request(scope["method"], _segments(scope["raw_path"]), _query(scope["query_string"]), await _body(receive))
        )


def _segments(raw_path: bytes) -> tuple[str, ...]:
    """Return the parts of a path; `%2F` is a character of a part.  Raises Refused."""
    parts = [part for part in raw_path.decode("latin-1").split("?")[0].split("/") if part]
    try:
        segments = tuple(unquote(part, errors="strict") for part in parts)
    except UnicodeDecodeError:
        raise invalid_body("The path is not UTF-8") from None
    if len(segments) > _SEGMENTS_MAX:
        raise Refused(404, "HTTP 404 Not Found")
    return segments


def _query(text: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise invalid_body("The query cannot be read") from None
    return dict(pairs)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S_MAX):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "The client has closed the connection")
                body += message.get("body", b"")
                if len(body) > BODY_BYTES_MAX:
                    raise Refused(413, f"The body is larger than {BODY_BYTES_MAX:,} bytes")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refused(408, f"The body has not arrived in {BODY_S_MAX} s") from None
