"""Headers of requests and responses.

A request header has version 2 if the version of the request is flexible, else 1; only ControlledShutdown 0 has header
version 0, without a client id.  The client id has a 2-byte length in flexible headers too.  A response header has
version 1 if flexible, else 0; that of ApiVersions is always 0, because the client does not have the broker's versions
yet yet (KIP-511).
"""

from __future__ import annotations

import struct

from kctl.errors import MalformedRequest
from kctl.limits import TAGGED_FIELDS_MAX
from kctl.protocol.registry import api
from kctl.protocol.varint import skip_tagged_fields

_CONTROLLED_SHUTDOWN = 7
_FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_FIXED_AND_LENGTH = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader:
    """The header of a request; `correlation_id` is repeated in the response, `client_id` is for logs, metrics and
    quotas.
    """

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None = None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestHeader) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return "RequestHeader(api_key={}, api_version={}, correlation_id={}, client_id={!r})".format(*self._values())

    def _values(self) -> tuple[int, int, int, str | None]:
        return self.api_key, self.api_version, self.correlation_id, self.client_id


def request_header_version(api_key: int, api_version: int) -> int:
    """Return 0, 1 or 2; 1 for unknown APIs."""
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    known = api(api_key)
    return 2 if known is not None and api_version in known.flexible else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return 0 or 1; 0 for unknown APIs."""
    known = api(api_key)
    return int(known is not None and api_version in known.flexible_responses)


def decode_request_header(buffer: memoryview | bytes, offset: int = 0) -> tuple[RequestHeader, int]:
    """Return (header, offset of the body); unknown APIs and versions are left to the caller.  Raises
    MalformedRequest.
    """
    api_key, api_version, correlation_id, client_id, position = decode_request_fields(buffer, offset)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_request_fields(buffer: memoryview | bytes, offset: int = 0) -> tuple[int, int, int, str | None, int]:
    """As `decode_request_header`, but return the four fields of the header and the offset: an object takes longer than
    to decode them.
    """
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        api_key, api_version, correlation_id = _FIXED.unpack_from(view, offset)
        known = api(api_key)
        is_flexible = known is not None and api_version in known.flexible
        if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
            return api_key, api_version, correlation_id, None, offset + _FIXED.size
        (length,) = _LENGTH.unpack_from(view, offset + _FIXED.size)
        position = offset + _FIXED_AND_LENGTH.size
        client_id = None
        if length >= 0:
            client_id = str(view[position : position + length], "utf-8")
            position += length
        if is_flexible:
            position, _ = skip_tagged_fields(view, position + 1, view[position], TAGGED_FIELDS_MAX)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"request header: {error}") from error
    if position > len(view):
        raise MalformedRequest("request header is incomplete")
    return api_key, api_version, correlation_id, client_id, position


def encode_request_header(header: RequestHeader) -> bytes:
    """Return the bytes before a request's body, without the size of the frame."""
    version = request_header_version(header.api_key, header.api_version)
    if version == 0:
        return _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    fixed = _FIXED_AND_LENGTH.pack(header.api_key, header.api_version, header.correlation_id, length)
    return fixed + client_id + (b"\0" if version == 2 else b"")


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the bytes before a response's body, without the size of the frame."""
    tags = b"\0" if response_header_version(api_key, api_version) else b""
    return _CORRELATION_ID.pack(correlation_id) + tags


def decode_response_header(buffer: memoryview | bytes, api_key: int, api_version: int) -> tuple[int, int]:
    """Return (correlation id, offset of the body).  Raises MalformedRequest."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(view)
        position = _CORRELATION_ID.size
        if response_header_version(api_key, api_version):
            position, _ = skip_tagged_fields(view, position + 1, view[position], TAGGED_FIELDS_MAX)
    except (struct.error, IndexError) as error:
        raise MalformedRequest(f"response header: {error}") from error
    if position > len(view):
        raise MalformedRequest("response header is incomplete")
    return correlation_id, position
