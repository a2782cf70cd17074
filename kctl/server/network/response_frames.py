"""The bytes of responses: the size of the frame, the header, and the body in the version of the request."""

from __future__ import annotations

import struct
from typing import Any

from kctl.protocol import codec, registry
from kctl.protocol.headers import RequestHeader
from kctl.server.network.connections.outbox import Chunk
from kctl.server.requests.context import RequestContext

Response = Any

_PREFIX = struct.Struct(">ii")
_PREFIX_FLEXIBLE = struct.Struct(">iib")


def framed_response(api: registry.Api, request: RequestContext | RequestHeader, response: Response) -> list[Chunk]:
    """Return a response with its header and the size of the frame, in the version of the request."""
    return sized_response(api, request, response)[0]


def sized_response(
    api: registry.Api, request: RequestContext | RequestHeader, response: Response
) -> tuple[list[Chunk], int]:
    """As `framed_response`, and its size in bytes."""
    version = request.api_version
    body: list[Chunk] = codec.encode(response, version)
    size = 0
    for chunk in body:
        size += len(chunk)  # sum() and map() take longer for the one or two chunks of most responses.
    if version in api.flexible_responses:
        prefix = _PREFIX_FLEXIBLE.pack(size + 5, request.correlation_id, 0)
    else:
        prefix = _PREFIX.pack(size + 4, request.correlation_id)
    if body and isinstance(body[0], bytes):
        body[0] = prefix + body[0]
    else:
        body.insert(0, prefix)
    return body, size + len(prefix)


def sized_first(api: registry.Api, request: RequestContext, only: list[Response]) -> tuple[list[Chunk], int]:
    """As `sized_response`, of the first element: a thread holds its arguments for some time after it has returned."""
    return sized_response(api, request, only[0])


def decoded_response(api: registry.Api, context: RequestContext, chunks: list[Chunk] | None) -> Response | None:
    """Return a response that was encoded, if it may get a throttle time: one without records."""
    if chunks is None or len(chunks) > 1:
        return None
    frame = chunks[0]
    assert isinstance(frame, bytes)
    prefix = _PREFIX_FLEXIBLE if context.api_version in api.flexible_responses else _PREFIX
    return codec.decode(api.response, frame, context.api_version, prefix.size)[0]


def response_size(chunks: list[Chunk]) -> int:
    """Return the size of a response that was written, which begins with it."""
    first = chunks[0]
    assert isinstance(first, bytes)
    return 4 + int.from_bytes(first[:4], "big")
